// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"fmt"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/test/lab"
)

// Sender sends packets as they are, by the routes of a namespace; their
// sources may be anybody's.
type Sender struct {
	t      testing.TB
	v4, v6 int
}

// NewSender makes one in the namespace.
func NewSender(t testing.TB, ns *lab.NetNS) *Sender {
	t.Helper()
	s := &Sender{t: t, v4: -1, v6: -1}
	ns.Do(func() {
		var err error
		// A raw socket of this protocol is given whole packets.
		if s.v4, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW); err != nil {
			t.Fatalf("raw socket: %v", err)
		}
		if s.v6, err = unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW); err != nil {
			t.Fatalf("raw socket: %v", err)
		}
	})
	t.Cleanup(func() {
		unix.Close(s.v4)
		unix.Close(s.v6)
	})
	return s
}

// Send sends a packet.
func (s *Sender) Send(p Packet) {
	s.t.Helper()
	if err := s.SendBytes(p.Bytes()); err != nil {
		s.t.Fatalf("send %s: %v", p, err)
	}
}

// SendBytes sends what Bytes has made, perhaps changed.
func (s *Sender) SendBytes(b []byte) error {
	if b[0]>>4 == 4 {
		return unix.Sendto(s.v4, b, 0, &unix.SockaddrInet4{Addr: [4]byte(b[16:])})
	}
	return unix.Sendto(s.v6, b, 0, &unix.SockaddrInet6{Addr: [16]byte(b[24:])})
}

// SendOn sends packets to a neighbour on a device, whatever the routes say of
// their addresses.
func SendOn(t testing.TB, ns *lab.NetNS, link string, to net.HardwareAddr, packets ...Packet) {
	t.Helper()
	ns.Do(func() {
		if err := sendOn(link, to, packets); err != nil {
			t.Fatalf("send on %s in %s: %v", link, ns, err)
		}
	})
}

func sendOn(link string, to net.HardwareAddr, packets []Packet) error {
	device, err := net.InterfaceByName(link)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	defer unix.Close(fd)
	for _, p := range packets {
		addr := &unix.SockaddrLinklayer{Protocol: bigEndian(unix.ETH_P_IP), Ifindex: device.Index, Halen: uint8(len(to))}
		if !p.V4() {
			addr.Protocol = bigEndian(unix.ETH_P_IPV6)
		}
		copy(addr.Addr[:], to)
		if err := unix.Sendto(fd, p.Bytes(), 0, addr); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	return nil
}
