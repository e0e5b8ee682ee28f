// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"crypto/sha256"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/lab/packet"
	"github.com/fairlead-io/fairlead/test/rig"
)

const (
	usualMTU = 1500
	smallMTU = 1300
)

// Where a link on the way takes less than its ends know, a router's error has
// to find whoever sent too much, in the addresses that one knows.
func TestPathMTU(t *testing.T) {
	for _, s := range shapes {
		t.Run(string(s), func(t *testing.T) {
			t.Parallel()
			network := start(t, s, 2)
			for _, n := range network.nodes {
				// Each case has ends that were told nothing yet: a machine that is
				// told of a small link asks its peer for small packets too.
				before, told := network.streaming(t, n, "before-"+n.Name, "")
				behind, small := network.streaming(t, n, "behind-"+n.Name, "")
				for _, w := range []rig.Way{{Name: "IPv4"}, {Name: "IPv6", V6: true}} {
					t.Run("a small link before the client is told to an endpoint on "+n.Name+": "+w.Name, func(t *testing.T) {
						network.router.MTU(t, "client", smallMTU)
						defer network.router.MTU(t, "client", usualMTU)
						tap := packet.NewTap(t, told.NS, "eth0")
						if err := exchange(network.client, w.To(before.vip, rig.ServicePort), 0, 1<<20); err != nil {
							t.Error(err)
						}
						expectTooBig(t, tap, netip.AddrPortFrom(w.Of(told.Addrs), rig.BackendPort))
					})
				}
				for _, w := range []rig.Way{{Name: "IPv4"}, {Name: "IPv6", V6: true}} {
					t.Run("a small link behind the node is told to the client of an endpoint on "+n.Name+": "+w.Name, func(t *testing.T) {
						n.NS.MTU(t, n.links[small.NS], smallMTU)
						wire := watch(t, network.client, "eth0", fromNode)
						if err := exchange(network.client, w.To(behind.vip, rig.ServicePort), 1<<20, 1); err != nil {
							t.Error(err)
						}
						expectTooBig(t, wire.Tap, netip.AddrPort{})
						wire.expect(t, target{"VIP", behind.vip, rig.ServicePort})
					})
				}
			}
		})
	}
}

// What fits no tunnel is told by the node itself, which does not send it on
// through its stack.
func TestTunnelTooSmall(t *testing.T) {
	t.Parallel()
	network := start(t, tunnelled, 2)
	service, b := network.streaming(t, network.nodes[1], "remote", "")
	// This pod does not know of the tunnel, and asks for what does not fit.
	network.nodes[1].NS.MTU(t, network.nodes[1].links[b.NS], usualMTU)
	b.NS.MTU(t, "eth0", usualMTU)
	for _, w := range []rig.Way{{Name: "IPv4"}, {Name: "IPv6", V6: true}} {
		t.Run(w.Name, func(t *testing.T) {
			wire := watch(t, network.client, "eth0", fromNode)
			if err := exchange(network.client, w.To(service.vip, rig.ServicePort), 1<<20, 1<<20); err != nil {
				t.Error(err)
			}
			wire.expect(t, target{"VIP", service.vip, rig.ServicePort})
			if !slices.ContainsFunc(wire.Packets(), func(p packet.Packet) bool { return !p.Outgoing && p.MTU == tunnelMTU }) {
				t.Error("nobody told the client what fits")
			}
		})
	}
}

// expectTooBig expects that a tap saw an error about a packet that was too
// big, from the sender, in the addresses that this one used.
func expectTooBig(t *testing.T, tap *packet.Tap, sender netip.AddrPort) {
	t.Helper()
	seen := tap.Packets()
	told := slices.ContainsFunc(seen, func(p packet.Packet) bool {
		tooBig := p.V4() && p.Type == 3 && p.Code == 4 || !p.V4() && p.Type == 2
		return !p.Outgoing && p.Inner != nil && tooBig && p.MTU == smallMTU && p.Checksum != packet.Wrong &&
			(!sender.IsValid() || p.Inner.Source == sender)
	})
	if !told {
		t.Errorf("nobody told %s of the small link", sender)
	}
}

// datagrams sends datagrams of a size to an address and expects each back. The
// first few may tell the sender what fits on the way, and be lost.
func datagrams(ns *lab.NetNS, to netip.AddrPort, size, count int) error {
	var conn net.Conn
	var err error
	ns.Do(func() { conn, err = net.Dial("udp", to.String()) })
	if err != nil {
		return err
	}
	defer conn.Close()
	content, sent, got := newStream(), make([]byte, size), make([]byte, 1<<16)
	for lost := 0; count > 0; count-- {
		content.Read(sent)
		n, err := 0, error(nil)
		if _, err = conn.Write(sent); err == nil {
			conn.SetReadDeadline(time.Now().Add(2 * time.Second))
			n, err = conn.Read(got)
		}
		if errors.Is(err, unix.EMSGSIZE) && lost < learning {
			lost++
			continue
		}
		if err != nil {
			return err
		}
		if sha256.Sum256(got[:n]) != sha256.Sum256(sent) {
			return errors.New("another datagram came back than was sent")
		}
	}
	return nil
}

// learning is how many datagrams it takes at most to know what fits.
const learning = 2

// echo sends every datagram back.
func echo(t *testing.T, b *rig.Backend) {
	t.Helper()
	for _, addr := range b.Addrs.List() {
		var conn net.PacketConn
		b.NS.Do(func() {
			var err error
			if conn, err = net.ListenPacket("udp", netip.AddrPortFrom(addr, rig.BackendPort).String()); err != nil {
				t.Fatal(err)
			}
		})
		t.Cleanup(func() { conn.Close() })
		go func() {
			buffer := make([]byte, 1<<16)
			for {
				n, from, err := conn.ReadFrom(buffer)
				if err != nil {
					return
				}
				conn.WriteTo(buffer[:n], from)
			}
		}()
	}
}

func TestFragments(t *testing.T) {
	for _, s := range shapes {
		t.Run(string(s), func(t *testing.T) {
			t.Parallel()
			network := start(t, s, 2)
			n1 := network.nodes[0]
			for _, n := range network.nodes {
				b := n.silent(t, "echo-"+n.Name)
				echo(t, b)
				service := network.full("echo-"+n.Name, "")
				network.serve(t, service.Service, rig.Ready(b))
				for _, w := range []rig.Way{{}, {V6: true}} {
					to := w.To(n1.addrs, service.NodePort)
					for _, size := range []int{1000, 2000, 9000, 60000} {
						tap := packet.NewTap(t, network.client, "eth0")
						if err := datagrams(network.client, to, size, 20); err != nil {
							t.Errorf("datagrams of %d bytes to %s, served on %s: %v", size, to, n.Name, err)
						}
						if cut := slices.ContainsFunc(tap.Packets(), packet.Packet.Fragment); cut != (size > usualMTU) {
							t.Errorf("datagrams of %d bytes to %s came in fragments: %v", size, to, cut)
						}
					}
				}
			}
		})
	}
}

// Nobody listens in the pod, or it is not there any more.
func TestUnreachableEndpoints(t *testing.T) {
	t.Parallel()
	network := start(t, routed, 2)
	n1 := network.nodes[0]
	client, wire := network.outside(t), watch(t, network.client, "eth0", fromNode)
	for _, n := range network.nodes {
		b := n.silent(t, "nobody-"+n.Name)
		service := network.full("nobody-"+n.Name, "")
		network.serve(t, service.Service, rig.Ready(b))
		for _, w := range ways {
			for _, to := range service.targets(n1) {
				outcome{err: rejected}.check(t, client, w, to)
				wire.expect(t, to)
			}
		}
	}
}
