// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/test/lab/packet"
)

// populated is a node that serves a bit of everything, with open flows.
func populated(t testing.TB) (n *node, open []talk) {
	t.Helper()
	n = newNode(t)
	for _, f := range families {
		for _, protocol := range []model.Protocol{model.TCP, model.UDP} {
			for _, backend := range []netip.Addr{f.pod, f.remote} {
				front, key := n.front(f), n.backendSet(model.RoleVIPInternal, protocol, f)
				n.serve(front, &model.Set{Key: key, Backends: withPort(8080, backend)})
				open = append(open, n.open(talkTo(f, protocol, front, netip.AddrPortFrom(backend, 8080))))
			}
			for _, action := range []model.Action{model.ActionReject, model.ActionDrop} {
				open = append(open, talkTo(f, protocol, n.without(action, protocol, f), netip.AddrPortFrom(f.pod, 1)))
			}
		}
	}
	return n, open
}

// seeds are packets of all kinds, in both directions of a flow.
func seeds(k talk) [][]byte {
	f := k.family()
	p, q := k.there(amid[k.protocol], "a question"), k.again(amid[k.protocol], "an answer")
	fromClient := k.again(amid[k.protocol], "")
	fromClient.Source, fromClient.Target = k.front, k.client
	fromBackend := k.there(amid[k.protocol], "")
	fromBackend.Source, fromBackend.Target = k.source, k.back
	last := p
	last.TTL = 1
	all := [][]byte{
		k.there(opening[k.protocol], "").Bytes(), p.Bytes(), q.Bytes(), last.Bytes(),
		withOptions(p.Bytes(), 3), withOptions(q.Bytes(), 10),
		k.there(amid[k.protocol], string(make([]byte, 1450))).Bytes(),
		withByte(p.Bytes(), f.headerLength()+12, 0xf0),
	}
	for _, c := range complaints(f) {
		all = append(all, about(f.gateway, fromClient, c, 100), about(f.router, fromBackend, c, 48))
	}
	return append(all, packet.Fragments(p.Bytes(), 7, 8)...)
}

// FuzzWire gives any bytes to both programs. Whatever they are, the programs
// leave them alone, translate them, answer them or drop and count them.
func FuzzWire(f *testing.F) {
	n, open := populated(f)
	for _, k := range open {
		for _, b := range seeds(k) {
			f.Add(b, uint16(0))
			f.Add(b, uint16(1200))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, gso uint16) {
		if len(b) > 3000 {
			b = b[:3000]
		}
		// The kernel runs programs on no frame that is shorter than its header.
		if len(b) < 20 || b[0]>>4 == 6 && len(b) < 40 {
			return
		}
		n.t = t
		for _, d := range []wireDevice{n.eth0, n.eth1, n.pod} {
			for _, program := range []string{"fairlead_ingress", "fairlead_egress"} {
				lost := n.losses()
				o := n.pass(meeting{program: program, device: d, gso: uint32(gso)}, d.frame(d.mac, b))
				o.check(n.losses() - lost)
			}
		}
	})
}

// losses sums all that counts packets that were dropped.
func (n *node) losses() uint64 {
	n.t.Helper()
	sum := n.counter(counterUnroutable) + n.counter(counterTooBig) + n.counter(counterFailed)
	for _, refusals := range n.refusals() {
		sum += refusals
	}
	return sum
}

// check expects what holds of any packet, of which so many were lost.
func (o outcome) check(lost uint64) {
	o.t.Helper()
	before, after := o.before[ethernetLength:], o.frame[ethernetLength:]
	switch {
	case o.verdict == verdictDrop:
		// At the end of its life a packet is dropped by routers without much ado.
		if ttl := before[map[byte]int{4: 8, 6: 7}[before[0]>>4]]; lost == 0 && ttl > 1 {
			o.t.Errorf("dropped and not counted: %s", show(o.before))
		}
	case o.isAnswer():
		o.checkAnswer(before, after)
	case o.verdict == verdictNext || o.verdict == verdictRedirect:
		o.checkTranslation(before, after)
	default:
		o.t.Errorf("verdict %d for %s", o.verdict, show(o.before))
	}
}

// checkAnswer expects a right packet to who sent the one before.
func (o outcome) checkAnswer(before, after []byte) {
	o.t.Helper()
	source, target := 12, 16
	length := 4
	if before[0]>>4 == 6 {
		source, target, length = 8, 24, 16
	}
	_, unreadable := packet.Parse(before)
	p, err := packet.Parse(after)
	// What is repeated of a packet that nobody can read cannot be read either.
	if err != nil && unreadable == nil || p.Checksum != packet.Right ||
		!bytes.Equal(after[target:target+length], before[source:source+length]) || !bytes.Equal(after[source:source+length], before[target:target+length]) {
		o.t.Errorf("answered %s by %s, %v", show(o.before), show(o.frame), err)
	}
}

// checkTranslation expects that nothing changed but what translation changes,
// and that checksums are as right as they were.
func (o outcome) checkTranslation(before, after []byte) {
	o.t.Helper()
	if bytes.Equal(before, after) && o.verdict == verdictNext {
		return
	}
	if len(before) != len(after) {
		o.t.Fatalf("%d bytes became %d: %s became %s", len(before), len(after), show(o.before), show(o.frame))
	}
	if !bytes.Equal(without(before, mutable(before)), without(after, mutable(before))) {
		o.t.Errorf("more changed than addresses, ports and checksums: %s became %s", show(o.before), show(o.frame))
	}
	was, err := packet.Parse(before)
	if err != nil {
		return
	}
	is, err := packet.Parse(after)
	if err != nil || is.Checksum != was.Checksum {
		o.t.Errorf("%s became %s, %v", show(o.before), show(o.frame), err)
	}
}

// span is from and up to a byte.
type span [2]int

// without is a copy with zeros in the given parts.
func without(b []byte, parts []span) []byte {
	b = bytes.Clone(b)
	for _, p := range parts {
		clear(b[min(p[0], len(b)):min(p[1], len(b))])
	}
	return b
}

// mutable are the parts of a packet that translation may change.
func mutable(b []byte) []span {
	at, protocol, fixed := transportOf(b)
	parts := append([]span{}, fixed...)
	switch protocol {
	case unix.IPPROTO_TCP:
		return append(parts, span{at, at + 4}, span{at + 16, at + 18})
	case unix.IPPROTO_UDP:
		return append(parts, span{at, at + 4}, span{at + 6, at + 8})
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		parts = append(parts, span{at + 2, at + 4})
		if len(b) < at+8+20 {
			return parts
		}
		inner, _, fixed := transportOf(b[at+8:])
		for _, p := range append(fixed, span{inner, inner + 4}) {
			parts = append(parts, span{at + 8 + p[0], at + 8 + p[1]})
		}
	}
	return parts
}

// transportOf finds the transport of a packet, and what of the network header
// translation may change.
func transportOf(b []byte) (at int, protocol uint8, parts []span) {
	if b[0]>>4 == 4 {
		at, parts = int(b[0]&0xf)*4, []span{{8, 9}, {10, 20}}
		if binary.BigEndian.Uint16(b[6:])&0x1fff != 0 {
			return at, 0, parts
		}
		return at, b[9], parts
	}
	at, protocol, parts = 40, b[6], []span{{7, 40}}
	for range 6 {
		if !isExtension(protocol) || len(b) < at+8 {
			break
		}
		if protocol == unix.IPPROTO_FRAGMENT {
			if binary.BigEndian.Uint16(b[at+2:])&^7 != 0 {
				return at, 0, parts
			}
			at, protocol = at+8, b[at]
			continue
		}
		at, protocol = at+8+8*int(b[at+1]), b[at]
	}
	return at, protocol, parts
}
