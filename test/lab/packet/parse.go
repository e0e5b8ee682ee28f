// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"
)

var errShort = errors.New("the packet ends before its headers do")

const (
	ipv6HeaderLength     = 40
	fragmentHeaderLength = 8
	icmpHeaderLength     = 8

	moreFragments4 = 0x2000
	dontFragment4  = 0x4000
	offsetMask4    = 0x1fff
)

// Parse reads an IP packet.
func Parse(b []byte) (Packet, error) { return parse(b, true) }

// parse reads a packet. One inside an ICMP error is not whole: it may be cut
// anywhere after its ports.
func parse(b []byte, whole bool) (Packet, error) {
	if len(b) == 0 {
		return Packet{}, errShort
	}
	if b[0]>>4 == 4 {
		return parse4(b, whole)
	}
	return parse6(b, whole)
}

func parse4(b []byte, whole bool) (Packet, error) {
	if len(b) < 20 {
		return Packet{}, errShort
	}
	header, total := int(b[0]&0xf)*4, int(binary.BigEndian.Uint16(b[2:]))
	if header < 20 || len(b) < header || total < header || whole && len(b) < total {
		return Packet{}, errShort
	}
	fragment := binary.BigEndian.Uint16(b[6:])
	p := Packet{
		ID: uint32(binary.BigEndian.Uint16(b[4:])), Offset: int(fragment&offsetMask4) * 8,
		More: fragment&moreFragments4 != 0, DontFragment: fragment&dontFragment4 != 0,
		TTL: b[8], Protocol: b[9],
	}
	source, target := netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
	p.Source, p.Target = netip.AddrPortFrom(source, 0), netip.AddrPortFrom(target, 0)
	err := p.parseTransport(b[header:min(total, len(b))], whole)
	if whole && fold(sum(0, b[:header])) != 0xffff {
		p.Checksum = Wrong
	}
	return p, err
}

func parse6(b []byte, whole bool) (Packet, error) {
	if len(b) < ipv6HeaderLength || b[0]>>4 != 6 {
		return Packet{}, errShort
	}
	total := ipv6HeaderLength + int(binary.BigEndian.Uint16(b[4:]))
	if whole && len(b) < total {
		return Packet{}, errShort
	}
	p := Packet{Protocol: b[6], TTL: b[7], DontFragment: true}
	source, target := netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
	p.Source, p.Target = netip.AddrPortFrom(source, 0), netip.AddrPortFrom(target, 0)
	rest := b[ipv6HeaderLength:min(total, len(b))]
	if p.Protocol == unix.IPPROTO_FRAGMENT {
		if len(rest) < fragmentHeaderLength {
			return p, errShort
		}
		offset := binary.BigEndian.Uint16(rest[2:])
		p.Protocol, p.Offset, p.More, p.ID = rest[0], int(offset&^7), offset&1 != 0, binary.BigEndian.Uint32(rest[4:])
		rest = rest[fragmentHeaderLength:]
	}
	return p, p.parseTransport(rest, whole)
}

func (p *Packet) parseTransport(b []byte, whole bool) error {
	p.Payload = b
	if p.Offset > 0 {
		return nil
	}
	if whole && !p.Fragment() {
		p.Checksum = p.check(b)
	}
	switch p.Protocol {
	case unix.IPPROTO_TCP:
		return p.parseTCP(b, whole)
	case unix.IPPROTO_UDP:
		return p.parseUDP(b)
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		return p.parseICMP(b)
	}
	return nil
}

func (p *Packet) setPorts(b []byte) {
	p.Source = netip.AddrPortFrom(p.Source.Addr(), binary.BigEndian.Uint16(b))
	p.Target = netip.AddrPortFrom(p.Target.Addr(), binary.BigEndian.Uint16(b[2:]))
}

func (p *Packet) parseTCP(b []byte, whole bool) error {
	if len(b) < 8 {
		return errShort
	}
	p.setPorts(b)
	p.Seq, p.Payload = binary.BigEndian.Uint32(b[4:]), nil
	if len(b) < 20 {
		if whole {
			return errShort
		}
		return nil
	}
	p.Ack, p.Flags = binary.BigEndian.Uint32(b[8:]), b[13]
	header := int(b[12]>>4) * 4
	if header < 20 || whole && len(b) < header {
		return errShort
	}
	p.Payload = b[min(header, len(b)):]
	return nil
}

func (p *Packet) parseUDP(b []byte) error {
	if len(b) < 8 {
		return errShort
	}
	p.setPorts(b)
	p.Payload = b[8:]
	return nil
}

func (p *Packet) parseICMP(b []byte) error {
	if len(b) < icmpHeaderLength {
		return errShort
	}
	p.Type, p.Code, p.Payload = b[0], b[1], b[icmpHeaderLength:]
	if !p.isError() {
		return nil
	}
	p.MTU = binary.BigEndian.Uint32(b[4:])
	inner, err := parse(p.Payload, false)
	if err != nil {
		return err
	}
	p.Inner = &inner
	return nil
}

// isError says whether an ICMP packet carries another one.
func (p *Packet) isError() bool {
	if p.Protocol == unix.IPPROTO_ICMPV6 {
		return p.Type < 128
	}
	return p.Type == 3 || p.Type == 11 || p.Type == 12
}

// check verifies the transport's checksum over all of its bytes.
func (p *Packet) check(b []byte) Checksum {
	var over uint32
	switch p.Protocol {
	case unix.IPPROTO_UDP:
		if p.V4() && len(b) >= 8 && b[6] == 0 && b[7] == 0 {
			return Right // IPv4 lets a sender leave it out
		}
		over = p.pseudo(len(b))
	case unix.IPPROTO_TCP, unix.IPPROTO_ICMPV6:
		over = p.pseudo(len(b))
	case unix.IPPROTO_ICMP:
	default:
		return Unknown
	}
	if fold(sum(over, b)) != 0xffff {
		return Wrong
	}
	return Right
}

// pseudo is the sum over what the transport's checksum covers of the IP header.
func (p *Packet) pseudo(length int) uint32 {
	s := sum(0, p.Source.Addr().AsSlice())
	s = sum(s, p.Target.Addr().AsSlice())
	return s + uint32(p.Protocol) + uint32(length)>>16 + uint32(length)&0xffff
}

func sum(s uint32, b []byte) uint32 {
	for ; len(b) > 1; b = b[2:] {
		s += uint32(binary.BigEndian.Uint16(b))
		s = s>>16 + s&0xffff
	}
	if len(b) == 1 {
		s += uint32(b[0]) << 8
	}
	return s
}

func fold(s uint32) uint16 {
	for s>>16 != 0 {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}
