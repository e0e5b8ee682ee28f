// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// The functions below make of what Bytes has written what it cannot write.

// WithOptions puts options into an IPv4 header: a multiple of four bytes, at
// most 40.
func WithOptions(b, options []byte) []byte {
	b = slices.Insert(slices.Clone(b), 20, options...)
	b[0] += byte(len(options) / 4)
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	return sealed(b)
}

// WithExtension puts an extension header behind the fixed header of IPv6. Its
// content follows the first two bytes, and is 6 bytes long or 8 more, 16 more….
func WithExtension(b []byte, kind uint8, content []byte) []byte {
	extension := append([]byte{b[6], byte(len(content) / 8)}, content...)
	b = slices.Insert(slices.Clone(b), ipv6HeaderLength, extension...)
	b[6] = kind
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)-ipv6HeaderLength))
	return b
}

// Fragments cuts a packet without options behind each size bytes of its
// transport, a multiple of eight.
func Fragments(b []byte, id uint32, size int) [][]byte {
	header := ipv6HeaderLength
	if b[0]>>4 == 4 {
		header = 20
	}
	var parts [][]byte
	for offset := 0; header+offset < len(b); offset += size {
		end := min(header+offset+size, len(b))
		part := append(slices.Clone(b[:header]), b[header+offset:end]...)
		parts = append(parts, asFragment(part, id, offset, end < len(b)))
	}
	return parts
}

// asFragment makes a packet say that it is a part of a datagram.
func asFragment(b []byte, id uint32, offset int, more bool) []byte {
	if b[0]>>4 == 4 {
		binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
		binary.BigEndian.PutUint16(b[4:], uint16(id))
		binary.BigEndian.PutUint16(b[6:], uint16(offset/8)|flag(more, moreFragments4))
		return sealed(b)
	}
	content := binary.BigEndian.AppendUint16(nil, uint16(offset)|flag(more, 1))
	content = binary.BigEndian.AppendUint32(content, id)
	b = WithExtension(b, unix.IPPROTO_FRAGMENT, content)
	b[ipv6HeaderLength+1] = 0
	return b
}

// Error writes an ICMP error that repeats a packet, or the first part of one,
// byte for byte. The value is what stands behind the checksum.
func Error(source, target netip.Addr, kind, code uint8, value uint32, quoted []byte) []byte {
	p := Packet{
		Source: netip.AddrPortFrom(source, 0), Target: netip.AddrPortFrom(target, 0),
		Protocol: unix.IPPROTO_ICMP, DontFragment: true,
	}
	p.Payload = binary.BigEndian.AppendUint32([]byte{kind, code, 0, 0}, value)
	p.Payload = append(p.Payload, quoted...)
	over := uint32(0)
	if !p.V4() {
		p.Protocol = unix.IPPROTO_ICMPV6
		over = p.pseudo(len(p.Payload))
	}
	binary.BigEndian.PutUint16(p.Payload[2:], ^fold(sum(over, p.Payload)))
	return p.Bytes()
}

// sealed gives an IPv4 header its checksum.
func sealed(b []byte) []byte {
	header := b[:int(b[0]&0xf)*4]
	header[10], header[11] = 0, 0
	binary.BigEndian.PutUint16(header[10:], ^fold(sum(0, header)))
	return b
}
