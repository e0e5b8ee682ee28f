// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/test/lab"
)

const (
	// tapRoom is how much a tap keeps before it is read.
	tapRoom = 64 << 20
	// longest is more than any packet of the lab has, merged ones included.
	longest = 256 << 10
	// checksumNotReady is TP_STATUS_CSUMNOTREADY of the kernel.
	checksumNotReady = 1 << 3
)

// Tap records what passes a device, from when it is made.
//
// What a device receives is recorded before any program or rule on it, and
// what it sends after them: a tap on a client's device sees the wire.
type Tap struct {
	t    testing.TB
	fd   int
	seen []Packet
}

// NewTap makes a tap on a device of the namespace.
func NewTap(t testing.TB, ns *lab.NetNS, link string) *Tap {
	t.Helper()
	tap := &Tap{t: t}
	ns.Do(func() {
		fd, err := openTap(link)
		if err != nil {
			t.Fatalf("tap on %s in %s: %v", link, ns, err)
		}
		tap.fd = fd
	})
	t.Cleanup(func() { unix.Close(tap.fd) })
	return tap
}

func openTap(link string) (int, error) {
	device, err := net.InterfaceByName(link)
	if err != nil {
		return 0, err
	}
	// With protocol 0 nothing comes before the socket is bound to the device.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, fmt.Errorf("socket: %w", err)
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, tapRoom),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: bigEndian(unix.ETH_P_ALL), Ifindex: device.Index}),
	)
	if err != nil {
		unix.Close(fd)
	}
	return fd, err
}

func bigEndian(n uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, n))
}

// Packets are all IP packets so far, in order. Neighbour discovery and the
// like of the link itself is left out.
func (tap *Tap) Packets() []Packet {
	tap.t.Helper()
	buffer, control := make([]byte, longest), make([]byte, 256)
	for {
		n, nc, _, from, err := unix.Recvmsg(tap.fd, buffer, control, 0)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			tap.t.Fatalf("read from a tap: %v", err)
		}
		tap.record(buffer[:n], control[:nc], from)
	}
	if stats, err := unix.GetsockoptTpacketStats(tap.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS); err != nil || stats.Drops > 0 {
		tap.t.Fatalf("a tap lost packets: %+v, %v", stats, err)
	}
	return tap.seen
}

func (tap *Tap) record(b, control []byte, from unix.Sockaddr) {
	tap.t.Helper()
	sender, ok := from.(*unix.SockaddrLinklayer)
	if !ok || sender.Protocol != bigEndian(unix.ETH_P_IP) && sender.Protocol != bigEndian(unix.ETH_P_IPV6) {
		return
	}
	p, err := Parse(b)
	if err != nil {
		tap.t.Errorf("a tap saw % x: %v", b, err)
		return
	}
	if ofTheLink(p) {
		return
	}
	p.Payload = append([]byte(nil), p.Payload...)
	p.Outgoing = sender.Pkttype == unix.PACKET_OUTGOING
	if p.Checksum == Wrong && unfinished(control) {
		p.Checksum = Unfinished
	}
	tap.seen = append(tap.seen, p)
}

// ofTheLink tells what machines on a link say to each other about it.
func ofTheLink(p Packet) bool {
	const redirect4, solicitation6, redirect6 = 5, 133, 137
	return p.Target.Addr().IsMulticast() ||
		p.Protocol == unix.IPPROTO_ICMP && p.Type == redirect4 ||
		p.Protocol == unix.IPPROTO_ICMPV6 && p.Type >= solicitation6 && p.Type <= redirect6
}

// unfinished reads from the kernel's note about a packet whether its checksum
// was left to a device.
func unfinished(control []byte) bool {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return false
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_PACKET && m.Header.Type == unix.PACKET_AUXDATA && len(m.Data) >= 4 {
			return binary.NativeEndian.Uint32(m.Data)&checksumNotReady != 0
		}
	}
	return false
}

// Forget lets the tap begin anew.
func (tap *Tap) Forget() {
	tap.t.Helper()
	tap.Packets()
	tap.seen = nil
}
