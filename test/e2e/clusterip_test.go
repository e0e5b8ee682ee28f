// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/netip"
	"testing"

	"github.com/fairlead-io/fairlead/test/lab/traffic"
	"github.com/fairlead-io/fairlead/test/rig"
)

func TestClusterIP(t *testing.T) {
	n := startNode(t)
	local, remote := n.backend(t, "local"), n.remote(t, "remote")
	web := rig.Service{Name: "web", VIP: n.vip()}
	n.Serve(t, web, rig.AllReady(local, remote)...)
	pod, podAddrs := n.client(t, "client")

	for _, from := range []struct {
		name   string
		client *traffic.Client
		addrs  rig.Pair
	}{
		{"a pod", pod, podAddrs},
		{"the node", n.host(t), nodeAddrs},
	} {
		for _, w := range ways {
			t.Run(w.Name+" from "+from.name+" reaches every backend, and sees the Service's address only", func(t *testing.T) {
				rig.Expect(t, from.client, w, web.VIP, rig.ServicePort, "local", "remote")
				reply := w.Ask(from.client, web.VIP, rig.ServicePort)
				vip := w.To(web.VIP, rig.ServicePort)
				if w.Network != traffic.UDPUnconnected && reply.Peername != vip {
					t.Errorf("getpeername shows %s, want %s", reply.Peername, vip)
				}
				if w.UDP() && reply.From != vip {
					t.Errorf("recvfrom shows %s, want %s", reply.From, vip)
				}
				if reply.Local.Port() != rig.BackendPort || reply.Local.Addr() != w.Of(local.Addrs) && reply.Local.Addr() != w.Of(remote.Addrs) {
					t.Errorf("the server's end is %s, want a backend's", reply.Local)
				}
				// Without NAT the two ends see the same client, R37; what the
				// node sends to its own pods it sends from another address.
				if reply.Peer.Port() != reply.Sockname.Port() {
					t.Errorf("the server sees %s, the client's own end is %s", reply.Peer, reply.Sockname)
				}
				if from.client == pod && reply.Peer.Addr() != w.Of(podAddrs) {
					t.Errorf("the server sees %s, want the pod's %s", reply.Peer, w.Of(podAddrs))
				}
				if w.Network != traffic.UDPUnconnected && reply.Sockname.Addr().Unmap() != reply.Peer.Addr() {
					t.Errorf("getsockname shows %s, the server sees %s", reply.Sockname, reply.Peer)
				}
			})
		}
	}

	t.Run("a pod reaches itself through its Service (R37)", func(t *testing.T) {
		place, addrs := n.pod(t, "self")
		self := rig.NewBackend(t, place.NetNS, "self", nodeName, addrs)
		s := rig.Service{Name: "self", VIP: n.vip()}
		n.Serve(t, s, rig.Ready(self))
		client := traffic.StartClient(t, place)
		for _, w := range ways {
			rig.Expect(t, client, w, s.VIP, rig.ServicePort, "self")
		}
	})

	t.Run("what is no Service address is left alone", func(t *testing.T) {
		for _, w := range ways {
			if reply := w.Ask(pod, local.Addrs, rig.BackendPort); reply.Server != "local" {
				t.Errorf("%s to the backend itself: %s", w.Name, reply)
			}
		}
	})

	t.Run("an unknown port of a ClusterIP is refused (R38)", func(t *testing.T) {
		for _, w := range ways {
			rig.ExpectError(t, pod, w, web.VIP, rig.ServicePort+1, rejected)
		}
	})
}

func isUDP(network traffic.Network) bool {
	return network == traffic.UDP || network == traffic.UDPUnconnected
}

func TestDistribution(t *testing.T) {
	n := startNode(t)
	b := n.backends(t, "a", "b", "c", "d")
	web := rig.Service{Name: "web", VIP: n.vip()}
	n.Serve(t, web, rig.AllReady(b[:3]...)...)
	client, _ := n.client(t, "client")

	for _, w := range ways {
		t.Run(w.Name+" is spread evenly", func(t *testing.T) {
			// With 300 tries each of three has 100 ± 8; 50 is six deviations off.
			const tries = 300
			got := client.Many(w.Network, w.To(web.VIP, rig.ServicePort).String(), tries)
			for _, name := range rig.Names(b[:3]...) {
				if got.Servers[name] < tries/6 || got.Servers[name] > tries/2 {
					t.Errorf("%d of %d went to %s: %v", got.Servers[name], tries, name, got)
				}
			}
		})
	}

	t.Run("new connections follow the set, open ones stay where they are (R9)", func(t *testing.T) {
		for _, w := range ways {
			if w.UDP() {
				continue // its stickiness has tests of its own
			}
			n.Serve(t, web, rig.Ready(b[0]))
			open, _ := client.Open(w.Network, w.To(web.VIP, rig.ServicePort).String())
			for _, set := range [][]*rig.Backend{b, b[1:3], b[3:]} {
				n.Serve(t, web, rig.AllReady(set...)...)
				rig.Expect(t, client, w, web.VIP, rig.ServicePort, rig.Names(set...)...)
				if reply := open.Ask(); reply.Server != "a" {
					t.Errorf("%s: the connection to a backend that left the set: %s", w.Name, reply)
				}
			}
			open.Close()
		}
	})
}

func TestSeveralPeers(t *testing.T) {
	n := startNode(t)
	a, b := n.backend(t, "a"), n.backend(t, "b")
	one, two, again := rig.Service{Name: "one", VIP: n.vip()}, rig.Service{Name: "two", VIP: n.vip()}, rig.Service{Name: "again", VIP: n.vip()}
	n.Serve(t, one, rig.Ready(a))
	n.Serve(t, two, rig.Ready(b))
	n.Serve(t, again, rig.Ready(a))
	client, _ := n.client(t, "client")

	for _, w := range ways {
		if w.Network != traffic.UDPUnconnected {
			continue
		}
		t.Run(w.Name+" to several Services and a plain address hears each from where it asked", func(t *testing.T) {
			conn, _ := client.Open(w.Network, w.To(one.VIP, rig.ServicePort).String())
			defer conn.Close()
			for range 3 {
				for _, c := range []struct {
					to     netip.AddrPort
					server string
				}{
					{w.To(one.VIP, rig.ServicePort), "a"},
					{w.To(two.VIP, rig.ServicePort), "b"},
					{w.To(two.VIP, rig.ServicePort), "b"},
					// A backend of two Services, and no Service at all.
					{w.To(again.VIP, rig.ServicePort), "a"},
					{w.To(a.Addrs, rig.BackendPort), "a"},
					{w.To(b.Addrs, rig.BackendPort), "b"},
				} {
					if reply := conn.AskAt(c.to.String()); reply.Server != c.server || reply.From != c.to {
						t.Errorf("to %s: %s answers from %s, want %s", c.to, reply, reply.From, c.server)
					}
				}
			}
		})
	}

	for _, w := range ways {
		if w.Network != traffic.UDP {
			continue
		}
		t.Run(w.Name+" connected again shows the new peer, Service or not", func(t *testing.T) {
			c := n.backend(t, "plain")
			conn, _ := client.Open(w.Network, w.To(one.VIP, rig.ServicePort).String())
			defer conn.Close()
			for _, c := range []struct {
				to     netip.AddrPort
				server string
			}{
				{w.To(one.VIP, rig.ServicePort), "a"},
				{w.To(c.Addrs, rig.BackendPort), "plain"},
				{w.To(two.VIP, rig.ServicePort), "b"},
				// The backend of a Service to which the socket was connected.
				{w.To(b.Addrs, rig.BackendPort), "b"},
				{w.To(one.VIP, rig.ServicePort), "a"},
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
