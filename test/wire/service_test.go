// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/test/lab/traffic"
	"github.com/fairlead-io/fairlead/test/rig"
)

var ways = []rig.Way{
	{Name: "TCP", Network: traffic.TCP},
	{Name: "TCP over IPv6", Network: traffic.TCP, V6: true},
	{Name: "UDP", Network: traffic.UDP},
	{Name: "UDP over IPv6", Network: traffic.UDP, V6: true},
}

// shortly is long enough for an answer within the lab, for clients that expect
// none.
const shortly = 150 * time.Millisecond

// The refusals of the packet path, as a client knows them.
const (
	rejected = "ECONNREFUSED" // a reset, or ICMP: port unreachable
	silence  = "ETIMEDOUT"
)

// firstNodePort is the first that Services of these tests get.
const firstNodePort = 30001

// full is a Service with every kind of address.
func (net *network) full(name, spec string) fullService {
	s := fullService{vip: net.external(), externalIP: net.external()}
	s.Service = rig.Service{
		Name: name, VIP: net.clusterIP(), NodePort: firstNodePort + uint16(net.vips), Ingress: rig.Ingress(s.vip, ""),
		Spec: fmt.Sprintf("type: LoadBalancer, externalIPs: [%s], %s", s.externalIP.Items(), spec),
	}
	return s
}

// fullService is a Service with the addresses by which it is reached from outside.
type fullService struct {
	rig.Service
	vip, externalIP rig.Pair
}

// target is one of a Service's addresses.
type target struct {
	kind string
	at   rig.Pair
	port uint16
}

// targets are all of them, its NodePort at the node.
func (s fullService) targets(n *node) []target {
	return append(s.external(n), target{"ClusterIP", s.VIP, rig.ServicePort})
}

// external are those to which externalTrafficPolicy applies.
func (s fullService) external(n *node) []target {
	return []target{
		{"NodePort", n.addrs, s.NodePort},
		{"VIP", s.vip, rig.ServicePort},
		{"externalIP", s.externalIP, rig.ServicePort},
	}
}

// outcome is what a connection comes to.
type outcome struct {
	servers []string // any of them answers; or
	err     string
	peer    rig.Pair // the client as the server sees it; not looked at if invalid
}

func (o outcome) check(t *testing.T, c *traffic.Client, w rig.Way, to target) {
	t.Helper()
	if o.err == silence {
		defer func(before time.Duration) { c.Timeout = before }(c.Timeout)
		c.Timeout = shortly
	}
	if o.err != "" {
		rig.ExpectError(t, c, w, to.at, to.port, o.err)
		return
	}
	rig.Expect(t, c, w, to.at, to.port, o.servers...)
	if o.peer.V4.IsValid() {
		o.checkPeer(t, w.Ask(c, to.at, to.port), w, to)
	}
}

func (o outcome) checkPeer(t *testing.T, r traffic.Reply, w rig.Way, to target) {
	t.Helper()
	if r.Peer.Addr() != w.Of(o.peer) {
		t.Errorf("%s to the %s: the server sees %s, want %s (%s)", w.Name, to.kind, r.Peer, w.Of(o.peer), r)
	}
	if dialled := w.To(to.at, to.port); r.Peername != dialled || w.UDP() && r.From != dialled {
		t.Errorf("%s to the %s: answered by %s from %s, want %s", w.Name, to.kind, r.Peername, r.From, dialled)
	}
}
