// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/test/lab/packet"
	"github.com/fairlead-io/fairlead/test/lab/traffic"
	"github.com/fairlead-io/fairlead/test/rig"
)

// With four ports of the node's own, four connections go to a remote endpoint.
func TestPortsExhausted(t *testing.T) {
	t.Parallel()
	const ports = 4
	net := start(t, routed, 2, "--snat-ports", "61000-61003")
	n1, n2 := net.nodes[0], net.nodes[1]
	first, second, local := n2.backend(t, "first"), n2.backend(t, "second"), n1.backend(t, "local")
	web, other, near := net.full("web", ""), net.full("other", ""), net.full("near", "")
	net.serve(t, web.Service, rig.Ready(first))
	net.serve(t, other.Service, rig.Ready(second))
	net.serve(t, near.Service, rig.Ready(local))
	client := net.outside(t)

	for _, w := range ways {
		t.Run("a connection for which no port is left is refused at once, and no other one suffers: "+w.Name, func(t *testing.T) {
			to := target{"NodePort", n1.addrs, web.NodePort}
			before := n1.refused(t, w.Of(n1.addrs))
			var open []*traffic.Conn
			seen := map[netip.AddrPort]bool{}
			for range ports {
				conn, reply := client.Open(w.Network, w.To(to.at, to.port).String())
				if reply.Error != "" {
					t.Fatalf("connection %d: %s", len(open)+1, reply)
				}
				defer conn.Close()
				open = append(open, conn)
				peer := conn.Ask().Peer
				if peer.Addr() != w.Of(n1.addrs) || peer.Port() < 61000 || peer.Port() > 61003 || seen[peer] {
					t.Errorf("the endpoint sees %s, after %v", peer, seen)
				}
				seen[peer] = true
			}
			began := time.Now()
			outcome{err: rejected}.check(t, client, w, to)
			if took := time.Since(began); took > time.Second {
				t.Errorf("the refusal took %s", took)
			}
			if after := n1.refused(t, w.Of(n1.addrs)); after == before {
				t.Errorf("status counts %d refusals before and after", before)
			}
			for _, conn := range open {
				expectHeld(t, conn, "first")
			}
			// The ports are one endpoint's; others have as many, and local ones need none.
			if reply := w.Ask(client, n1.addrs, other.NodePort); reply.Server != "second" {
				t.Errorf("to another endpoint: %s", reply)
			}
			answeredBy(local).check(t, client, w, target{"NodePort", n1.addrs, near.NodePort})
		})
	}
}

// A flood of connections that nobody finishes pushes out none that is open.
func TestFlood(t *testing.T) {
	t.Parallel()
	const (
		flood = 1_000_000
		each  = 10
	)
	net := start(t, routed, 2, "--max-flows", "4096")
	n1 := net.nodes[0]
	// Nobody is where the flood says it comes from.
	net.router.Blackhole(t, netip.MustParsePrefix("100.64.0.0/10"))
	client := net.outside(t)
	type held struct {
		conn *traffic.Conn
		name string
	}
	var open []held
	var targets []uint16
	for _, n := range net.nodes {
		b := n.backend(t, "on-"+n.Name)
		service := net.full("on-"+n.Name, "")
		net.serve(t, service.Service, rig.Ready(b))
		targets = append(targets, service.NodePort)
		for _, w := range ways {
			for range each {
				conn, reply := client.Open(w.Network, w.To(n1.addrs, service.NodePort).String())
				if reply.Error != "" {
					t.Fatalf("%s: %s", w.Name, reply)
				}
				open = append(open, held{conn, b.Name})
				expectHeld(t, conn, b.Name) // more than once, so it is confirmed
			}
		}
	}

	began := time.Now()
	if err := sendFlood(packet.NewSender(t, net.client), n1.addrs.V4, targets, flood); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d attempts in %s", flood, time.Since(began))

	t.Run("open connections go on", func(t *testing.T) {
		for _, h := range open {
			expectHeld(t, h.conn, h.name)
		}
	})
	t.Run("new ones are made", func(t *testing.T) {
		for _, w := range ways {
			for i, n := range net.nodes {
				// Queues before and behind the node may be full for a moment yet.
				rig.Eventually(t, func() error {
					reply := client.Ask(w.Network, w.To(n1.addrs, targets[i]).String())
					if reply.Server != "on-"+n.Name {
						return fmt.Errorf("%s to %s: %s", w.Name, n.Name, reply)
					}
					return nil
				})
			}
		}
	})
	t.Run("status says what was pushed out", func(t *testing.T) {
		for _, m := range n1.Status(t).Maps {
			t.Logf("%+v", m)
			switch m.Name {
			case "fairlead_embryos":
				if m.Evictions < flood/10 {
					t.Errorf("of unconfirmed flows %d were pushed out", m.Evictions)
				}
			case "fairlead_flows", "fairlead_datagrams": // half of them each
				if m.Evictions > 0 || m.Used < uint64(len(open)) {
					t.Errorf("of %d confirmed flows %d were pushed out", m.Used, m.Evictions)
				}
			}
		}
	})
}

// sendFlood sends attempts to connect that differ in address and port.
func sendFlood(s *packet.Sender, to netip.Addr, ports []uint16, count int) error {
	var attempts [][]byte
	for _, port := range ports {
		attempts = append(attempts, packet.Packet{
			Source: netip.MustParseAddrPort("100.64.0.0:0"), Target: netip.AddrPortFrom(to, port),
			Protocol: unix.IPPROTO_TCP, Flags: packet.SYN,
		}.Bytes())
	}
	for i := range uint32(count) {
		b := attempts[int(i)%len(attempts)]
		renumber(b, i/2)
		if err := s.SendBytes(b); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return err
		}
	}
	return nil
}

// renumber gives an attempt another source address and port. Its checksums stay
// right: what each half of the number adds is taken away beside it.
func renumber(b []byte, n uint32) {
	const id, addr, port, sequence = 4, 14, 20, 24
	low, high := uint16(n), uint16(n>>16)
	binary.BigEndian.PutUint16(b[port:], low)
	binary.BigEndian.PutUint16(b[sequence:], ^low)
	binary.BigEndian.PutUint16(b[addr:], high)
	binary.BigEndian.PutUint16(b[id:], ^high) // for the header's
	binary.BigEndian.PutUint16(b[sequence+2:], ^high)
}
