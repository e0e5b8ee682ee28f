// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/test/lab/packet"
	"github.com/fairlead-io/fairlead/test/lab/traffic"
	"github.com/fairlead-io/fairlead/test/rig"
)

// What happens to what is open when endpoints come and go.
func TestOpenFlows(t *testing.T) {
	t.Parallel()
	net := start(t, routed, 2, podDevices...)
	n1, n2 := net.nodes[0], net.nodes[1]
	b := []*rig.Backend{n1.backend(t, "a"), n1.backend(t, "b"), n2.backend(t, "c"), n2.backend(t, "d")}
	sandbox, _, _ := n1.sandbox(t, "sandbox")

	for name, client := range map[string]*traffic.Client{"outside": net.outside(t), "a sandbox": sandbox} {
		for _, w := range ways {
			for _, mine := range []*rig.Backend{b[0], b[2]} {
				others := slices.DeleteFunc(slices.Clone(b), func(other *rig.Backend) bool { return other == mine })
				service := net.full("web", "")
				to := service.targets(n1)[0]
				net.serve(t, service.Service, rig.Ready(mine))
				conn, reply := client.Open(w.Network, w.To(to.at, to.port).String())
				if reply.Error != "" {
					t.Fatalf("%s from %s: %s", w.Name, name, reply)
				}
				expectHeld(t, conn, mine.Name)

				t.Run(w.Name+" from "+name+" stays with "+mine.Name+" while others come, and while it terminates (R9)", func(t *testing.T) {
					net.serve(t, service.Service, rig.AllReady(b...)...)
					expectHeld(t, conn, mine.Name)
					net.serve(t, service.Service, append(rig.AllReady(others...), rig.Terminating(mine))...)
					expectHeld(t, conn, mine.Name)
				})

				net.serve(t, service.Service, rig.AllReady(others...)...)
				if w.UDP() {
					t.Run(w.Name+" from "+name+" moves with the next datagram when "+mine.Name+" is gone (R35)", func(t *testing.T) {
						reply := conn.Ask()
						if !slices.Contains(rig.Names(others...), reply.Server) || reply.From != w.To(to.at, to.port) {
							t.Errorf("%s from %s, want one of %v", reply, reply.From, rig.Names(others...))
						}
					})
				} else {
					t.Run(w.Name+" from "+name+" goes on to "+mine.Name+" after it left its slice (R9)", func(t *testing.T) {
						expectHeld(t, conn, mine.Name)
					})
				}
				conn.Close()
			}
		}
	}
}

func expectHeld(t *testing.T, conn *traffic.Conn, server string) {
	t.Helper()
	for range 3 {
		if reply := conn.Ask(); reply.Server != server {
			t.Errorf("what was open to %s: %s", server, reply)
		}
	}
}

// Segments that belong to no window come from nowhere good, and change
// nothing: neither end is told anything that ends the connection.
func TestOutOfWindow(t *testing.T) {
	t.Parallel()
	const ack, rst, fin, syn = packet.ACK, packet.RST, packet.FIN, packet.SYN
	net := start(t, routed, 2)
	n1 := net.nodes[0]
	client := net.outside(t)
	fromClient := packet.NewSender(t, net.client)
	for _, n := range net.nodes {
		b := n.backend(t, "on-"+n.Name)
		fromPod := packet.NewSender(t, b.NS)
		service := net.full("on-"+n.Name, "")
		net.serve(t, service.Service, rig.Ready(b))
		for _, c := range []struct {
			name              string
			byClient, byOther []uint8 // flags of what the client's side sends, and the endpoint's
		}{
			{"data", []uint8{ack, ack | packet.PSH}, []uint8{ack, ack | packet.PSH}},
			{"resets", []uint8{rst, rst | ack}, []uint8{rst, rst | ack}},
			{"ends of both sides", []uint8{fin | ack}, []uint8{fin | ack}},
			{"an attempt to connect", []uint8{syn}, nil},
			{"a reset and an attempt to connect", []uint8{rst, syn}, nil},
		} {
			for _, w := range ways[:2] {
				for _, to := range service.targets(n1) {
					t.Run(fmt.Sprintf("%s, %s to the %s of an endpoint on %s (R36)", c.name, w.Name, to.kind, n.Name), func(t *testing.T) {
						front, back := packet.NewTap(t, net.client, "eth0"), packet.NewTap(t, b.NS, "eth0")
						conn, _ := client.Open(w.Network, w.To(to.at, to.port).String())
						defer conn.Close()
						expectHeld(t, conn, b.Name)
						there, here := lastSent(t, front), lastSent(t, back)
						for _, flags := range c.byClient {
							fromClient.Send(stray(there, flags))
						}
						for _, flags := range c.byOther {
							fromPod.Send(stray(here, flags))
						}
						expectHeld(t, conn, b.Name)
						for _, p := range front.Packets() {
							if p.Target != there.Source {
								continue // of a connection before this one
							}
							if p.Source != w.To(to.at, to.port) || p.Flags&rst != 0 && p.Seq != here.Seq+strayBy {
								t.Errorf("to the client came %s", p)
							}
						}
					})
				}
			}
		}
	}
}

// strayBy leads out of every window of the lab.
const strayBy = 1 << 30

// stray is a segment far from the one that was seen.
func stray(seen packet.Packet, flags uint8) packet.Packet {
	return packet.Packet{
		Source: seen.Source, Target: seen.Target, Protocol: unix.IPPROTO_TCP,
		Flags: flags, Seq: seen.Seq + strayBy, Ack: seen.Ack, Payload: []byte("stray"),
	}
}

// lastSent is the last segment with content that went out.
func lastSent(t *testing.T, tap *packet.Tap) packet.Packet {
	t.Helper()
	seen := tap.Packets()
	for _, p := range slices.Backward(seen) {
		if p.Outgoing && p.Protocol == unix.IPPROTO_TCP && len(p.Payload) > 0 {
			return p
		}
	}
	t.Fatalf("no segment among %v", seen)
	return packet.Packet{}
}

// A client may use one port for several addresses of a Service, and for its
// endpoint itself: to it they are different connections, to the endpoint they
// would be the same.
func TestOnePortOfTheClient(t *testing.T) {
	t.Parallel()
	const port = 5555
	net := start(t, routed, 2, podDevices...)
	n1 := net.nodes[0]
	sandbox, podNS, podAddrs := n1.sandbox(t, "sandbox")
	// The clients themselves must not wait before they use the port again.
	net.client.Sysctl(t, "net.ipv4.tcp_max_tw_buckets", "0")
	podNS.Sysctl(t, "net.ipv4.tcp_max_tw_buckets", "0")
	for _, n := range net.nodes {
		b := n.backend(t, "on-"+n.Name)
		service := net.full("on-"+n.Name, "")
		net.serve(t, service.Service, rig.Ready(b))
		itself := target{"endpoint", b.Addrs, rig.BackendPort}
		for _, from := range []struct {
			name    string
			client  *traffic.Client
			addrs   rig.Pair
			targets []target
		}{
			{"outside", net.outside(t), clientAddrs, service.targets(n1)},
			{"a sandbox", sandbox, podAddrs, append(service.targets(n1), itself)},
		} {
			for _, w := range ways {
				t.Run(w.Name+" from "+from.name+" to an endpoint on "+n.Name, func(t *testing.T) {
					from.client.From, from.client.Timeout = w.To(from.addrs, port), time.Second
					for range 2 {
						for _, to := range from.targets {
							if reply := patiently(t, from.client, w, to); reply.Server != b.Name {
								t.Errorf("to the %s: %s", to.kind, reply)
							}
						}
					}
				})
			}
		}
	}
}

// patiently asks again as long as the client's own port is not free yet.
func patiently(t *testing.T, c *traffic.Client, w rig.Way, to target) traffic.Reply {
	t.Helper()
	var reply traffic.Reply
	rig.Eventually(t, func() error {
		if reply = w.Ask(c, to.at, to.port); reply.Error == "EADDRINUSE" {
			return errors.New(reply.Error)
		}
		return nil
	})
	return reply
}
