// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/apiserver"
	"github.com/fairlead-io/fairlead/internal/collect"
	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/checks"
	"github.com/fairlead-io/fairlead/internal/doctor/doctortest"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/evidence"
	"github.com/fairlead-io/fairlead/test/kube"
)

// releasesYAML is what two Helm releases leave in a cluster, as far as the
// second incident is about it: Cilium, with the roles of its chart, and somebody
// else's.
const releasesYAML = `{apiVersion: v1, kind: Node, metadata: {name: n1}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: cilium, namespace: kube-system}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: cilium, labels: {app.kubernetes.io/managed-by: Helm}}
rules:
- {apiGroups: [networking.k8s.io], resources: [networkpolicies], verbs: [get, list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [namespaces, services, pods, endpoints, nodes], verbs: [get, list, watch]}
- {apiGroups: [cilium.io], resources: [ciliumendpoints, ciliumidentities, ciliumnodes], verbs: [get, list, watch, create, update, patch, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: cilium, labels: {app.kubernetes.io/managed-by: Helm}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cilium}
subjects: [{kind: ServiceAccount, name: cilium, namespace: kube-system}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: lens-operator, labels: {app.kubernetes.io/managed-by: Helm}}
rules: [{apiGroups: [""], resources: [pods], verbs: [list]}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: cilium, namespace: kube-system}
spec:
  selector: {matchLabels: {k8s-app: cilium}}
  template:
    metadata: {labels: {k8s-app: cilium}}
    spec:
      serviceAccountName: cilium
      hostNetwork: true
      containers: [{name: cilium-agent, image: "quay.io/cilium/cilium:v1.17.3"}]
---
apiVersion: v1
kind: Pod
metadata: {name: cilium-8vk2p, namespace: kube-system, labels: {k8s-app: cilium}}
spec:
  nodeName: n1
  serviceAccountName: cilium
  hostNetwork: true
  containers: [{name: cilium-agent, image: "quay.io/cilium/cilium:v1.17.3"}]
`

// agent is a client with the token of Cilium's service account.
type agent struct {
	client dynamic.Interface
	log    strings.Builder
}

// wants are what a Cilium agent lists at its start.
var wants = []schema.GroupVersionResource{
	{Version: "v1", Resource: "services"},
	{Version: "v1", Resource: "pods"},
	{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
	{Group: "cilium.io", Version: "v2", Resource: "ciliumendpoints"},
}

func newAgent(t *testing.T, cluster *kube.Cluster) *agent {
	t.Helper()
	config := rest.AnonymousClientConfig(cluster.REST)
	config.BearerToken = strings.TrimSpace(cluster.Kubectl("--namespace", "kube-system", "create", "token", "cilium"))
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &agent{client: client}
}

// list asks for all that it wants, logs what was refused as client-go does, and
// says how often that was so.
func (a *agent) list(ctx context.Context) (refused int) {
	for _, resource := range wants {
		_, err := a.client.Resource(resource).List(ctx, metav1.ListOptions{})
		if err == nil || !strings.Contains(err.Error(), "forbidden") { // Cilium's own kinds are not installed here
			continue
		}
		refused++
		fmt.Fprintf(&a.log, "time=%q level=error msg=k8sError error=%q subsys=k8s\n", time.Now().UTC().Format(time.RFC3339), "Failed to watch: failed to list: "+err.Error())
	}
	return refused
}

// TestDeletedClusterRole is the second incident up to its root: a delete by label
// on a real API server, which takes Cilium's ClusterRole and its binding.
func TestDeletedClusterRole(t *testing.T) {
	cluster := kube.Start(t)
	cluster.Apply(releasesYAML)
	cluster.Kubectl("--namespace", "kube-system", "patch", "daemonset", "cilium", "--subresource=status", "--type=merge", "-p",
		`{"status":{"desiredNumberScheduled":1,"currentNumberScheduled":1,"numberMisscheduled":0,"numberReady":1}}`)
	cluster.Kubectl("--namespace", "kube-system", "patch", "pod", "cilium-8vk2p", "--subresource=status", "--type=merge", "-p",
		`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}],"containerStatuses":[{"name":"cilium-agent","ready":true,"restartCount":0,"image":"","imageID":"","state":{"running":{}}}]}}`)
	cilium := newAgent(t, cluster)
	api := reachAPI(t, cluster.Kubeconfig)
	examine := func(t *testing.T) doctor.Report {
		t.Helper()
		b, err := collect.Collect(t.Context(), collect.Config{API: api, Samples: 2, Interval: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		b.Records = append(b.Records, evidence.Record{
			Path: "logs/n1/agent.log", Kind: evidence.Log, Node: "n1", Pod: "kube-system/cilium-8vk2p", Container: "cilium-agent",
			Command: "kubectl logs -n kube-system cilium-8vk2p", Time: time.Now(), Content: []byte(cilium.log.String()),
		})
		return doctor.Examine(facts.Read(b), checks.All())
	}
	until := func(t *testing.T, refused int) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); cilium.list(t.Context()) != refused; {
			if time.Now().After(deadline) {
				t.Fatalf("it is never so that %d of %d requests are refused:\n%s", refused, len(wants), cilium.log.String())
			}
			time.Sleep(100 * time.Millisecond)
		}
	}

	t.Run("with its role an agent is not refused anything, and nothing is found of it", func(t *testing.T) {
		until(t, 0)
		cilium.log.Reset()
		if r := examine(t); mentions(r, "rbac-missing") || mentions(r, "component-forbidden") || worst(r) == doctor.Critical {
			t.Error(doctortest.Text(r))
		}
	})

	cluster.Kubectl("delete", "clusterrole,clusterrolebinding", "-l", "app.kubernetes.io/managed-by=Helm")
	until(t, len(wants))
	var remedy string
	t.Run("after the delete by label the missing role is the root, and what the agent logs stands below", func(t *testing.T) {
		r := examine(t)
		if len(r.Causes) == 0 {
			t.Fatal("nothing is found")
		}
		root := r.Causes[0]
		if root.Check != "rbac-missing" || root.Subject != "ServiceAccount kube-system/cilium" || root.Severity != doctor.Critical || root.Certainty != doctor.Confirmed ||
			!strings.Contains(root.Title, "ClusterRole cilium and ClusterRoleBinding cilium do not exist") {
			t.Fatal(doctortest.Text(r))
		}
		if !has(root, "component-forbidden", root.Subject) {
			t.Errorf("what it logs is no consequence\n%s", doctortest.Text(r))
		}
		var kinds []string
		for _, e := range root.Evidence {
			kinds = append(kinds, e.Path)
		}
		for _, want := range []string{"clusterroles.", "clusterrolebindings.", "access.", "agent.log"} {
			if !strings.Contains(strings.Join(kinds, " "), want) {
				t.Errorf("the evidence is of %q, and none of it of %s", kinds, want)
			}
		}
		remedy = root.Remedy[0].Commands[0]
	})

	t.Run("what the remedy says to paste is enough, and nothing is found any more", func(t *testing.T) {
		manifest, is := strings.CutPrefix(remedy, "kubectl apply --filename - <<'EOF'\n")
		if !is {
			t.Fatalf("it is no manifest: %s", remedy)
		}
		cluster.Apply(strings.TrimSuffix(manifest, "EOF"))
		until(t, 0)
		if r := examine(t); mentions(r, "rbac-missing") || mentions(r, "component-forbidden") {
			t.Error(doctortest.Text(r))
		}
	})
}

// mentions says whether a check found anything.
func mentions(r doctor.Report, check string) bool {
	var within func([]*doctor.Node) bool
	within = func(nodes []*doctor.Node) bool {
		return slices.ContainsFunc(nodes, func(n *doctor.Node) bool { return n.Check == check || within(n.Consequences) })
	}
	return within(r.Causes) || within(r.Notes)
}

func reachAPI(t *testing.T, kubeconfig string) *apiserver.Client {
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
