// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/lab/traffic"
	"github.com/fairlead-io/fairlead/test/rig"
)

// shape is how the nodes of a network connect pods.
type shape string

const (
	// routed: a cable and a route for each pod, routes between the nodes.
	routed shape = "pods behind routes"
	// bridged: the pods of a node on a bridge, routes between the nodes.
	bridged shape = "pods behind a bridge"
	// tunnelled: as bridged, and a VXLAN device between the nodes.
	tunnelled shape = "pods behind a tunnel"
)

var shapes = []shape{routed, bridged, tunnelled}

// uplink is a node's device to the router and to the other nodes; tunnel is
// that to the other nodes' pods, where there is one.
const (
	uplink = "eth0"
	tunnel = "flannel.1"
	bridge = "cni0"
)

// tunnelMTU is what fits through the tunnel; its pods know.
const tunnelMTU = 1450

// Where the machines are. The last client address has no machine, but its
// network leads to the client.
var (
	clientAddrs = rig.ParsePair("203.0.113.10", "2001:db8:c::10")
	otherAddrs  = rig.ParsePair("203.0.113.11", "2001:db8:c::11") // the client's as well
	routerAddrs = rig.ParsePair("192.0.2.254", "2001:db8::fe")
	loopback    = rig.ParsePair("127.0.0.1", "::1")
)

// network is a client, a router, and nodes.
type network struct {
	shape
	client, router *lab.NetNS
	nodes          []*node // n1 has the first place
	manifests      string

	pods, vips int    // given out so far
	sources    uint16 // ports of the client's that were used by name
}

// node is a machine with an agent of its own.
type node struct {
	*rig.Agent
	network *network
	number  int
	addrs   rig.Pair
	links   map[*lab.NetNS]string // a pod's device on the node
}

// newNetwork makes a network; no agent runs yet.
func newNetwork(t *testing.T, s shape, nodes int) *network {
	t.Helper()
	net := &network{shape: s, client: lab.NewNetNS(t, "client"), router: lab.NewNetNS(t, "router"), manifests: t.TempDir()}
	net.connectClient(t)
	var ports []string
	for number := range nodes {
		n := net.newNode(t, number+1)
		ports = append(ports, n.Name)
	}
	net.router.Bridge(t, lab.End{NetNS: net.router, Link: "lan", Addrs: routerAddrs.OnLink()}, ports...)
	// Service addresses lead to the first node, until a test says otherwise.
	for _, prefix := range []string{"10.96.0.0/16", "198.18.0.0/16", "fd00:96::/32", "fd00:198::/32"} {
		net.lead(t, netip.MustParsePrefix(prefix), net.nodes[0])
	}
	for _, n := range net.nodes {
		n.connect(t)
	}
	return net
}

// start makes a network on all of whose nodes an agent runs.
func start(t *testing.T, s shape, nodes int, flags ...string) *network {
	t.Helper()
	net := newNetwork(t, s, nodes)
	for _, n := range net.nodes {
		n.start(t, flags...)
	}
	return net
}

// start starts an agent that knows which of the node's addresses is the first.
func (n *node) start(t *testing.T, flags ...string) {
	t.Helper()
	n.Start(t, append([]string{"--node-ip", n.addrs.V4.String(), "--node-ip", n.addrs.V6.String()}, flags...)...)
	n.served(t, uplink, "outside")
	if n.network.shape == tunnelled && len(n.network.nodes) > 1 {
		n.served(t, tunnel, "outside")
	}
}

func (net *network) connectClient(t *testing.T) {
	t.Helper()
	lab.Veth(t,
		lab.End{NetNS: net.client, Link: "eth0", Addrs: []string{
			// The kernel prefers the first of IPv4, and the last of IPv6.
			clientAddrs.V4.String() + "/24", otherAddrs.V6.String() + "/64",
			otherAddrs.V4.String() + "/24", clientAddrs.V6.String() + "/64",
		}},
		lab.End{NetNS: net.router, Link: "client", Addrs: []string{"203.0.113.1/24", "2001:db8:c::1/64"}})
	rig.Lead(t, net.client, "eth0", rig.ParsePair("203.0.113.1", "2001:db8:c::1"))
	net.router.Forward(t)
	talkative(t, net.router)
	talkative(t, net.client)
}

// talkative lets a machine send as many errors as there are.
func talkative(t *testing.T, ns *lab.NetNS) {
	t.Helper()
	ns.Sysctl(t, "net.ipv4.icmp_ratelimit", "0")
	ns.Sysctl(t, "net.ipv6.icmp.ratelimit", "0")
}

// newNode makes a node at the end of a cable from the router.
func (net *network) newNode(t *testing.T, number int) *node {
	t.Helper()
	name := fmt.Sprintf("n%d", number)
	n := &node{
		Agent: rig.NewAgent(t, name, lab.NewNetNS(t, name), net.manifests), network: net, number: number, links: map[*lab.NetNS]string{},
		addrs: rig.ParsePair(fmt.Sprintf("192.0.2.%d", number), fmt.Sprintf("2001:db8::%d", number)),
	}
	net.nodes = append(net.nodes, n)
	lab.Veth(t, n.uplink(), lab.End{NetNS: net.router, Link: name})
	n.NS.Forward(t)
	talkative(t, n.NS)
	return n
}

func (n *node) uplink() lab.End {
	return lab.End{NetNS: n.NS, Link: uplink, Addrs: n.addrs.OnLink()}
}

// connect gives a node its routes, and what its pods need.
func (n *node) connect(t *testing.T) {
	t.Helper()
	n.defaultRoutes(t)
	if n.network.shape != routed {
		n.NS.Bridge(t, lab.End{NetNS: n.NS, Link: bridge, Addrs: []string{n.pod4(1).String() + "/24", n.pod6(1).String() + "/64"}})
	}
	if n.network.shape == tunnelled {
		n.NS.VXLAN(t, lab.End{NetNS: n.NS, Link: tunnel, Addrs: []string{n.pod4(0).String() + "/32", n.pod6(0).String() + "/128"}}, 1, n.addrs.V4, uplink)
	}
	for _, other := range n.network.nodes {
		if other != n && n.network.shape != tunnelled {
			n.routesTo(t, other, other.addrs, uplink)
		}
		if other.number < n.number && n.network.shape == tunnelled {
			n.tunnelTo(t, other)
			other.tunnelTo(t, n)
		}
	}
}

func (n *node) defaultRoutes(t *testing.T) {
	t.Helper()
	rig.Lead(t, n.NS, uplink, routerAddrs)
}

// tunnelTo does what the daemon of an overlay does for another node.
func (n *node) tunnelTo(t *testing.T, other *node) {
	t.Helper()
	ends := rig.Pair{V4: other.pod4(0), V6: other.pod6(0)}
	n.NS.Beyond(t, tunnel, other.NS.MAC(t, tunnel), other.addrs.V4, ends.List()...)
	n.routesTo(t, other, ends, tunnel)
}

func (n *node) routesTo(t *testing.T, other *node, via rig.Pair, link string) {
	t.Helper()
	rig.Lead(t, n.NS, link, via, netip.PrefixFrom(other.pod4(0), 24), netip.PrefixFrom(other.pod6(0), 64))
}

// pod4 and pod6 are addresses of the node's range for pods.
func (n *node) pod4(i int) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf("10.244.%d.%d", n.number, i))
}

func (n *node) pod6(i int) netip.Addr {
	if i == 0 {
		return netip.MustParseAddr(fmt.Sprintf("fd00:244:%d::", n.number))
	}
	return netip.MustParseAddr(fmt.Sprintf("fd00:244:%d::%x", n.number, i))
}

// facing is the address with which the node's own packets go to pods of
// other nodes.
func (n *node) facing() rig.Pair {
	if n.network.shape == tunnelled {
		return rig.Pair{V4: n.pod4(0), V6: n.pod6(0)}
	}
	return n.addrs
}

// pod makes a pod of the node.
func (n *node) pod(t *testing.T, name string) (*lab.NetNS, rig.Pair) {
	t.Helper()
	net := n.network
	net.pods++
	link := fmt.Sprintf("pod-%.6s-%d", name, net.pods)
	addrs := rig.Pair{V4: n.pod4(net.pods + 1), V6: n.pod6(net.pods + 1)}
	ns := n.attach(t, link, addrs)
	n.links[ns] = link
	return ns, addrs
}

func (n *node) attach(t *testing.T, link string, addrs rig.Pair) *lab.NetNS {
	t.Helper()
	if n.network.shape == routed {
		return n.NS.Pod(t, link, addrs.List()...)
	}
	pod := n.NS.BridgedPod(t, link, bridge, []netip.Addr{n.pod4(1), n.pod6(1)}, netip.PrefixFrom(addrs.V4, 24), netip.PrefixFrom(addrs.V6, 64))
	if n.network.shape == tunnelled {
		n.NS.MTU(t, link, tunnelMTU)
		pod.MTU(t, "eth0", tunnelMTU)
	}
	return pod
}

// backend makes a pod of the node that serves.
func (n *node) backend(t *testing.T, name string) *rig.Backend {
	t.Helper()
	ns, addrs := n.pod(t, name)
	return rig.NewBackend(t, ns, name, n.Name, addrs)
}

// silent makes a pod of the node in which nobody listens.
func (n *node) silent(t *testing.T, name string) *rig.Backend {
	t.Helper()
	ns, addrs := n.pod(t, name)
	return &rig.Backend{Name: name, Node: n.Name, Addrs: addrs, NS: ns}
}

// lead lets the router send what is for the prefix to a node.
func (net *network) lead(t *testing.T, prefix netip.Prefix, n *node) {
	t.Helper()
	rig.Lead(t, net.router, "lan", n.addrs, prefix)
}

// outside starts a client that is none of the cluster's.
func (net *network) outside(t *testing.T) *traffic.Client {
	t.Helper()
	return traffic.StartClient(t, lab.Place{NetNS: net.client})
}

// clusterIP gives out Service addresses that no other Service has, and
// external ones such as a load balancer announces.
func (net *network) clusterIP() rig.Pair { return net.addresses("10.96.%d.%d", "fd00:96::%x:%x") }

func (net *network) external() rig.Pair { return net.addresses("198.18.%d.%d", "fd00:198::%x:%x") }

func (net *network) addresses(v4, v6 string) rig.Pair {
	net.vips++
	return rig.ParsePair(fmt.Sprintf(v4, net.vips>>8, net.vips&0xff), fmt.Sprintf(v6, net.vips>>8, net.vips&0xff))
}

// serve makes a Service what it is now said to be, on every node.
func (net *network) serve(t *testing.T, s rig.Service, endpoints ...rig.Endpoint) {
	t.Helper()
	net.nodes[0].Write(t, s.Name+".yaml", s.YAML(endpoints))
	net.settle(t)
}

func (net *network) settle(t *testing.T) {
	t.Helper()
	for _, n := range net.nodes {
		if n.Process != nil {
			n.Settle(t)
		}
	}
}
