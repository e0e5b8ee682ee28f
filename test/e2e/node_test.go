// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/lab/traffic"
	"github.com/fairlead-io/fairlead/test/rig"
)

// The names of the node with the agent, and of the other one.
const (
	nodeName  = "n1"
	otherName = "n2"
)

// The nodes' own addresses.
var (
	nodeAddrs  = rig.ParsePair("192.0.2.1", "2001:db8::1")
	otherAddrs = rig.ParsePair("192.0.2.2", "2001:db8::2")
)

// node is a machine with an agent, and another one at the end of a cable.
type node struct {
	*rig.Agent
	other *lab.NetNS

	pods int // made so far, here and on the other node
	vips int // given out so far
}

// newNode makes a node on which no agent runs yet.
func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{
		Agent: rig.NewAgent(t, nodeName, lab.NewNetNS(t, nodeName), t.TempDir()),
		other: lab.NewNetNS(t, otherName),
	}
	lab.Veth(t, end(n.NS, nodeAddrs), end(n.other, otherAddrs))
	for _, way := range []struct {
		from *lab.NetNS
		to   string
		via  netip.Addr
	}{
		{n.NS, "10.0.2.0/24", otherAddrs.V4}, {n.NS, "fd00:2::/64", otherAddrs.V6},
		{n.other, "10.0.1.0/24", nodeAddrs.V4}, {n.other, "fd00:1::/64", nodeAddrs.V6},
	} {
		way.from.Route(t, netip.MustParsePrefix(way.to), way.via, "eth0")
	}
	return n
}

func end(ns *lab.NetNS, addrs rig.Pair) lab.End {
	return lab.End{NetNS: ns, Link: "eth0", Addrs: []string{addrs.V4.String() + "/24", addrs.V6.String() + "/64"}}
}

// startNode makes a node with an agent that has read the manifests.
func startNode(t *testing.T, flags ...string) *node {
	t.Helper()
	n := newNode(t)
	n.Start(t, flags...)
	return n
}

// pod makes a pod of this node.
func (n *node) pod(t *testing.T, name string) (lab.Place, rig.Pair) {
	t.Helper()
	ns, addrs := n.newPod(t, n.NS, 1, name)
	return lab.Place{NetNS: ns, Cgroup: n.Cgroup}, addrs
}

// newPod makes a pod of the numbered machine.
func (n *node) newPod(t *testing.T, machine *lab.NetNS, number int, name string) (*lab.NetNS, rig.Pair) {
	t.Helper()
	n.pods++
	addrs := rig.ParsePair(fmt.Sprintf("10.0.%d.%d", number, n.pods), fmt.Sprintf("fd00:%d::%x", number, n.pods))
	return machine.Pod(t, fmt.Sprintf("%.9s-%d", name, n.pods), addrs.List()...), addrs
}

// client starts a client in a pod of its own.
func (n *node) client(t *testing.T, name string) (*traffic.Client, rig.Pair) {
	t.Helper()
	place, addrs := n.pod(t, name)
	return traffic.StartClient(t, place), addrs
}

// host starts a client in the node's own namespace.
func (n *node) host(t *testing.T) *traffic.Client {
	t.Helper()
	return traffic.StartClient(t, n.Place())
}

// vip gives out Service addresses that no other Service of the node has.
func (n *node) vip() rig.Pair { return n.addresses("10.96.%d.%d", "fd00:96::%x:%x") }

// externalAddress gives out addresses such as a load balancer has.
func (n *node) externalAddress() rig.Pair { return n.addresses("198.18.%d.%d", "fd00:198::%x:%x") }

func (n *node) addresses(v4, v6 string) rig.Pair {
	n.vips++
	return rig.ParsePair(fmt.Sprintf(v4, n.vips>>8, n.vips&0xff), fmt.Sprintf(v6, n.vips>>8, n.vips&0xff))
}

// backend makes one on this node.
func (n *node) backend(t *testing.T, name string) *rig.Backend {
	t.Helper()
	ns, addrs := n.newPod(t, n.NS, 1, name)
	return rig.NewBackend(t, ns, name, nodeName, addrs)
}

// backends makes several on this node.
func (n *node) backends(t *testing.T, names ...string) []*rig.Backend {
	t.Helper()
	var all []*rig.Backend
	for _, name := range names {
		all = append(all, n.backend(t, name))
	}
	return all
}

// remote makes a backend on the other node.
func (n *node) remote(t *testing.T, name string) *rig.Backend {
	t.Helper()
	ns, addrs := n.newPod(t, n.other, 2, name)
	return rig.NewBackend(t, ns, name, otherName, addrs)
}
