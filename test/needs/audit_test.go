// SPDX-License-Identifier: Apache-2.0

package needs

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/internal/audit"
	"github.com/fairlead-io/fairlead/internal/rbac"
	"github.com/fairlead-io/fairlead/internal/rights"
	"github.com/fairlead-io/fairlead/internal/rights/source"
	"github.com/fairlead-io/fairlead/test/kube"
	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/rig"
)

// The node on which all of it runs.
const (
	nodeName = "n1"
	nodeAddr = "192.0.2.1"
	guardURL = "https://" + nodeAddr + ":9443/validate"
)

// foreign are the kinds of networks that recorder and doctor look at where there
// are any.
var foreign = map[string]string{
	"ciliumnetworkpolicies.cilium.io": "CiliumNetworkPolicy", "ciliumclusterwidenetworkpolicies.cilium.io": "CiliumClusterwideNetworkPolicy",
	"ciliumendpoints.cilium.io": "CiliumEndpoint", "ciliumidentities.cilium.io": "CiliumIdentity", "ciliumnodes.cilium.io": "CiliumNode",
	"networkpolicies.crd.projectcalico.org": "NetworkPolicy", "globalnetworkpolicies.crd.projectcalico.org": "GlobalNetworkPolicy",
	"ippools.crd.projectcalico.org": "IPPool", "felixconfigurations.crd.projectcalico.org": "FelixConfiguration", "bgpconfigurations.crd.projectcalico.org": "BGPConfiguration",
	"clusternetworkpolicies.crd.antrea.io": "ClusterNetworkPolicy", "networkpolicies.crd.antrea.io": "NetworkPolicy",
}

func definitions() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(foreign)) {
		resource, group, _ := strings.Cut(name, ".")
		version := "v1"
		switch group {
		case "cilium.io":
			version = "v2"
		case "crd.antrea.io":
			version = "v1beta1"
		}
		all = append(all, fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %s, annotations: {api-approved.kubernetes.io: unapproved}}
spec:
  group: %s
  scope: Cluster
  names: {plural: %s, kind: %s}
  versions: [{name: %s, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`, name, group, resource, foreign[name], version))
	}
	return strings.Join(all, "---\n")
}

// clusterYAML is a node with a pod of Cilium's, as a doctor asks after it, and
// one that is traced.
const clusterYAML = `{apiVersion: v1, kind: Node, metadata: {name: ` + nodeName + `}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: cilium, namespace: kube-system}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: default}}
---
apiVersion: v1
kind: Pod
metadata: {name: cilium-abcde, namespace: kube-system, labels: {k8s-app: cilium}}
spec: {nodeName: ` + nodeName + `, serviceAccountName: cilium, containers: [{name: cilium-agent, image: cilium}]}
---
{apiVersion: v1, kind: Pod, metadata: {name: client, namespace: default}, spec: {containers: [{name: c, image: none}]}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: unused, labels: {fairlead.io/guard: "on"}}, rules: []}
`

// parts are those of Fairlead that publish what they need.
var parts = []string{"fairlead", "fairlead-recorder", "fairlead-guard", "fairlead-doctor"}

// TestUse has each of Fairlead's own parts do its work as its own service
// account, and compares what the server noted with what is published.
func TestUse(t *testing.T) {
	ns, outside := lab.NewNetNS(t, nodeName), lab.NewNetNS(t, "outside")
	lab.Veth(t, lab.End{NetNS: ns, Link: "eth0", Addrs: []string{nodeAddr + "/24", "2001:db8::1/64"}},
		lab.End{NetNS: outside, Link: "eth0", Addrs: []string{"192.0.2.9/24", "2001:db8::9/64"}})
	cluster := kube.StartAuditedAt(t, ns, netip.MustParseAddr(nodeAddr))
	n := &node{cluster: cluster, place: lab.Place{NetNS: ns}, Agent: rig.NewAgent(t, nodeName, ns, t.TempDir())}
	for _, name := range []string{"rbac", "recorder", "doctor"} {
		cluster.Apply(manifest(t, name))
	}
	cluster.Apply(definitions())
	for name := range foreign {
		cluster.Kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd/"+name)
	}
	cluster.Apply(clusterYAML)
	cluster.Kubectl("-n", "kube-system", "patch", "pod", "cilium-abcde", "--subresource=status", "-p",
		`{"status":{"phase":"Running","containerStatuses":[{"name":"cilium-agent","ready":true,"restartCount":1,"image":"","imageID":"","state":{"running":{}}}]}}`)
	cluster.Kubectl("patch", "pod", "client", "--subresource=status", "-p", `{"status":{"podIP":"10.0.9.9","podIPs":[{"ip":"10.0.9.9"}]}}`)

	n.guard(t)
	n.agent(t)
	n.record(t)
	n.doctor(t)

	live, err := source.Live(t.Context(), cluster.Client)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range parts {
		component := published(t, id)
		user := rbac.ServiceAccount(namespace, component.Account)
		usage := n.used(t, user)
		t.Run(id+" is refused nothing", func(t *testing.T) {
			if len(usage.Uses()) == 0 {
				t.Fatal("it asked for nothing")
			}
			for _, u := range usage.Uses() {
				if u.Refused > 0 {
					t.Errorf("%s", u.Right)
				}
			}
		})
		// What is published, beside what everyone may do.
		objects := asObjects(component)
		for _, r := range live.ClusterRoles {
			if strings.HasPrefix(r.Name, "system:") {
				objects.ClusterRoles = append(objects.ClusterRoles, r)
			}
		}
		for _, b := range live.ClusterRoleBindings {
			if strings.HasPrefix(b.Name, "system:") {
				objects.ClusterRoleBindings = append(objects.ClusterRoleBindings, b)
			}
		}
		got := rights.Compare(rights.Case{Access: rights.NewAccess(objects.Policy(), user), Uses: usage.Uses(), Hidden: usage.Hidden(user, nil)})
		t.Run(id+" uses nothing that is not published", func(t *testing.T) {
			for _, l := range got.TooLittle {
				t.Errorf("%s %s %s: %s", strings.Join(l.Verbs, ","), l.Target(), l.Namespace, strings.Join(l.Why, "; "))
			}
		})
		t.Run(id+" uses all that is published", func(t *testing.T) {
			for _, x := range got.TooMuch {
				t.Errorf("%s %s is not used; %s", strings.Join(x.Verbs, ","), x.Target(), x.Hidden)
			}
		})
	}
}

// node is where all of Fairlead's parts run beside an API server.
type node struct {
	*rig.Agent
	cluster *kube.Cluster
	place   lab.Place
}

// used is what the server noted of a user.
func (n *node) used(t *testing.T, user rbac.User) *rights.Usage {
	t.Helper()
	log, err := audit.Open(t.Context(), n.cluster.AuditLog)
	if err != nil {
		t.Fatal(err)
	}
	usage := rights.NewUsage(user.Name)
	for r, err := range log.Records(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		usage.Add(r)
	}
	if losses := log.Losses(); losses.Any() {
		t.Fatalf("%+v", losses)
	}
	return usage
}

// agent has an agent serve a Service, and trace a pod's way to it.
func (n *node) agent(t *testing.T) {
	t.Helper()
	n.Launch(t, "--kubeconfig", n.cluster.AccountKubeconfig(namespace, "fairlead"))
	n.Ready(t)
	n.cluster.Apply(rig.Service{Name: "web", VIP: rig.ParsePair("10.96.0.77", "fd00:10:96::77"), Spec: "ipFamilyPolicy: RequireDualStack"}.YAML(nil))
	n.Settle(t)
	if out := n.Run(t, 0, "trace", "--from", "default/client", "--to", "10.96.0.1:443"); !strings.Contains(out, "10.0.9.9") {
		t.Errorf("trace of a pod:\n%s", out)
	}
}

// record has a recorder record for as long as it takes to list and watch.
func (n *node) record(t *testing.T) {
	t.Helper()
	recorder := n.place.Start(t, rig.Program(), "record", "--kubeconfig", n.cluster.AccountKubeconfig(namespace, "fairlead-recorder"),
		"--journal", filepath.Join(t.TempDir(), "journal.db"), "--for", "15s")
	if err := recorder.Wait(); err != nil {
		t.Fatalf("record: %v\n%s", err, recorder.Stderr())
	}
}

// doctor has a doctor look at all that it can. Findings are welcome.
func (n *node) doctor(t *testing.T) {
	t.Helper()
	doctor := n.place.Start(t, rig.Program(), "doctor", "--kubeconfig", n.cluster.AccountKubeconfig(namespace, "fairlead-doctor"),
		"--cilium", "--probe=false", "--samples=1", "-o", "json")
	_ = doctor.Wait()
	if !strings.Contains(doctor.Stdout(), `"schemaVersion"`) {
		t.Fatalf("doctor: %s", doctor.Stderr())
	}
}

// guard has a guard judge a delete.
func (n *node) guard(t *testing.T) {
	t.Helper()
	n.cluster.Apply(n.place.Run(t, rig.Program(), "guard", "manifests", "--url", guardURL))
	dir := t.TempDir()
	args := []string{"guard", "--kubeconfig", n.cluster.AccountKubeconfig(namespace, "fairlead-guard"), "--listen", nodeAddr + ":9443"}
	for _, part := range []string{"crt", "key"} {
		text, err := base64.StdEncoding.DecodeString(n.cluster.Kubectl("-n", namespace, "get", "secret", "fairlead-guard", "-o", `jsonpath={.data.tls\.`+part+`}`))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, part), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args = append(args, "--verbose", "--tls-cert", filepath.Join(dir, "crt"), "--tls-key", filepath.Join(dir, "key"))
	guard := n.place.Start(t, rig.Program(), args...)
	rig.Eventually(t, func() error {
		n.cluster.Kubectl("delete", "clusterrole", "unused", "--dry-run=server")
		if !strings.Contains(guard.Stderr()+guard.Stdout(), "unused") {
			return fmt.Errorf("it was not asked:\n%s%s", guard.Stdout(), guard.Stderr())
		}
		return nil
	})
}
