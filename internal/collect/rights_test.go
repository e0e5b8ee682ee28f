// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/apiserver"
	"github.com/fairlead-io/fairlead/internal/evidence"
	"github.com/fairlead-io/fairlead/test/kube"
)

// bindYAML gives the roles of deploy/doctor.yaml to the limited user.
const bindYAML = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: limited-doctor}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: fairlead-doctor}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ` + kube.Limited + `}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: limited-doctor, namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: fairlead-doctor}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ` + kube.Limited + `}]
`

const bindExecYAML = `apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: limited-doctor-exec, namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: fairlead-doctor-exec}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ` + kube.Limited + `}]
`

// agentYAML is a pod of Cilium's agent, on a node without a kubelet.
const agentYAML = `{apiVersion: v1, kind: Node, metadata: {name: n1}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: cilium, namespace: kube-system}}
---
apiVersion: v1
kind: Pod
metadata: {name: cilium-abcde, namespace: kube-system, labels: {k8s-app: cilium}}
spec:
  nodeName: n1
  serviceAccountName: cilium
  containers: [{name: cilium-agent, image: cilium}]
`

// releaseYAML is a Secret of Helm's, which somebody changed by hand, and one of an
// app's.
const releaseYAML = `apiVersion: v1
kind: Secret
metadata:
  name: sh.helm.release.v1.cilium.v3
  namespace: kube-system
  labels: {owner: helm, name: cilium, version: "3", status: deployed, note: planted}
  annotations: {kubectl.kubernetes.io/last-applied-configuration: '{"data":{"release":"cGxhbnRlZA=="}}'}
type: helm.sh/release.v1
data: {release: cGxhbnRlZA==}
---
{apiVersion: v1, kind: Secret, metadata: {name: of-an-app, namespace: kube-system}, data: {password: cGxhbnRlZA==}}
`

// TestRights collects as a user who may do what deploy/doctor.yaml allows.
func TestRights(t *testing.T) {
	cluster := kube.Start(t)
	cluster.Kubectl("apply", "-f", "../../deploy/doctor.yaml")
	cluster.Apply(agentYAML)
	cluster.Kubectl("-n", "kube-system", "patch", "pod", "cilium-abcde", "--subresource=status", "-p",
		`{"status":{"phase":"Running","containerStatuses":[{"name":"cilium-agent","ready":true,"restartCount":1,"image":"","imageID":"","state":{"running":{}}}]}}`)
	collected := func(t *testing.T, planes ...Plane) []evidence.Record {
		t.Helper()
		b, err := Collect(t.Context(), Config{API: reach(t, cluster.LimitedKubeconfig), Samples: 1, Planes: planes})
		if err != nil {
			t.Fatal(err)
		}
		return b.Records
	}

	t.Run("what may not be read is a record that says so", func(t *testing.T) {
		r := find(t, collected(t), "1/objects/services.json")
		if !strings.Contains(r.Error, "forbidden") || len(r.Resources) > 0 || len(r.Content) > 0 {
			t.Errorf("%+v", r)
		}
	})

	cluster.Apply(bindYAML)
	t.Run("the manifest's rights are enough for all that is asked of the API", func(t *testing.T) {
		records := collected(t)
		for _, r := range records {
			if r.Path == "1/objects/_helm-releases.json" {
				continue
			}
			// There is no kubelet that has the pod's logs.
			if strings.Contains(r.Error, "forbidden") || r.Kind != evidence.Log && r.Error != "" {
				t.Errorf("%s: %s", r.Path, r.Error)
			}
		}
		services := find(t, records, "1/objects/services.json")
		if !slices.Equal(services.Resources, []string{"services"}) || services.Version == "" || !strings.Contains(string(services.Content), `"kind":"Service"`) {
			t.Errorf("%+v %s", services, services.Content)
		}
		if r := find(t, records, "1/objects/_leases.coordination.k8s.io-kube-system.json"); len(r.Resources) > 0 {
			t.Errorf("Leases of one namespace are not all: %v", r.Resources)
		}
		find(t, records, "logs/n1/kube-system_cilium-abcde_cilium-agent.log")
		find(t, records, "logs/n1/kube-system_cilium-abcde_cilium-agent.previous.log")
	})
	t.Run("Helm releases are left out, in one line, where Secrets may not be listed", func(t *testing.T) {
		r := find(t, collected(t), "1/objects/_helm-releases.json")
		if !strings.Contains(r.Error, "may not list Secrets") || len(r.Content) > 0 {
			t.Errorf("%+v %s", r, r.Content)
		}
	})
	t.Run("of Helm's Secrets names and labels are taken, and nothing that is in them", func(t *testing.T) {
		cluster.Apply(releaseYAML)
		b, err := Collect(t.Context(), Config{API: reach(t, cluster.Kubeconfig), Samples: 1})
		if err != nil {
			t.Fatal(err)
		}
		r := find(t, b.Records, "1/objects/_helm-releases.json")
		if r.Error != "" || !strings.Contains(string(r.Content), `"name":"sh.helm.release.v1.cilium.v3"`) || !strings.Contains(string(r.Content), `"status":"deployed"`) {
			t.Errorf("%+v %s", r, r.Content)
		}
		for _, r := range b.Records {
			for _, planted := range []string{"cGxhbnRlZA==", "planted", "of-an-app"} {
				if strings.Contains(string(r.Content), planted) {
					t.Errorf("%s has %q", r.Path, planted)
				}
			}
		}
	})
	t.Run("the API server is asked what Cilium's agent may do", func(t *testing.T) {
		r := find(t, collected(t), "1/access.json")
		if !strings.Contains(string(r.Content), "system:serviceaccount:kube-system:cilium") || !strings.Contains(string(r.Content), `"allowed": false`) {
			t.Errorf("%s", r.Content)
		}
	})
	t.Run("commands in pods are a right of their own", func(t *testing.T) {
		version := func(want bool) {
			t.Helper()
			r := find(t, collected(t, Cilium), "1/nodes/n1/cilium-version.txt")
			if forbidden := strings.Contains(r.Error, "forbidden"); r.Error == "" || forbidden != want {
				t.Errorf("it says %q, want forbidden: %v", r.Error, want)
			}
		}
		version(true)
		cluster.Apply(bindExecYAML)
		version(false)
	})
	t.Run("a data plane without pods is an error that says where they were looked for", func(t *testing.T) {
		_, err := Collect(t.Context(), Config{API: reach(t, cluster.LimitedKubeconfig), Samples: 1, Planes: []Plane{KubeProxy}, Nodes: []string{"n1"}})
		if err == nil || !strings.Contains(err.Error(), "k8s-app=kube-proxy") || !strings.Contains(err.Error(), "n1") {
			t.Error(err)
		}
	})
	t.Run("an API server that goes is a record, and not the end", func(t *testing.T) {
		way := reach(t, cluster.LimitedKubeconfig)
		here := &Here{Node: "n1", Socket: "/nowhere", Pins: t.TempDir(), Kernel: noKernel, Proc: "/proc", Logs: t.TempDir()}
		b, err := Collect(t.Context(), Config{API: way, Here: here, Samples: 2, Interval: time.Second, Doing: func(what string) {
			if strings.HasPrefix(what, "waiting") {
				cluster.StopAPIServer()
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		if r := find(t, b.Records, "2/version.json"); r.Error == "" {
			t.Errorf("%+v", r)
		}
		find(t, b.Records, "1/objects/services.json")
		find(t, b.Records, "2/nodes/n1/fairlead-kernel.json")
	})
}

// reach returns a way to the API server that stays until the test ends.
func reach(t *testing.T, kubeconfig string) *apiserver.Client {
	t.Helper()
	client, err := apiserver.New(apiserver.Config{Kubeconfig: kubeconfig})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { _ = client.Run(t.Context()) })
	t.Cleanup(running.Wait)
	return client
}

func find(t *testing.T, records []evidence.Record, path string) evidence.Record {
	t.Helper()
	i := slices.IndexFunc(records, func(r evidence.Record) bool { return r.Path == path })
	if i < 0 {
		var paths []string
		for _, r := range records {
			paths = append(paths, r.Path)
		}
		t.Fatalf("there is no %s among %q", path, paths)
	}
	return records[i]
}
