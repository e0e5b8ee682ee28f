// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/test/lab/packet"
)

// complaints are the errors of a family, by type and code.
func complaints(f family) [][2]uint8 {
	if f.client.Is4() {
		return [][2]uint8{{3, 0}, {3, 1}, {3, 3}, {3, 4}, {4, 0}, {11, 0}, {11, 1}, {12, 0}}
	}
	return [][2]uint8{{1, 0}, {1, 4}, {2, 0}, {3, 0}, {3, 1}, {4, 0}, {4, 1}}
}

// about is an error of a router about a packet; it repeats some bytes of it.
func about(from netip.Addr, to packet.Packet, c [2]uint8, length int) []byte {
	b := to.Bytes()
	return packet.Error(from, to.Source.Addr(), c[0], c[1], 1300, b[:min(length, len(b))])
}

// quotedAs is a copy of an error that came through the node: from another
// address, to another one, about the packet as the other side knows it. The
// checksum of the transport inside stays what it was.
func quotedAs(b []byte, from netip.AddrPort, ttl uint8, inner packet.Packet) []byte {
	outer := 20
	if b[0]>>4 == 6 {
		outer = 40
	}
	quoted := bytes.Clone(b[outer+8:])
	whole := inner.Bytes()
	transport := outer
	copy(quoted[:transport], whole[:transport])
	if outer == 20 {
		copy(quoted[2:4], b[outer+8+2:])
		reseal(quoted[:20])
	}
	copy(quoted[transport:], whole[transport:transport+4])
	e := packet.Error(from.Addr(), inner.Source.Addr(), b[outer], b[outer+1], binary.BigEndian.Uint32(b[outer+4:]), quoted)
	if outer == 20 {
		e[8] = ttl
		reseal(e[:20])
	} else {
		e[7] = ttl
	}
	return e
}

// reseal gives an IPv4 header its checksum.
func reseal(header []byte) {
	header[10], header[11] = 0, 0
	sum := uint32(0)
	for i := 0; i < len(header); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(header[i:]))
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(header[10:], ^uint16(sum))
}

// known gives a packet that went on translated the addresses of its sender.
func (k talk) known(p packet.Packet) packet.Packet {
	if p.Source == k.front {
		p.Source, p.Target = k.back, k.source
		return p
	}
	p.Source, p.Target = k.client, k.front
	return p
}

func TestErrorsAreTranslated(t *testing.T) {
	n := newNode(t)
	n.either(t, func(t *testing.T, k talk, _ SetID) {
		f := k.family()
		header := len(k.there(0, "").Bytes()) - map[model.Protocol]int{model.TCP: 20, model.UDP: 8}[k.protocol]
		for _, state := range []string{"in the making", "open"} {
			if state == "in the making" {
				k = n.begin(k)
			} else {
				n.reply(k, answer[k.protocol], "")
				n.send(k, amid[k.protocol], "")
			}
			for _, c := range complaints(f) {
				for _, length := range []int{header + 8, header + 20, header + 400} {
					n.part(t, fmt.Sprintf("%s %d/%d of %d", state, c[0], c[1], length), func(*testing.T) { n.errorsBothWays(k, f, c, length) })
				}
			}
		}
	})
}

// errorsBothWays sends an error about a packet of the client, from where the
// backend is, and one about a packet of the backend, from where the client is.
func (n *node) errorsBothWays(k talk, f family, c [2]uint8, length int) {
	n.t.Helper()
	payload := string(bytes.Repeat([]byte("x"), 600))

	seen := k.there(amid[k.protocol], payload)
	seen.Source, seen.Target = k.source, k.back
	e := about(k.back.Addr(), seen, c, length)
	toClient := quotedAs(e, k.front, k.ttl, k.known(seen))
	if k.isLocal() {
		n.out(e).becomes(toClient)
	} else {
		n.in(n.eth1, about(f.router, seen, c, length)).leaves(toClient)
	}

	seen = k.again(amid[k.protocol], payload)
	seen.Source, seen.Target = k.front, k.client
	e = about(f.gateway, seen, c, length)
	if k.isLocal() {
		n.in(n.eth0, e).becomes(quotedAs(e, netip.AddrPortFrom(f.gateway, 0), k.ttl, k.known(seen)))
		return
	}
	n.in(n.eth0, e).leaves(quotedAs(e, k.source, k.ttl, k.known(seen)))
}

func TestOtherICMPIsUntouched(t *testing.T) {
	n := newNode(t)
	n.either(t, func(t *testing.T, k talk, _ SetID) {
		f := k.family()
		k = n.open(k)
		for kind := range 256 {
			if f.client.Is4() && (kind == 3 || kind == 4 || kind == 11 || kind == 12) || f.client.Is6() && kind >= 1 && kind <= 4 {
				continue
			}
			inner := k.again(amid[k.protocol], "")
			inner.Source, inner.Target = k.front, k.client
			n.in(n.eth0, about(f.gateway, inner, [2]uint8{uint8(kind), 0}, 100)).untouched()
		}
		stranger := k.again(amid[k.protocol], "")
		stranger.Source, stranger.Target = k.front, netip.AddrPortFrom(k.client.Addr(), 1)
		n.in(n.eth0, about(f.gateway, stranger, complaints(f)[0], 100)).untouched()
	})
}

func TestErrorsThatQuoteWhatCannotBeAreUntouched(t *testing.T) {
	n := newNode(t)
	n.either(t, func(t *testing.T, k talk, _ SetID) {
		f := k.family()
		k = n.open(k)
		inner := k.again(amid[k.protocol], "payload")
		inner.Source, inner.Target = k.front, k.client
		whole := inner.Bytes()
		quoted := map[string][]byte{
			"another protocol":          withByte(whole, map[bool]int{true: 9, false: 6}[f.client.Is4()], unix.IPPROTO_SCTP),
			"no version":                withByte(whole, 0, 0x05),
			"nothing":                   nil,
			"less than ports":           whole[:len(whole)-len("payload")-6-map[model.Protocol]int{model.TCP: 12, model.UDP: 0}[k.protocol]],
			"the other family's header": withByte(whole, 0, whole[0]^0x20),
		}
		if f.client.Is4() {
			quoted["a header that ends before it does"] = withByte(whole, 0, 0x44)
			quoted["a later fragment"] = withByte(whole, 7, 1)
		}
		for name, b := range quoted {
			n.part(t, name, func(*testing.T) {
				c := complaints(f)[0]
				n.in(n.eth0, packet.Error(f.gateway, k.front.Addr(), c[0], c[1], 0, b)).untouched()
			})
		}
	})
}

// A mapped address is IPv4's to the maps, and nobody's on the wire.
func TestErrorsOverIPv6NeverBelongToFlowsOfIPv4(t *testing.T) {
	n := newNode(t)
	n.either(t, func(t *testing.T, k talk, _ SetID) {
		if k.client.Addr().Is6() {
			return
		}
		k = n.open(k)
		mapped := func(a netip.AddrPort) netip.AddrPort {
			return netip.AddrPortFrom(netip.AddrFrom16(a.Addr().As16()), a.Port())
		}
		inner := k.again(amid[k.protocol], "")
		inner.Source, inner.Target = mapped(k.front), mapped(k.client)
		n.in(n.eth0, packet.Error(ipv6.gateway, ipv6.vip, 1, 0, 0, inner.Bytes())).untouched()
		n.in(n.eth0, inner.Bytes()).untouched()
	})
}

func withByte(b []byte, i int, to byte) []byte {
	b = bytes.Clone(b)
	b[i] = to
	return b
}

func TestPacketsThatAreTooBigAreAnswered(t *testing.T) {
	n := newNode(t)
	n.kinds(t, func(t *testing.T, f family, protocol model.Protocol) {
		front, key := n.front(f), n.backendSet(model.RoleVIPInternal, protocol, f)
		n.serve(front, &model.Set{Key: key, Backends: withPort(8080, f.remote)})
		k := n.open(talkTo(f, protocol, front, netip.AddrPortFrom(f.remote, 8080)))
		headers := len(k.there(amid[protocol], "").Bytes())
		fits := k.there(amid[protocol], string(make([]byte, smallMTU-headers)))
		n.in(n.eth0, fits.Bytes()).leaves(k.translated(fits))
		big := k.there(amid[protocol], string(make([]byte, smallMTU-headers+1)))
		before := n.counter(counterTooBig)
		for range 2 {
			n.in(n.eth0, big.Bytes()).answered(tooBig(big))
		}
		if got := n.counter(counterTooBig) - before; got != 2 {
			t.Errorf("%d packets were counted, want 2", got)
		}

		huge := k.there(amid[protocol], string(make([]byte, 2800)))
		frame := n.eth0.frame(n.eth0.mac, huge.Bytes())
		segments := func(size int) outcome {
			return n.pass(meeting{program: "fairlead_ingress", device: n.eth0, gso: uint32(size)}, frame)
		}
		segments(smallMTU - headers).leaves(k.translated(huge))
		if o := segments(smallMTU - headers + 1); o.verdict != verdictRedirect || o.packet().Inner == nil {
			t.Errorf("segments that do not fit became %s", show(o.frame))
		}
	})
}

// Errors are about first fragments only.
func TestLaterFragmentsThatAreTooBigAreDropped(t *testing.T) {
	n := newNode(t)
	n.kinds(t, func(t *testing.T, f family, protocol model.Protocol) {
		front, key := n.front(f), n.backendSet(model.RoleVIPInternal, protocol, f)
		n.serve(front, &model.Set{Key: key, Backends: withPort(8080, f.remote)})
		k := n.open(talkTo(f, protocol, front, netip.AddrPortFrom(f.remote, 8080)))
		parts := packet.Fragments(k.there(amid[protocol], string(make([]byte, 3000))).Bytes(), 7, 1440)
		if first := n.in(n.eth0, parts[0]); !first.isAnswer() || first.packet().MTU != smallMTU {
			t.Errorf("the first fragment became %s", show(first.frame))
		}
		small := packet.Fragments(k.there(amid[protocol], "small enough").Bytes(), 7, 24)
		if first := n.in(n.eth0, small[0]); first.verdict != verdictRedirect || first.isAnswer() {
			t.Errorf("a small first fragment became %s", show(first.frame))
		}
		n.in(n.eth0, parts[1]).dropped()
	})
}

// tooBig is what a router says to a packet for eth1.
func tooBig(p packet.Packet) []byte {
	if p.V4() {
		return answerError(p, 3, 4, smallMTU, p.Bytes())
	}
	return answerError(p, 2, 0, smallMTU, p.Bytes())
}

func TestPacketsAtTheEndOfTheirLifeAreAnswered(t *testing.T) {
	n := newNode(t)
	n.either(t, func(t *testing.T, k talk, _ SetID) {
		k = n.open(k)
		for _, ttl := range []uint8{2, 1} {
			p := k.there(amid[k.protocol], "")
			p.TTL = ttl
			b := p.Bytes()
			o := n.in(n.eth0, b)
			switch {
			case k.isLocal():
				// The stack counts it down, and says so.
				k := k
				k.ttl = ttl
				o.becomes(k.translated(p))
			case ttl == 2:
				k := k
				k.ttl = 1
				o.leaves(k.translated(p))
			case p.V4():
				o.answered(answerError(p, 11, 0, 0, b))
			default:
				o.answered(answerError(p, 3, 0, 0, b))
			}
		}
	})
}
