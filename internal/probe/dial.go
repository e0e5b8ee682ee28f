// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// refusal is why a connection did not come about.
type refusal struct {
	step   Step
	errno  unix.Errno // 0: nobody said anything in time
	icmp   string
	sender netip.Addr
}

func (r *refusal) Error() string {
	if r.errno == 0 {
		return "nobody said anything in time"
	}
	if r.icmp != "" {
		return fmt.Sprintf("%s: %v (ICMP %s from %s)", r.step, r.errno, r.icmp, r.sender)
	}
	return fmt.Sprintf("%s: %v", r.step, r.errno)
}

// dialer opens sockets without the help of package net, which would wait for
// connect() and then close the socket: what the call itself refuses would look
// like what came over the wire, and who sent a notice would be lost.
type dialer struct {
	deadline time.Time
	exempt   func(fd uintptr) error // marks a socket before it connects; may be nil
}

// dial connects a socket. An error of the network's is a *refusal.
func (d dialer) dial(target netip.AddrPort, protocol string) (net.Conn, error) {
	kind := unix.SOCK_STREAM
	if protocol == "UDP" {
		kind = unix.SOCK_DGRAM
	}
	family, address := socketAddress(target)
	fd, err := unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket: %w", err)
	}
	file := os.NewFile(uintptr(fd), target.String())
	defer file.Close() // the connection has a descriptor of its own
	if err := askForNotices(fd, family); err != nil {
		return nil, err
	}
	if d.exempt != nil {
		if err := d.exempt(uintptr(fd)); err != nil {
			return nil, err
		}
	}
	if err := d.connect(fd, address); err != nil {
		return nil, err
	}
	return net.FileConn(file)
}

func socketAddress(target netip.AddrPort) (family int, address unix.Sockaddr) {
	if a := target.Addr().Unmap(); a.Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Port: int(target.Port()), Addr: a.As4()}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Port: int(target.Port()), Addr: target.Addr().As16()}
}

// askForNotices has the kernel keep ICMP errors with their senders.
func askForNotices(fd, family int) error {
	level, option := unix.SOL_IP, unix.IP_RECVERR
	if family == unix.AF_INET6 {
		level, option = unix.SOL_IPV6, unix.IPV6_RECVERR
	}
	if err := unix.SetsockoptInt(fd, level, option, 1); err != nil {
		return fmt.Errorf("ask for ICMP errors on a socket: %w", err)
	}
	return nil
}

// connect tells what the call says from what comes back later: while it runs
// the socket is locked, so no packet can have made it fail.
func (d dialer) connect(fd int, address unix.Sockaddr) error {
	err := unix.Connect(fd, address)
	if err == nil {
		return nil
	}
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return fmt.Errorf("connect: %w", err)
	}
	if errno != unix.EINPROGRESS {
		return &refusal{step: StepConnect, errno: errno}
	}
	ready, err := d.wait(fd, unix.POLLOUT)
	if err != nil {
		return err
	}
	if !ready {
		return &refusal{step: StepHandshake}
	}
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return fmt.Errorf("ask a socket for its error: %w", err)
	}
	if code == 0 {
		return nil
	}
	icmp, sender := notice(fd)
	return &refusal{step: StepHandshake, errno: unix.Errno(code), icmp: icmp, sender: sender}
}

// wait waits until something happened to the socket; false if time is over.
func (d dialer) wait(fd int, events int16) (bool, error) {
	for {
		left := time.Until(d.deadline)
		if left <= 0 {
			return false, nil
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: events}}, int(left.Milliseconds())+1)
		if n > 0 {
			return true, nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return false, fmt.Errorf("wait for a socket: %w", err)
		}
	}
}

// The kernel's struct sock_extended_err, which is followed by the sender's
// address.
const (
	noticeOrigin = 4
	noticeType   = 5
	noticeCode   = 6
	noticeSize   = 16
	originICMP   = 2
	originICMP6  = 3
)

// notice takes an ICMP error from the socket's queue; "" if there is none.
func notice(fd int) (text string, sender netip.Addr) {
	control := make([]byte, 512)
	_, n, _, _, err := unix.Recvmsg(fd, nil, control, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
	if err != nil {
		return "", netip.Addr{}
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil {
		return "", netip.Addr{}
	}
	for _, m := range messages {
		if text, sender = readNotice(m.Data); text != "" {
			return text, sender
		}
	}
	return "", netip.Addr{}
}

func readNotice(b []byte) (text string, sender netip.Addr) {
	if len(b) < noticeSize+2 {
		return "", netip.Addr{}
	}
	from := b[noticeSize:]
	switch binary.NativeEndian.Uint16(from) {
	case unix.AF_INET:
		if len(from) >= unix.SizeofSockaddrInet4 {
			sender = netip.AddrFrom4([4]byte(from[4:8]))
		}
	case unix.AF_INET6:
		if len(from) >= unix.SizeofSockaddrInet6 {
			sender = netip.AddrFrom16([16]byte(from[8:24])).Unmap()
		}
	}
	switch b[noticeOrigin] {
	case originICMP:
		return noticeText(b[noticeType], b[noticeCode], 3, unreachable4), sender
	case originICMP6:
		return noticeText(b[noticeType], b[noticeCode], 1, unreachable6), sender
	}
	return "", netip.Addr{}
}

// The codes of "destination unreachable" that tell something (RFC 792, 1122,
// 1812, 4443).
var (
	unreachable4 = map[uint8]string{
		0: "net unreachable", 1: hostUnreachable, 2: "protocol unreachable", 3: portUnreachable,
		9: "net prohibited", 10: "host prohibited", 13: "administratively prohibited",
	}
	unreachable6 = map[uint8]string{
		0: "no route", 1: "administratively prohibited", 3: hostUnreachable, 4: portUnreachable,
		5: "source address failed policy", 6: "reject route",
	}
)

const (
	hostUnreachable = "host unreachable"
	portUnreachable = "port unreachable"
)

func noticeText(kind, code, unreachable uint8, codes map[uint8]string) string {
	if text, ok := codes[code]; ok && kind == unreachable {
		return text
	}
	return fmt.Sprintf("type %d code %d", kind, code)
}
