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

// datagram is a packet in fragments.
func datagram(b []byte, id uint32) [][]byte { return packet.Fragments(b, id, 64) }

func TestFragmentsAreTranslated(t *testing.T) {
	n := newNode(t)
	n.either(t, func(t *testing.T, k talk, _ SetID) {
		k = n.open(k)
		p := k.there(amid[k.protocol], string(bytes.Repeat([]byte("to the backend "), 20)))
		sent, seen := datagram(p.Bytes(), 7), datagram(k.translated(p), 7)
		// The one that has the ports is first; the rest may come in any order.
		for _, i := range []int{0, 3, 1, 4, 2} {
			if o := n.in(n.eth0, sent[i]); k.isLocal() {
				o.becomes(seen[i])
			} else {
				o.leaves(seen[i])
			}
		}
		p = k.again(amid[k.protocol], string(bytes.Repeat([]byte("to the client "), 20)))
		sent, seen = datagram(p.Bytes(), 7), datagram(k.translated(p), 7)
		for i := range sent {
			if k.isLocal() {
				n.out(sent[i]).becomes(seen[i])
				continue
			}
			n.in(n.eth1, sent[i]).leaves(seen[i])
		}
	})
}

func TestAFirstFragmentOpensAFlow(t *testing.T) {
	n := newNode(t)
	n.either(t, func(t *testing.T, k talk, _ SetID) {
		p := k.there(0, string(make([]byte, 100)))
		sent := datagram(p.Bytes(), 8)
		k.source, k.back = n.in(n.eth0, sent[0]).packet().Source, n.in(n.eth0, sent[0]).packet().Target
		seen := datagram(k.translated(p), 8)
		for i := range sent {
			if o := n.in(n.eth0, sent[i]); k.isLocal() {
				o.becomes(seen[i])
			} else {
				o.leaves(seen[i])
			}
		}
	}, model.UDP)
}

func TestLaterFragmentsWithoutTheFirstAreLeftAlone(t *testing.T) {
	n := newNode(t)
	n.either(t, func(t *testing.T, k talk, _ SetID) {
		k = n.open(k)
		before := n.counter(counterFragmentsUnknown)
		p := k.there(amid[k.protocol], string(make([]byte, 200)))
		later := datagram(p.Bytes(), 9)[1:]
		for _, b := range later {
			n.in(n.eth0, b).untouched()
		}
		if got := n.counter(counterFragmentsUnknown) - before; got != uint64(len(later)) {
			t.Errorf("%d fragments were counted, want %d", got, len(later))
		}
		n.out(datagram(k.again(amid[k.protocol], string(make([]byte, 200))).Bytes(), 9)[1]).untouched()
	})
}

func TestFragmentsBetweenOthersAreNotCounted(t *testing.T) {
	n := newNodeWith(t, Config{ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")}})
	n.kinds(t, func(t *testing.T, f family, protocol model.Protocol) {
		p := say(protocol, netip.AddrPortFrom(f.client, 40000), netip.AddrPortFrom(f.pod, 8080), 0, string(make([]byte, 200)))
		for _, b := range datagram(p.Bytes(), 9) {
			n.in(n.eth0, b).untouched()
		}
		if got := n.counter(counterFragmentsUnknown); got != 0 {
			t.Errorf("%d fragments were counted, and none was a Service's", got)
		}
	})
}

func TestAFragmentOfAllIsAWholePacket(t *testing.T) {
	n := newNode(t)
	n.either(t, func(t *testing.T, k talk, _ SetID) {
		k = n.open(k)
		p := k.there(amid[k.protocol], "short enough")
		sent, seen := packet.Fragments(p.Bytes(), 7, 1024)[0], packet.Fragments(k.translated(p), 7, 1024)[0]
		if o := n.in(n.eth0, sent); k.isLocal() {
			o.becomes(seen)
		} else {
			o.leaves(seen)
		}
	})
}

func TestPacketsWithOptionsAreTranslated(t *testing.T) {
	n := newNode(t)
	n.either(t, func(t *testing.T, k talk, _ SetID) {
		k = n.open(k)
		p, q := k.there(amid[k.protocol], "a question"), k.again(amid[k.protocol], "an answer")
		for _, length := range []int{1, 10} {
			o := n.in(n.eth0, withOptions(p.Bytes(), length))
			r := withOptions(q.Bytes(), length)
			if k.isLocal() {
				o.becomes(withOptions(k.translated(p), length))
				n.out(r).becomes(withOptions(k.translated(q), length))
				continue
			}
			o.leaves(withOptions(k.translated(p), length))
			n.in(n.eth1, r).leaves(withOptions(k.translated(q), length))
		}
	})
}

func TestDatagramsWithoutAChecksumGetNone(t *testing.T) {
	n := newNode(t)
	n.either(t, func(t *testing.T, k talk, _ SetID) {
		k = n.open(k)
		without := func(b []byte) []byte {
			clear(b[len(b)-8-len("payload")+6:][:2])
			return b
		}
		p, q := k.there(0, "payload"), k.again(0, "payload")
		o := n.in(n.eth0, without(p.Bytes()))
		if k.isLocal() {
			o.goesOnAs(verdictNext, without(k.translated(p)))
			n.out(without(q.Bytes())).goesOnAs(verdictNext, without(k.translated(q)))
			return
		}
		o.goesOnAs(verdictRedirect, without(k.translated(p)))
		n.in(n.eth1, without(q.Bytes())).goesOnAs(verdictRedirect, without(k.translated(q)))
	}, model.UDP)
}

// goesOnAs expects these bytes, whether or not their checksum is right.
func (o outcome) goesOnAs(verdict int, want []byte) {
	o.t.Helper()
	if o.verdict != verdict || !bytes.Equal(o.frame[ethernetLength:], want) {
		o.t.Errorf("verdict %d for % x, want %d for % x", o.verdict, o.frame[ethernetLength:], verdict, want)
	}
}

// A checksum that comes to zero is written as all ones: zero says that there is
// none.
func TestAChecksumNeverBecomesZero(t *testing.T) {
	n := newNode(t)
	n.either(t, func(t *testing.T, k talk, _ SetID) {
		k = n.open(k)
		p := k.there(0, "\x00\x00")
		b := k.translated(p)
		// A payload that makes up for the rest of the sum.
		p.Payload = b[len(b)-4 : len(b)-2]
		want := k.translated(p)
		if got := binary.BigEndian.Uint16(want[len(want)-4:]); got != 0xffff {
			t.Fatalf("the checksum that is wanted is %#x, want all ones", got)
		}
		if o := n.in(n.eth0, p.Bytes()); k.isLocal() {
			o.becomes(want)
		} else {
			o.leaves(want)
		}
	}, model.UDP)
}

func TestWhatIsNobodysIsUntouched(t *testing.T) {
	n := newNode(t)
	n.either(t, func(t *testing.T, k talk, _ SetID) {
		k = n.open(k)
		p := k.there(amid[k.protocol], "payload")
		for protocol := range 256 {
			p.Protocol = uint8(protocol)
			if protocol == int(k.protocol) || p.V4() == false && isExtension(uint8(protocol)) {
				continue
			}
			n.in(n.eth0, p.Bytes()).untouched()
			n.out(p.Bytes()).untouched()
		}
		stranger := say(k.protocol, k.client, k.client, opening[k.protocol], "from here to there")
		n.in(n.eth0, stranger.Bytes()).untouched()
		n.out(stranger.Bytes()).untouched()
		ip := k.there(amid[k.protocol], "payload").Bytes()
		for _, kind := range []uint16{0, 0x0600, 0x0806, 0x8100, 0x88a8, 0x8847, 0x88cc, 0xffff} {
			frame := n.eth0.frame(n.eth0.mac, ip)
			binary.BigEndian.PutUint16(frame[12:], kind)
			for _, program := range []string{"fairlead_ingress", "fairlead_egress"} {
				n.pass(meeting{program: program, device: n.eth0}, frame).untouched()
			}
		}
		for _, to := range [][]byte{{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, {1, 0, 0x5e, 0, 0, 1}, {2, 9, 9, 9, 9, 9}} {
			n.pass(meeting{program: "fairlead_ingress", device: n.eth0}, n.eth0.frame(to, ip)).untouched()
		}
	})
}

// isExtension says that what follows is read as a header of IPv6.
func isExtension(protocol uint8) bool {
	switch protocol {
	case unix.IPPROTO_HOPOPTS, unix.IPPROTO_ROUTING, unix.IPPROTO_FRAGMENT, unix.IPPROTO_DSTOPTS:
		return true
	}
	return false
}
