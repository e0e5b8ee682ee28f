// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"

	"github.com/fairlead-io/fairlead/test/lab/traffic"
	"github.com/fairlead-io/fairlead/test/rig"
)

// Many programs make a socket per question, DNS clients first of all. Were
// room kept for each, the map of pairs would be full on every node.
func TestRoomOfDatagramSockets(t *testing.T) {
	const sockets = 5
	n := startNode(t)
	b := n.backends(t, "a", "b", "c")
	one, two := rig.Service{Name: "one", VIP: n.vip()}, rig.Service{Name: "two", VIP: n.vip()}
	n.Serve(t, one, rig.AllReady(b...)...)
	n.Serve(t, two, rig.AllReady(b...)...)
	client, _ := n.client(t, "client")

	for _, w := range ways {
		if w.Network != traffic.UDPUnconnected {
			continue
		}
		before := n.pairs(t)
		for range sockets {
			conn, _ := client.Open(w.Network, w.To(one.VIP, rig.ServicePort).String())
			defer conn.Close()
			for range 5 {
				if reply := conn.Ask(); reply.From != w.To(one.VIP, rig.ServicePort) {
					t.Errorf("%s: %s from %s, want it from the Service", w.Name, reply, reply.From)
				}
			}
			if after := n.pairs(t); after != before {
				t.Fatalf("%s: a socket that uses one Service takes room for %d pairs", w.Name, after-before)
			}
		}
		conn, _ := client.Open(w.Network, w.To(one.VIP, rig.ServicePort).String())
		defer conn.Close()
		for range 3 {
			conn.Ask()
			conn.AskAt(w.To(two.VIP, rig.ServicePort).String())
		}
		if after := n.pairs(t); after == before || after > before+4 {
			t.Errorf("%s: a socket that uses two Services takes room for %d pairs, want one to four", w.Name, after-before)
		}
	}
}

// pairs is how many entries the map of pairs has.
func (n *node) pairs(t *testing.T) uint64 {
	t.Helper()
	for _, m := range n.Status(t).Maps {
		if m.Name == "fairlead_udp" {
			return m.Used
		}
	}
	t.Fatal("status does not show the map of pairs")
	return 0
}

// An IPv6 socket that is connected to a mapped address hands the kernel the
// backend's address with each datagram.
func TestConnectedSocketsAreTranslatedOnce(t *testing.T) {
	n := startNode(t)
	b := n.backends(t, "a", "b")
	web, taken := rig.Service{Name: "web", VIP: n.vip()}, rig.Service{Name: "taken", VIP: n.vip(), Port: rig.BackendPort}
	taken.Spec = fmt.Sprintf("externalIPs: [%s]", b[0].Addrs.Items())
	n.Serve(t, web, rig.Ready(b[0]))
	n.Serve(t, taken, rig.Ready(b[1]))
	client, _ := n.client(t, "client")
	for _, w := range ways {
		if w.Network != traffic.UDP {
			continue
		}
		conn, _ := client.Open(w.Network, w.To(web.VIP, rig.ServicePort).String())
		defer conn.Close()
		for range 3 {
			if reply := conn.Ask(); reply.Server != "a" {
				t.Errorf("%s: %s answers, although its address as a backend of one Service is that of another Service", w.Name, reply)
			}
		}
		rig.Expect(t, client, w, b[0].Addrs, rig.BackendPort, "b")
	}
}
