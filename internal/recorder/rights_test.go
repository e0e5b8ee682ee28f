// SPDX-License-Identifier: Apache-2.0

package recorder

import (
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/test/kube"
)

// bindYAML gives the roles of deploy/recorder.yaml to the limited user.
const bindYAML = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: limited-recorder}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: fairlead-recorder}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ` + kube.Limited + `}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: limited-recorder, namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: fairlead-recorder}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ` + kube.Limited + `}]
`

const ciliumYAML = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ciliumnodes.cilium.io}
spec:
  group: cilium.io
  scope: Cluster
  names: {kind: CiliumNode, plural: ciliumnodes, singular: ciliumnode}
  versions:
  - {name: v2, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

// usual are the kinds that every API server has, of those recorded by default.
var usual = []string{
	"services", "endpointslices.discovery.k8s.io", "nodes", "leases.coordination.k8s.io in kube-system",
	"clusterroles.rbac.authorization.k8s.io", "clusterrolebindings.rbac.authorization.k8s.io",
	"roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io", "networkpolicies.networking.k8s.io",
}

// TestRights records as a user who may do what deploy/recorder.yaml allows.
func TestRights(t *testing.T) {
	cluster := kube.Start(t)
	cluster.Kubectl("apply", "-f", "../../deploy/recorder.yaml")
	cluster.Apply(bindYAML)
	limited, err := clientcmd.BuildConfigFromFlags("", cluster.LimitedKubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	limited.QPS = -1

	r := record(t, cluster.APIServer, Config{REST: limited})
	t.Run("the manifest's rights are enough for all kinds that are recorded by default", func(t *testing.T) {
		r.listed(t, usual...)
		if n := r.log.count("cannot follow"); n > 0 {
			t.Errorf("%d troubles", n)
		}
	})
	t.Run("a network's kind is recorded once there is one, and not when it is gone", func(t *testing.T) {
		cluster.Apply(ciliumYAML)
		r.listed(t, append(usual, "ciliumnodes.cilium.io")...)
		cluster.Apply("{apiVersion: cilium.io/v2, kind: CiliumNode, metadata: {name: n1}, spec: {ipam: {}}}")
		if e := r.await(t, journal.Filter{Kinds: []string{"CiliumNode"}}); e.Type != journal.Added || e.Kind.Group != "cilium.io" {
			t.Errorf("%+v", e)
		}
		cluster.Kubectl("delete", "crd", "ciliumnodes.cilium.io")
		r.await(t, journal.Filter{Kinds: []string{"CiliumNode"}, Types: []journal.Type{journal.Deleted, journal.Absent}})
		eventually(t, "the end of the kind", func() error {
			for _, k := range r.Status().Kinds {
				if k.Name == "ciliumnodes.cilium.io" {
					return errGone
				}
			}
			return nil
		})
		if r.log.count("has a kind no more") != 1 || r.log.count(`following a kind again" kind=ciliumnodes`) != 0 {
			t.Errorf("it says %q", r.log.lines.all())
		}
	})
	r.stop(t)

	t.Run("a kind that is forbidden is one line and a gap, and the others are recorded", func(t *testing.T) {
		cluster.Kubectl("patch", "clusterrole", "fairlead-recorder", "--type=json", "-p", `[{"op":"replace","path":"/rules/0/resources","value":["services"]}]`)
		r := record(t, cluster.APIServer, Config{REST: limited})
		r.listed(t, append([]string{usual[0], usual[1]}, usual[3:]...)...)
		eventually(t, "the line", func() error {
			if r.log.count("cannot follow") == 0 {
				return errGone
			}
			return nil
		})
		r.stop(t)
		if n := r.log.count("kind=nodes"); n != 1 {
			t.Errorf("%d lines tell of it", n)
		}
		gaps := r.gaps(t, "nodes")
		if len(gaps) != 1 || !strings.HasPrefix(gaps[0].Reason, "forbidden (list nodes") {
			t.Errorf("%+v", gaps)
		}
		if gaps := r.gaps(t, "services"); len(gaps) > 0 {
			t.Errorf("%+v", gaps)
		}
	})
	t.Run("a kind that is asked for and not there is one line that says so, and the end", func(t *testing.T) {
		r := record(t, cluster.APIServer, Config{REST: limited, Kinds: []string{"flyingpigs"}})
		err := <-r.ended
		if err == nil || !strings.Contains(err.Error(), "--kind flyingpigs") || strings.Contains(err.Error(), "\n") {
			t.Error(err)
		}
	})
}
