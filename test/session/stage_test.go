// SPDX-License-Identifier: Apache-2.0

package session

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/test/kube"
	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/rig"
)

// Where the machines are. Nodes and control plane share a link; the client
// stands behind the router, which leads the load balancer's addresses to the
// first node, as one would that was told so.
var (
	client       = rig.ParsePair("203.0.113.10", "2001:db8:c::10")
	clientRouter = rig.ParsePair("203.0.113.1", "2001:db8:c::1")
	router       = rig.ParsePair("192.0.2.254", "2001:db8::fe")
	controlPlane = rig.ParsePair("192.0.2.250", "2001:db8::fa")
	balanced     = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8:f::/64")}
)

const (
	podPort    = 8080
	podNetwork = "10.244.0.0/16"
)

// rbac is what users apply; binding gives the user of the agents that role.
const (
	rbac    = "../../deploy/rbac.yaml"
	binding = `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: agents},
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: fairlead},
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ` + kube.Limited + `}]}`
)

// stage is a cluster of two nodes, with what is around it.
type stage struct {
	router  *lab.NetNS
	cluster *kube.Cluster
	nodes   []*rig.Agent
	shells  map[string]*shell // by the name in their prompt
}

// newStage makes the machines, starts what runs on them, and opens a shell on
// each; the administrator's has the files.
func newStage(t *testing.T, files map[string]string) *stage {
	t.Helper()
	s := &stage{router: lab.NewNetNS(t, "router"), shells: map[string]*shell{}}
	outside := s.newClient(t)
	admin := s.newControlPlane(t)
	for number := 1; number <= 2; number++ {
		s.newNode(t, number)
	}
	s.connect(t)
	s.cluster = kube.StartAt(t, admin, controlPlane.V4)
	s.cluster.Kubectl("apply", "-f", rbac)
	s.cluster.Apply(binding)

	for i, n := range s.nodes {
		s.register(t, n.Name, nodeAddrs(i+1))
		n.Launch(t, "--kubeconfig", s.cluster.LimitedKubeconfig, "--cluster-cidr", podNetwork)
	}
	for i, n := range s.nodes {
		n.Ready(t)
		at := []string{"FAIRLEAD_SOCKET=" + n.Socket, "FAIRLEAD_PIN_PATH=" + n.Pins}
		s.shells[n.Name] = openShell(t, n.Place(), t.TempDir(), at...)
		s.newPods(t, n, i+1)
	}
	s.shells["client"] = openShell(t, lab.Place{NetNS: outside}, t.TempDir())
	s.shells["admin"] = openShell(t, lab.Place{NetNS: admin}, folderOf(t, files),
		"KUBECONFIG="+s.cluster.Kubeconfig, "KUBECACHEDIR="+t.TempDir(), "PATH="+filepath.Dir(s.cluster.Program("kubectl"))+":"+os.Getenv("PATH"))
	return s
}

func folderOf(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func (s *stage) newClient(t *testing.T) *lab.NetNS {
	t.Helper()
	ns := lab.NewNetNS(t, "client")
	lab.Veth(t,
		lab.End{NetNS: ns, Link: "eth0", Addrs: client.OnLink()},
		lab.End{NetNS: s.router, Link: "client", Addrs: clientRouter.OnLink()})
	rig.Lead(t, ns, "eth0", clientRouter)
	return ns
}

func (s *stage) newControlPlane(t *testing.T) *lab.NetNS {
	t.Helper()
	ns := lab.NewNetNS(t, "control-plane")
	lab.Veth(t, lab.End{NetNS: ns, Link: "eth0", Addrs: controlPlane.OnLink()}, lab.End{NetNS: s.router, Link: "control"})
	return ns
}

func (s *stage) newNode(t *testing.T, number int) {
	t.Helper()
	name := fmt.Sprint("node-", number)
	n := rig.NewAgent(t, name, lab.NewNetNS(t, name), "")
	lab.Veth(t, lab.End{NetNS: n.NS, Link: "eth0", Addrs: nodeAddrs(number).OnLink()}, lab.End{NetNS: s.router, Link: name})
	n.NS.Forward(t)
	s.nodes = append(s.nodes, n)
}

// connect puts the machines on one link, and gives them their routes.
func (s *stage) connect(t *testing.T) {
	t.Helper()
	s.router.Bridge(t, lab.End{NetNS: s.router, Link: "lan", Addrs: router.OnLink()}, "control", "node-1", "node-2")
	s.router.Forward(t)
	rig.Lead(t, s.router, "lan", nodeAddrs(1), balanced...)
	for i, n := range s.nodes {
		rig.Lead(t, n.NS, "eth0", router)
		other := 2 - i
		rig.Lead(t, n.NS, "eth0", nodeAddrs(other), podRange(other)...)
	}
}

// newPods makes a pod of the node that serves, and on the first node one whose
// shell is on the page.
func (s *stage) newPods(t *testing.T, n *rig.Agent, number int) {
	t.Helper()
	name := fmt.Sprint("web-", number)
	addrs := podAddrs(number, 2)
	servePeer(t, n.NS.Pod(t, name, addrs.List()...), fmt.Sprintf("%s on %s", name, n.Name), addrs)
	if number == 1 {
		ns := n.NS.Pod(t, "shell", podAddrs(number, 3).List()...)
		s.shells["pod"] = openShell(t, lab.Place{NetNS: ns, Cgroup: n.Cgroup}, t.TempDir())
	}
}

// servePeer answers over HTTP who answers, and whom it sees.
func servePeer(t *testing.T, ns *lab.NetNS, name string, addrs rig.Pair) {
	t.Helper()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer := netip.MustParseAddrPort(r.RemoteAddr)
		fmt.Fprintf(w, "%s, to %s\n", name, peer.Addr())
	})}
	t.Cleanup(func() { server.Close() })
	for _, addr := range addrs.List() {
		var listener net.Listener
		var err error
		ns.Do(func() { listener, err = net.Listen("tcp", netip.AddrPortFrom(addr, podPort).String()) })
		if err != nil {
			t.Fatal(err)
		}
		go server.Serve(listener)
	}
}

// settle waits until the agents have done what the API server says.
func (s *stage) settle(t *testing.T) {
	t.Helper()
	for _, n := range s.nodes {
		n.Settle(t)
	}
}

func nodeAddrs(number int) rig.Pair {
	return rig.ParsePair(fmt.Sprint("192.0.2.", number), fmt.Sprint("2001:db8::", number))
}

func podAddrs(node, pod int) rig.Pair {
	return rig.ParsePair(fmt.Sprintf("10.244.%d.%d", node, pod), fmt.Sprintf("fd00:244:%d::%d", node, pod))
}

func podRange(node int) []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.244.%d.0/24", node)), netip.MustParsePrefix(fmt.Sprintf("fd00:244:%d::/64", node))}
}

// register makes the object that a kubelet would.
func (s *stage) register(t *testing.T, name string, addrs rig.Pair) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, addr := range addrs.List() {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: addr.String()})
	}
	if _, err := s.cluster.Client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
