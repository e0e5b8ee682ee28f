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

// headerLength is that of the network header. The kernel runs programs on no
// frame that is shorter.
func (f family) headerLength() int {
	if f.client.Is4() {
		return 20
	}
	return 40
}

func TestTruncatedPacketsAreLeftAlone(t *testing.T) {
	n := newNode(t)
	n.either(t, func(t *testing.T, k talk, _ SetID) {
		k = n.open(k)
		front := n.without(model.ActionReject, k.protocol, k.family())
		refused := k
		refused.front = front
		transport := map[model.Protocol]int{model.TCP: 20, model.UDP: 8}[k.protocol]
		for _, p := range []packet.Packet{k.there(amid[k.protocol], "payload"), refused.there(opening[k.protocol], "payload")} {
			b := p.Bytes()
			malformed := n.counter(counterMalformed)
			for length := k.family().headerLength(); length < len(b); length++ {
				n.in(n.eth0, b[:length]).untouched()
				n.out(b[:length]).untouched()
			}
			want := uint64(transport + len("payload"))
			if got := n.counter(counterMalformed) - malformed; got != want {
				t.Errorf("%d packets were counted as malformed, want %d", got, want)
			}
		}
		e := about(k.family().gateway, k.known(k.again(amid[k.protocol], "payload")), complaints(k.family())[0], 400)
		for length := k.family().headerLength(); length < len(e); length++ {
			if o := n.in(n.eth0, e[:length]); o.verdict == verdictDrop {
				t.Errorf("%d bytes of an error were dropped", length)
			}
		}
	})
}

func TestHeadersThatLieAreLeftAlone(t *testing.T) {
	n := newNode(t)
	n.either(t, func(t *testing.T, k talk, _ SetID) {
		k = n.open(k)
		b := k.there(amid[k.protocol], "payload").Bytes()
		header := len(b) - len("payload") - map[model.Protocol]int{model.TCP: 20, model.UDP: 8}[k.protocol]
		lies := map[string][]byte{
			"another version":           withByte(b, 0, 0x55),
			"the other family's header": withByte(b, 0, b[0]^0x20),
		}
		if k.family().client.Is4() {
			for words := range 5 {
				lies[fmt.Sprintf("a header of %d words", words)] = withByte(b, 0, 0x40|byte(words))
			}
			lies["more than there is"] = withUint16(b, 2, uint16(len(b)+1))
			lies["no length"] = withUint16(b, 2, 0)
			lies["less than its headers"] = withUint16(b, 2, uint16(header+7))
		} else {
			lies["more than there is"] = withUint16(b, 4, uint16(len(b)-40+1))
			lies["no length"] = withUint16(b, 4, 0)
			lies["the most there can be"] = withUint16(b, 4, 0xffff)
		}
		if k.protocol == model.TCP {
			for words := range 5 {
				lies[fmt.Sprintf("a TCP header of %d words", words)] = withByte(b, header+12, byte(words)<<4)
			}
			lies["a TCP header of all the packet and more"] = withByte(b, header+12, 0xf0)
		}
		for name, lie := range lies {
			n.part(t, name, func(t *testing.T) {
				frame := append(n.eth0.frame(n.eth0.mac, b)[:ethernetLength], lie...)
				n.pass(meeting{program: "fairlead_ingress", device: n.eth0}, frame).untouched()
				n.pass(meeting{program: "fairlead_egress", device: n.eth0}, frame).untouched()
			})
		}
		n.expectFlows(0, 2)
	})
}

func withUint16(b []byte, i int, to uint16) []byte {
	b = bytes.Clone(b)
	binary.BigEndian.PutUint16(b[i:], to)
	return b
}

// A device pads what is short.
func TestPaddingIsNoPartOfThePacket(t *testing.T) {
	n := newNode(t)
	n.either(t, func(t *testing.T, k talk, _ SetID) {
		k = n.open(k)
		p, padding := k.there(amid[k.protocol], ""), make([]byte, 6)
		o := n.in(n.eth0, append(p.Bytes(), padding...))
		if k.isLocal() {
			o.becomes(append(k.translated(p), padding...))
		} else {
			o.leaves(append(k.translated(p), padding...))
		}
		k.front = n.without(model.ActionReject, k.protocol, k.family())
		p = k.there(opening[k.protocol], "")
		n.in(n.eth0, append(p.Bytes(), padding...)).answered(closed(p))
	})
}

func TestChainsOfExtensionHeaders(t *testing.T) {
	n := newNode(t)
	n.kinds(t, func(t *testing.T, f family, protocol model.Protocol) {
		if f.client.Is4() {
			return
		}
		front, key := n.front(f), n.backendSet(model.RoleVIPInternal, protocol, f)
		n.serve(front, &model.Set{Key: key, Backends: withPort(8080, f.pod)})
		k := n.open(talkTo(f, protocol, front, netip.AddrPortFrom(f.pod, 8080)))
		p := k.there(amid[protocol], "payload")
		sent, seen := p.Bytes(), k.translated(p)
		for length := 1; length <= 9; length++ {
			kind := []uint8{unix.IPPROTO_HOPOPTS, unix.IPPROTO_DSTOPTS, unix.IPPROTO_ROUTING}[length%3]
			content := make([]byte, 6+8*(length%4))
			sent, seen = packet.WithExtension(sent, kind, content), packet.WithExtension(seen, kind, content)
			if length <= 6 {
				n.in(n.eth0, sent).becomes(seen)
				continue
			}
			n.in(n.eth0, sent).untouched()
		}
		beyond := packet.WithExtension(p.Bytes(), unix.IPPROTO_HOPOPTS, make([]byte, 6))
		for _, length := range []byte{1, 2, 9, 255} {
			n.in(n.eth0, withByte(beyond, 41, length)).untouched()
		}
		n.in(n.eth0, packet.WithExtension(p.Bytes(), unix.IPPROTO_AH, make([]byte, 6))).untouched()
	})
}

func TestNobodyOpensAFlowFromSuchAnAddress(t *testing.T) {
	n := newNode(t)
	sources := map[string][]netip.Addr{
		"IPv4": {ipv4.node, ipv4.second, netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.9.9.9"), netip.MustParseAddr("0.0.0.0"),
			netip.MustParseAddr("224.0.0.1"), netip.MustParseAddr("239.255.255.250"), netip.MustParseAddr("255.255.255.255")},
		"IPv6": {ipv6.node, ipv6.second, netip.IPv6Loopback(), netip.IPv6Unspecified(), netip.MustParseAddr("ff02::1"), netip.MustParseAddr("ff0e::7"),
			netip.MustParseAddr("::ffff:198.51.100.7"), netip.MustParseAddr("::ffff:127.0.0.1")},
	}
	n.either(t, func(t *testing.T, k talk, _ SetID) {
		rejected := n.without(model.ActionReject, k.protocol, k.family())
		for _, source := range sources[k.family().name] {
			for _, to := range []netip.AddrPort{k.front, rejected} {
				p := say(k.protocol, netip.AddrPortFrom(source, 40000), to, opening[k.protocol], "")
				n.in(n.eth0, p.Bytes()).untouched()
				p.Flags = amid[k.protocol]
				n.in(n.eth0, p.Bytes()).untouched()
			}
		}
		n.expectFlows(0, 0)
	})
}
