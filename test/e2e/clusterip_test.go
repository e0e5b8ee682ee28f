// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/netip"
	"testing"

	"github.com/fairlead-io/fairlead/test/lab/traffic"
)

func TestClusterIP(t *testing.T) {
	n := startNode(t)
	local, remote := n.backend(t, "local"), n.remote(t, "remote")
	web := service{name: "web", vip: n.vip()}
	n.serve(t, web, allReady(local, remote)...)
	pod, podAddrs := n.client(t, "client")

	for _, from := range []struct {
		name   string
		client *traffic.Client
		addrs  pair
	}{
		{"a pod", pod, podAddrs},
		{"the node", n.host(t), nodeAddrs},
	} {
		for _, w := range ways {
			t.Run(w.name+" from "+from.name+" reaches every backend, and sees the Service's address only", func(t *testing.T) {
				expect(t, from.client, w, web.vip, servicePort, "local", "remote")
				reply := w.ask(from.client, web.vip, servicePort)
				vip := w.to(web.vip, servicePort)
				if w.network != traffic.UDPUnconnected && reply.Peername != vip {
					t.Errorf("getpeername shows %s, want %s", reply.Peername, vip)
				}
				if isUDP(w.network) && reply.From != vip {
					t.Errorf("recvfrom shows %s, want %s", reply.From, vip)
				}
				if reply.Local.Port() != backendPort || reply.Local.Addr() != w.of(local.addrs) && reply.Local.Addr() != w.of(remote.addrs) {
					t.Errorf("the server's end is %s, want a backend's", reply.Local)
				}
				// Without NAT the two ends see the same client, R37; what the
				// node sends to its own pods it sends from another address.
				if reply.Peer.Port() != reply.Sockname.Port() {
					t.Errorf("the server sees %s, the client's own end is %s", reply.Peer, reply.Sockname)
				}
				if from.client == pod && reply.Peer.Addr() != w.of(podAddrs) {
					t.Errorf("the server sees %s, want the pod's %s", reply.Peer, w.of(podAddrs))
				}
				if w.network != traffic.UDPUnconnected && reply.Sockname.Addr().Unmap() != reply.Peer.Addr() {
					t.Errorf("getsockname shows %s, the server sees %s", reply.Sockname, reply.Peer)
				}
			})
		}
	}

	t.Run("a pod reaches itself through its Service (R37)", func(t *testing.T) {
		place, addrs := n.pod(t, "self")
		self := newBackend(t, place.NetNS, "self", nodeName, addrs)
		s := service{name: "self", vip: n.vip()}
		n.serve(t, s, ready(self))
		client := traffic.StartClient(t, place)
		for _, w := range ways {
			expect(t, client, w, s.vip, servicePort, "self")
		}
	})

	t.Run("what is no Service address is left alone", func(t *testing.T) {
		for _, w := range ways {
			if reply := w.ask(pod, local.addrs, backendPort); reply.Server != "local" {
				t.Errorf("%s to the backend itself: %s", w.name, reply)
			}
			expectUntouched(t, pod, w, web.vip, servicePort+1)
		}
	})
}

func isUDP(network traffic.Network) bool {
	return network == traffic.UDP || network == traffic.UDPUnconnected
}

func TestDistribution(t *testing.T) {
	n := startNode(t)
	b := n.backends(t, "a", "b", "c", "d")
	web := service{name: "web", vip: n.vip()}
	n.serve(t, web, allReady(b[:3]...)...)
	client, _ := n.client(t, "client")

	for _, w := range ways {
		t.Run(w.name+" is spread evenly", func(t *testing.T) {
			// With 300 tries each of three has 100 ± 8; 50 is six deviations off.
			const tries = 300
			got := client.Many(w.network, w.to(web.vip, servicePort).String(), tries)
			for _, name := range names(b[:3]...) {
				if got.Servers[name] < tries/6 || got.Servers[name] > tries/2 {
					t.Errorf("%d of %d went to %s: %v", got.Servers[name], tries, name, got)
				}
			}
		})
	}

	t.Run("new connections follow the set, open ones stay where they are (R9)", func(t *testing.T) {
		for _, w := range ways {
			if isUDP(w.network) {
				continue // its stickiness has tests of its own
			}
			n.serve(t, web, ready(b[0]))
			open, _ := client.Open(w.network, w.to(web.vip, servicePort).String())
			for _, set := range [][]*backend{b, b[1:3], b[3:]} {
				n.serve(t, web, allReady(set...)...)
				expect(t, client, w, web.vip, servicePort, names(set...)...)
				if reply := open.Ask(); reply.Server != "a" {
					t.Errorf("%s: the connection to a backend that left the set: %s", w.name, reply)
				}
			}
			open.Close()
		}
	})
}

func TestSeveralPeers(t *testing.T) {
	n := startNode(t)
	a, b := n.backend(t, "a"), n.backend(t, "b")
	one, two, again := service{name: "one", vip: n.vip()}, service{name: "two", vip: n.vip()}, service{name: "again", vip: n.vip()}
	n.serve(t, one, ready(a))
	n.serve(t, two, ready(b))
	n.serve(t, again, ready(a))
	client, _ := n.client(t, "client")

	for _, w := range ways {
		if w.network != traffic.UDPUnconnected {
			continue
		}
		t.Run(w.name+" to several Services and a plain address hears each from where it asked", func(t *testing.T) {
			conn, _ := client.Open(w.network, w.to(one.vip, servicePort).String())
			defer conn.Close()
			for range 3 {
				for _, c := range []struct {
					to     netip.AddrPort
					server string
				}{
					{w.to(one.vip, servicePort), "a"},
					{w.to(two.vip, servicePort), "b"},
					{w.to(two.vip, servicePort), "b"},
					// A backend of two Services, and no Service at all.
					{w.to(again.vip, servicePort), "a"},
					{w.to(a.addrs, backendPort), "a"},
					{w.to(b.addrs, backendPort), "b"},
				} {
					if reply := conn.AskAt(c.to.String()); reply.Server != c.server || reply.From != c.to {
						t.Errorf("to %s: %s answers from %s, want %s", c.to, reply, reply.From, c.server)
					}
				}
			}
		})
	}

	for _, w := range ways {
		if w.network != traffic.UDP {
			continue
		}
		t.Run(w.name+" connected again shows the new peer, Service or not", func(t *testing.T) {
			c := n.backend(t, "plain")
			conn, _ := client.Open(w.network, w.to(one.vip, servicePort).String())
			defer conn.Close()
			for _, c := range []struct {
				to     netip.AddrPort
				server string
			}{
				{w.to(one.vip, servicePort), "a"},
				{w.to(c.addrs, backendPort), "plain"},
				{w.to(two.vip, servicePort), "b"},
				// The backend of a Service to which the socket was connected.
				{w.to(b.addrs, backendPort), "b"},
				{w.to(one.vip, servicePort), "a"},
			} {
				if reply := conn.Connect(c.to.String()); reply.Error != "" {
					t.Fatalf("connect to %s: %s", c.to, reply)
				}
				if reply := conn.Ask(); reply.Server != c.server || reply.Peername != c.to || reply.From != c.to {
					t.Errorf("to %s: %s answers from %s, peer %s; want %s", c.to, reply, reply.From, reply.Peername, c.server)
				}
			}
		})
	}
}
