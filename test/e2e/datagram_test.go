// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"github.com/fairlead-io/fairlead/test/lab/traffic"
)

// Many programs make a socket per question, DNS clients first of all. Were
// room kept for each, the map of pairs would be full on every node.
func TestRoomOfDatagramSockets(t *testing.T) {
	const sockets = 5
	n := startNode(t)
	b := n.backends(t, "a", "b", "c")
	one, two := service{name: "one", vip: n.vip()}, service{name: "two", vip: n.vip()}
	n.serve(t, one, allReady(b...)...)
	n.serve(t, two, allReady(b...)...)
	client, _ := n.client(t, "client")

	for _, w := range ways {
		if w.network != traffic.UDPUnconnected {
			continue
		}
		before := n.pairs(t)
		for range sockets {
			conn, _ := client.Open(w.network, w.to(one.vip, servicePort).String())
			defer conn.Close()
			for range 5 {
				if reply := conn.Ask(); reply.From != w.to(one.vip, servicePort) {
					t.Errorf("%s: %s from %s, want it from the Service", w.name, reply, reply.From)
				}
			}
			if after := n.pairs(t); after != before {
				t.Fatalf("%s: a socket that uses one Service takes room for %d pairs", w.name, after-before)
			}
		}
		conn, _ := client.Open(w.network, w.to(one.vip, servicePort).String())
		defer conn.Close()
		for range 3 {
			conn.Ask()
			conn.AskAt(w.to(two.vip, servicePort).String())
		}
		if after := n.pairs(t); after == before || after > before+4 {
			t.Errorf("%s: a socket that uses two Services takes room for %d pairs, want one to four", w.name, after-before)
		}
	}
}

// pairs is how many entries the map of pairs has.
func (n *node) pairs(t *testing.T) uint64 {
	t.Helper()
	for _, m := range n.status(t).Maps {
		if m.Name == "fairlead_udp" {
			return m.Used
		}
	}
	t.Fatal("status does not show the map of pairs")
	return 0
}
