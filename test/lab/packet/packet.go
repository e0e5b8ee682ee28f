// SPDX-License-Identifier: Apache-2.0

// Package packet shows what is on the wire in the lab, and puts on it what no
// kernel would send: packets in fields, a tap on a device, raw sockets.
//
// It knows IPv4, IPv6, TCP, UDP, and the errors of ICMP as far as tests look
// at them. What it cannot read it gives as payload. It knows nothing of
// Services.
package packet

import (
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"
)

// The flags of TCP.
const (
	FIN = 1 << 0
	SYN = 1 << 1
	RST = 1 << 2
	PSH = 1 << 3
	ACK = 1 << 4
)

// Checksum is what a packet's checksums are found to be.
type Checksum int

// The states of checksums.
const (
	// Unknown: a fragment, or a protocol whose checksum is not looked at.
	Unknown Checksum = iota
	Right
	Wrong
	// Unfinished: the sender leaves it to a device, which none of the lab's
	// does before another machine sees the packet.
	Unfinished
)

func (c Checksum) String() string {
	return [...]string{"unknown", "right", "wrong", "unfinished"}[c]
}

// Packet is an IP packet in fields. Those that its protocol does not have are
// zero.
type Packet struct {
	Source, Target netip.AddrPort // port 0 where the packet shows none
	Protocol       uint8          // of the transport, such as unix.IPPROTO_TCP
	TTL            uint8

	ID           uint32 // of the datagram that fragments belong to
	Offset       int    // of a fragment, in bytes
	More         bool   // fragments follow
	DontFragment bool

	Flags    uint8 // of TCP
	Seq, Ack uint32

	Type, Code uint8   // of ICMP
	MTU        uint32  // of "fragmentation needed" and "packet too big"
	Inner      *Packet // what an ICMP error is about; it may be cut short

	Payload []byte // of the transport; of a later fragment, all there is

	// What a tap knows besides.
	Outgoing bool // sent by the machine at whose device the tap is
	Checksum Checksum
}

// V4 tells the families apart.
func (p Packet) V4() bool { return p.Source.Addr().Is4() }

// Fragment says whether the packet is a part of a datagram.
func (p Packet) Fragment() bool { return p.More || p.Offset > 0 }

func (p Packet) String() string {
	var b strings.Builder
	if p.Outgoing {
		b.WriteString("sent ")
	}
	fmt.Fprintf(&b, "%s → %s protocol %d ttl %d, %d bytes, checksum %s", p.Source, p.Target, p.Protocol, p.TTL, len(p.Payload), p.Checksum)
	switch {
	case p.Fragment():
		fmt.Fprintf(&b, ", fragment %#x at %d, more: %v", p.ID, p.Offset, p.More)
	case p.Protocol == unix.IPPROTO_TCP:
		fmt.Fprintf(&b, ", flags %s seq %d ack %d", flagNames(p.Flags), p.Seq, p.Ack)
	case p.Inner != nil:
		fmt.Fprintf(&b, ", ICMP %d/%d mtu %d about {%s}", p.Type, p.Code, p.MTU, p.Inner)
	}
	return b.String()
}

func flagNames(flags uint8) string {
	names := ""
	for i, name := range "FSRPAUEC" {
		if flags&(1<<i) != 0 {
			names += string(name)
		}
	}
	return names
}
