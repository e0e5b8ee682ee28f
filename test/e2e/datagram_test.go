// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
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

// held is an open socket and who answers it.
type held struct {
	name   string
	conn   *traffic.Conn
	to     string
	server string
}

// hold opens sockets by each of the ways until the server answers one of them.
func hold(t *testing.T, c *traffic.Client, name string, ways []rig.Way, to rig.Pair, port uint16, server string) (all []held) {
	t.Helper()
	for _, w := range ways {
		to := w.To(to, port).String()
		rig.Eventually(t, func() error {
			conn, reply := c.Open(w.Network, to)
			if reply.Error != "" {
				return fmt.Errorf("%s to %s: %s", w.Name, to, reply)
			}
			if reply = conn.Ask(); reply.Server != server {
				conn.Close()
				return fmt.Errorf("%s to %s: %s", w.Name, to, reply)
			}
			all = append(all, held{w.Name + " " + name, conn, to, server})
			return nil
		})
	}
	return all
}

func goOn(t *testing.T, all ...[]held) {
	t.Helper()
	for _, h := range slices.Concat(all...) {
		if reply := h.conn.Ask(); reply.Server != h.server {
			t.Errorf("%s: %s, want it to go on with %s", h.name, reply, h.server)
		}
	}
}

func areReleased(t *testing.T, all ...[]held) {
	t.Helper()
	for _, h := range slices.Concat(all...) {
		if err := h.conn.Watch(); err != "ECONNABORTED" {
			t.Errorf("%s: %q, want ECONNABORTED", h.name, err)
		}
	}
}

// split tells sockets that are connected by UDP from streams.
func split() (datagrams, streams []rig.Way) {
	for _, w := range ways {
		switch {
		case w.Network == traffic.UDP:
			datagrams = append(datagrams, w)
		case !w.UDP():
			streams = append(streams, w)
		}
	}
	return datagrams, streams
}

func TestConnectedSocketsLetGoOfBackendsThatAreGone(t *testing.T) {
	n := startNode(t)
	b := n.backends(t, "a", "b", "c")
	web, other := rig.Service{Name: "web", VIP: n.vip()}, rig.Service{Name: "other", VIP: n.vip()}
	n.Serve(t, web, rig.AllReady(b...)...)
	n.Serve(t, other, rig.AllReady(b...)...)
	pod, _ := n.client(t, "client")
	datagrams, streams := split()

	var toA, toB, toC, toOther, untouched []held
	for name, client := range map[string]*traffic.Client{"of a pod": pod, "of the host": n.host(t)} {
		toA = append(toA, hold(t, client, name, datagrams, web.VIP, rig.ServicePort, "a")...)
		toB = append(toB, hold(t, client, name, datagrams, web.VIP, rig.ServicePort, "b")...)
		toC = append(toC, hold(t, client, name, datagrams, web.VIP, rig.ServicePort, "c")...)
		toOther = append(toOther, hold(t, client, name+" to another Service", datagrams, other.VIP, rig.ServicePort, "a")...)
		untouched = append(untouched, hold(t, client, name+" to the backend itself", datagrams, b[0].Addrs, rig.BackendPort, "a")...)
		untouched = append(untouched, hold(t, client, name, streams, web.VIP, rig.ServicePort, "a")...)
	}
	released := func(t *testing.T, want int) {
		t.Helper()
		rig.Eventually(t, func() error {
			if s := n.Status(t); s.SocketsReleased != uint64(want) || s.SocketsStranded != 0 {
				return fmt.Errorf("%d sockets were released, %d are stranded; want %d released", s.SocketsReleased, s.SocketsStranded, want)
			}
			return nil
		})
	}

	t.Run("sockets of a backend that is gone are released, those of one that is terminating go on (R9, R35)", func(t *testing.T) {
		n.Serve(t, web, rig.Terminating(b[0]), rig.Ready(b[1]))
		areReleased(t, toC)
		goOn(t, toA, toB, toOther, untouched)
		released(t, len(toC))
	})
	t.Run("when that one is gone, too, so are its sockets, and no others (R35)", func(t *testing.T) {
		n.Serve(t, web, rig.AllReady(b[1:]...)...)
		areReleased(t, toA)
		goOn(t, toB, toOther, untouched)
		released(t, len(toC)+len(toA))
	})
	t.Run("a socket that was released connects to a backend that is there", func(t *testing.T) {
		for _, h := range toA {
			if reply := h.conn.Connect(h.to); reply.Error != "" {
				t.Errorf("%s: connect to %s again: %s", h.name, h.to, reply.Error)
			}
			if reply := h.conn.Ask(); reply.Server != "b" && reply.Server != "c" {
				t.Errorf("%s: %s answers at %s, want b or c", h.name, reply, h.to)
			}
			h.conn.Close()
		}
	})
	n.Restart(t)
	t.Run("the agent's end and start release none (R35)", func(t *testing.T) {
		goOn(t, toB, toOther, untouched)
		released(t, 0)
	})
	n.Process.Kill()
	n.Write(t, "web.yaml", web.YAML(rig.AllReady(b[2])))
	n.Start(t)
	t.Run("when a backend went while no agent ran, its sockets are released by the next one (R35)", func(t *testing.T) {
		areReleased(t, toB)
		goOn(t, toOther, untouched)
		released(t, len(toB))
	})
	t.Run("when a Service is gone, its sockets are released: they have no peer to send to (R35)", func(t *testing.T) {
		n.Remove(t, "other")
		released(t, len(toB)+len(toOther))
		for _, h := range toOther {
			if reply := h.conn.Ask(); reply.Error != "EDESTADDRREQ" {
				t.Errorf("%s: %s, want EDESTADDRREQ", h.name, reply)
			}
		}
		goOn(t, untouched)
	})
}
