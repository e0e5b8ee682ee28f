// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/test/lab/packet"
)

// twoPorts is a node that has two ports for the flows of others.
func twoPorts(t *testing.T) *node {
	t.Helper()
	return newNodeWith(t, Config{Wire: Wire{SNATPorts: Ports{62000, 62001}}})
}

// from is the flow of a client with another port.
func (k talk) from(port uint16) talk {
	k.client = netip.AddrPortFrom(k.client.Addr(), port)
	if k.isLocal() {
		k.source = k.client
	}
	return k
}

// closed is what the client is told where a flow is refused.
func closed(p packet.Packet) []byte {
	if p.Protocol == uint8(model.TCP) {
		return reset(p)
	}
	return unreachable(p, p.Bytes())
}

// reset is what a closed port says to a segment.
func reset(p packet.Packet) []byte {
	r := packet.Packet{Source: p.Target, Target: p.Source, Protocol: p.Protocol, DontFragment: true, Flags: packet.RST}
	if p.Flags&packet.ACK != 0 {
		r.Seq = p.Ack
		return withoutWindow(r)
	}
	r.Flags |= packet.ACK
	r.Ack = p.Seq + uint32(len(p.Payload))
	for _, flag := range []uint8{packet.SYN, packet.FIN} {
		if p.Flags&flag != 0 {
			r.Ack++
		}
	}
	return withoutWindow(r)
}

// withoutWindow closes the window, which Bytes has open: all ones and all
// zeros are the same to a checksum.
func withoutWindow(p packet.Packet) []byte {
	b := p.Bytes()
	clear(b[len(b)-6 : len(b)-4])
	return b
}

// quoteLimit is how much of a packet an error repeats.
const quoteLimit = 96

// unreachable is what a closed port says to a datagram.
func unreachable(p packet.Packet, b []byte) []byte {
	if p.V4() {
		return answerError(p, 3, 3, 0, b)
	}
	return answerError(p, 1, 4, 0, b)
}

// answerError is an error about a packet, from where it was sent to.
func answerError(p packet.Packet, kind, code uint8, value uint32, b []byte) []byte {
	quoted := b[:min(len(b)&^3, quoteLimit)]
	return packet.Error(p.Target.Addr(), p.Source.Addr(), kind, code, value, quoted)
}

func TestPortsRunOut(t *testing.T) {
	n := twoPorts(t)
	n.kinds(t, func(t *testing.T, f family, protocol model.Protocol) {
		id := n.backendSet(model.RoleVIPInternal, protocol, f)
		front := n.front(f)
		set := n.serve(front, &model.Set{Key: id, Backends: withPort(8080, f.remote)})
		k := talkTo(f, protocol, front, netip.AddrPortFrom(f.remote, 8080))
		first, second := n.begin(k.from(1)), n.begin(k.from(2))
		if first.source == second.source {
			t.Errorf("both flows have the source %s", first.source)
		}
		exhausted := n.counter(counterPortsExhausted)
		third := k.from(3).there(opening[protocol], "who has no port is told so")
		n.in(n.eth0, third.Bytes()).answered(closed(third))
		if n.counter(counterPortsExhausted) == exhausted {
			t.Errorf("the want of ports was not counted")
		}
		n.expectRefused(front, protocol, 8)
		n.expectFlows(4, 0)
		n.send(first, opening[protocol], "who has one keeps it")

		n.part(t, "a port of an attempt without an answer is given away after some seconds", func(t *testing.T) {
			n.age(4 * time.Second)
			n.send(second, opening[protocol], "this one is alive")
			third := n.begin(k.from(3))
			if third.source != first.source {
				t.Errorf("the new flow has the source %s, want that of the attempt without an answer, %s", third.source, first.source)
			}
			n.expectFlows(4, 0)
			n.reply(third, answer[protocol], "")
			n.reply(second, answer[protocol], "")
			n.send(third, amid[protocol], "")
			n.send(second, amid[protocol], "")
		})

		n.part(t, "one of an open flow is not, until that has timed out", func(t *testing.T) {
			late := k.from(4).there(opening[protocol], "")
			n.age(time.Minute)
			n.in(n.eth0, late.Bytes()).answered(closed(late))
			n.expectFlows(0, 4)
			n.age(25 * time.Hour)
			n.begin(k.from(4))
			n.expectFlows(2, 2)
		})
		n.withdraw(front, set)
	})
}

func TestTheNodesOwnSocketsKeepTheirPorts(t *testing.T) {
	n := twoPorts(t)
	n.kinds(t, func(t *testing.T, f family, protocol model.Protocol) {
		front := n.front(f)
		set := n.serve(front, &model.Set{Key: n.backendSet(model.RoleVIPInternal, protocol, f), Backends: withPort(8080, f.remote)})
		defer n.withdraw(front, set)
		taken := netip.AddrPortFrom(f.second, 62001)
		defer n.listen(t, protocol, taken)()
		k := talkTo(f, protocol, front, netip.AddrPortFrom(f.remote, 8080))
		if first := n.begin(k.from(1)); first.source == taken {
			t.Errorf("the flow has the source %s of a socket", taken)
		}
		second := k.from(2).there(opening[protocol], "")
		n.in(n.eth0, second.Bytes()).answered(closed(second))
	})
}

func TestAnswersNeverBelongToTwoFlows(t *testing.T) {
	n := newNode(t)
	n.kinds(t, func(t *testing.T, f family, protocol model.Protocol) {
		backends := withPort(8080, f.pod)
		serve := func() (netip.AddrPort, SetID) {
			key, front := n.backendSet(model.RoleVIPInternal, protocol, f), n.front(f)
			return front, n.serve(front, &model.Set{Key: key, Backends: backends})
		}
		one, oneSet := serve()
		other, otherSet := serve()
		k := n.open(talkTo(f, protocol, one, backends[0].AddrPort))
		l := n.open(talkTo(f, protocol, other, backends[0].AddrPort))
		if k.source != k.client || l.source.Addr() != l.client.Addr() || l.source.Port() == k.source.Port() || l.source.Port() < 1024 {
			t.Errorf("the backend sees the client as %s and as %s, want its own address, and its own port once", k.source, l.source)
		}
		n.expectFlows(0, 4)
		for range 2 {
			n.reply(k, amid[protocol], "each flow has its answers")
			n.reply(l, amid[protocol], "and only its own")
			n.send(k, amid[protocol], "and goes on")
			n.send(l, amid[protocol], "as it began")
		}
		n.withdraw(one, oneSet)
		n.withdraw(other, otherSet)
	})
}

func TestAFlowThatLostOneDirectionIsOpenedAgain(t *testing.T) {
	n := newNode(t)
	n.either(t, func(t *testing.T, k talk, _ SetID) {
		k = n.open(k)
		for key, f := range n.confirmed() {
			if f.Flags&flowReply != 0 {
				continue
			}
			if err := n.current.maps[confirmedBy[k.protocol]].Delete(key); err != nil {
				t.Fatal(err)
			}
		}
		p := k.there(amid[k.protocol], "")
		o := n.in(n.eth0, p.Bytes())
		if k.protocol == model.TCP {
			o.answered(reset(p))
		}
		k = n.open(k)
		n.reply(k, amid[k.protocol], "")
	})
}

// listen makes a socket of the node's own; the returned function closes it.
func (n *node) listen(t *testing.T, protocol model.Protocol, at netip.AddrPort) (stop func()) {
	t.Helper()
	var socket io.Closer
	n.do(func() (err error) {
		if protocol == model.UDP {
			socket, err = net.ListenPacket("udp", at.String())
			return err
		}
		socket, err = net.Listen("tcp", at.String())
		return err
	})
	return func() { socket.Close() }
}

func TestAttemptsThatWereRefusedGiveTheirPortsAway(t *testing.T) {
	n := twoPorts(t)
	for _, f := range families {
		n.run(t, f.name, func(t *testing.T) {
			front := n.front(f)
			n.serve(front, &model.Set{Key: n.backendSet(model.RoleVIPInternal, model.TCP, f), Backends: withPort(8080, f.remote)})
			k := talkTo(f, model.TCP, front, netip.AddrPort{})
			for client := uint16(1); client <= 2; client++ {
				n.reply(n.begin(k.from(client)), packet.RST|packet.ACK, "")
			}
			n.age(4 * time.Second)
			n.begin(k.from(3))
		})
	}
}

// How a flow leaves past the stack is noted in its elements: where to, and by
// which device.
func TestFlowsLeaveByTheNodesRoutes(t *testing.T) {
	n := newNode(t)
	n.either(t, func(t *testing.T, k talk, _ SetID) {
		f := k.family()
		k = n.open(k)
		n.send(k, amid[k.protocol], "")
		n.reply(k, amid[k.protocol], "")
		for key, flow := range n.confirmed() {
			want := path{}
			switch {
			case k.isLocal():
			case flow.Flags&flowReply != 0:
				want = path{Device: n.eth0.index, MTU: 1500, Next: f.hop(f.gateway)}
			default:
				want = path{Device: n.eth1.index, MTU: smallMTU, Next: f.hop(f.router)}
			}
			got := flow.Path
			got.Found, got.Family = 0, 0
			if got != want {
				t.Errorf("the element %+v leaves by %+v, want %+v", key, got, want)
			}
		}
	})
}

// hop is an address as the kernel has it in a path.
func (f family) hop(a netip.Addr) (next address) {
	copy(next[:], a.AsSlice())
	return next
}

func TestConnectionsThatAreOverYieldTheirPorts(t *testing.T) {
	n := twoPorts(t)
	n.kinds(t, func(t *testing.T, f family, protocol model.Protocol) {
		if protocol != model.TCP {
			return
		}
		front := n.front(f)
		set := n.serve(front, &model.Set{Key: n.backendSet(model.RoleVIPInternal, protocol, f), Backends: withPort(8080, f.remote)})
		defer n.withdraw(front, set)
		k := talkTo(f, protocol, front, netip.AddrPortFrom(f.remote, 8080))
		over, open := n.open(k.from(1)), n.open(k.from(2))
		n.send(over, packet.FIN|packet.ACK, "")
		n.reply(over, packet.FIN|packet.ACK, "")
		third := k.from(3).there(opening[protocol], "at once it may still be needed")
		n.in(n.eth0, third.Bytes()).answered(closed(third))
		n.age(4 * time.Second)
		if next := n.begin(k.from(3)); next.source != over.source {
			t.Errorf("the new flow has the source %s, want that of the connection that is over, %s", next.source, over.source)
		}
		n.reply(open, packet.ACK, "who is not over goes on")
	})
}
