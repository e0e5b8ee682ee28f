// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"cmp"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

const defaultTTL = 64

// Bytes writes a TCP segment or a UDP datagram, or, for any other protocol,
// its payload after an IP header. Checksums are right, and a TTL of 0 stands
// for the usual one. Fragments and ICMP errors are left to kernels.
func (p Packet) Bytes() []byte {
	transport := p.transport()
	header := p.header(len(transport))
	return append(header, transport...)
}

func (p Packet) header(length int) []byte {
	ttl := cmp.Or(p.TTL, defaultTTL)
	if !p.V4() {
		b := binary.BigEndian.AppendUint32(nil, 6<<28)
		b = binary.BigEndian.AppendUint16(b, uint16(length))
		b = append(b, p.Protocol, ttl)
		b = append(b, p.Source.Addr().AsSlice()...)
		return append(b, p.Target.Addr().AsSlice()...)
	}
	b := []byte{4<<4 | 5, 0}
	b = binary.BigEndian.AppendUint16(b, uint16(20+length))
	b = binary.BigEndian.AppendUint16(b, uint16(p.ID))
	b = binary.BigEndian.AppendUint16(b, flag(p.DontFragment, dontFragment4))
	b = append(b, ttl, p.Protocol, 0, 0)
	b = append(b, p.Source.Addr().AsSlice()...)
	b = append(b, p.Target.Addr().AsSlice()...)
	binary.BigEndian.PutUint16(b[10:], ^fold(sum(0, b)))
	return b
}

func flag(set bool, bit uint16) uint16 {
	if set {
		return bit
	}
	return 0
}

func (p Packet) transport() []byte {
	ports := binary.BigEndian.AppendUint16(nil, p.Source.Port())
	ports = binary.BigEndian.AppendUint16(ports, p.Target.Port())
	switch p.Protocol {
	case unix.IPPROTO_TCP:
		b := binary.BigEndian.AppendUint32(ports, p.Seq)
		b = binary.BigEndian.AppendUint32(b, p.Ack)
		b = append(b, 5<<4, p.Flags, 0xff, 0xff, 0, 0, 0, 0)
		b = append(b, p.Payload...)
		binary.BigEndian.PutUint16(b[16:], ^fold(sum(p.pseudo(len(b)), b)))
		return b
	case unix.IPPROTO_UDP:
		b := binary.BigEndian.AppendUint16(ports, uint16(8+len(p.Payload)))
		b = append(append(b, 0, 0), p.Payload...)
		// All ones stand for a sum of zero, which would mean there is none.
		binary.BigEndian.PutUint16(b[6:], cmp.Or(^fold(sum(p.pseudo(len(b)), b)), 0xffff))
		return b
	}
	return p.Payload
}
