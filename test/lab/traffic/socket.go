// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// socket is a client's socket. It makes the system calls itself, since package
// net chooses the family, keeps what getpeername said, and wraps errors; here
// each of them is what a test asks about.
type socket struct {
	fd       int
	network  Network
	to       netip.AddrPort
	deadline time.Time // of the operation in course
}

// dial opens a socket and connects it, unless the network says otherwise. It
// is bound to from first where that is valid.
func dial(network Network, to, from netip.AddrPort, timeout time.Duration) (*socket, error) {
	family := unix.AF_INET
	if to.Addr().Is6() {
		family = unix.AF_INET6
	}
	kind, protocol := network.kind()
	fd, err := unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return nil, err
	}
	s := &socket{fd: fd, network: network, to: to, deadline: time.Now().Add(timeout)}
	if err := s.connect(from); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (n Network) kind() (kind, protocol int) {
	switch n {
	case TCP:
		return unix.SOCK_STREAM, unix.IPPROTO_TCP
	case MPTCP:
		return unix.SOCK_STREAM, unix.IPPROTO_MPTCP
	}
	return unix.SOCK_DGRAM, unix.IPPROTO_UDP
}

func (s *socket) connect(from netip.AddrPort) error {
	if from.IsValid() {
		if err := unix.Bind(s.fd, sockaddr(from)); err != nil {
			return err
		}
	}
	if s.network == UDPUnconnected {
		return nil
	}
	err := unix.Connect(s.fd, sockaddr(s.to))
	if err != unix.EINPROGRESS {
		return err
	}
	if err := s.wait(unix.POLLOUT); err != nil {
		return err
	}
	code, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil || code == 0 {
		return err
	}
	return unix.Errno(code)
}

func (s *socket) close() { unix.Close(s.fd) }

// ask sends one question and waits for the answer to it.
func (s *socket) ask(timeout time.Duration) (Reply, error) {
	s.deadline = time.Now().Add(timeout)
	var reply Reply
	if err := s.send(); err != nil {
		return reply, err
	}
	reply.Sockname = name(unix.Getsockname(s.fd))
	if s.network != UDPUnconnected {
		reply.Peername = name(unix.Getpeername(s.fd))
	}
	line, from, err := s.receive()
	if err != nil {
		return reply, err
	}
	reply.From = from
	return reply, json.Unmarshal(line, &reply.Answer)
}

func (s *socket) send() error {
	var to unix.Sockaddr
	if s.network == UDPUnconnected {
		to = sockaddr(s.to)
	}
	return unix.Sendmsg(s.fd, []byte(question), nil, to, unix.MSG_NOSIGNAL)
}

// receive reads one line: on UDP one datagram, on TCP as much as it takes.
func (s *socket) receive() (line []byte, from netip.AddrPort, err error) {
	buffer := make([]byte, maxAnswer)
	for !bytes.HasSuffix(line, []byte("\n")) {
		if err := s.wait(unix.POLLIN); err != nil {
			return nil, from, err
		}
		n, sender, err := unix.Recvfrom(s.fd, buffer, 0)
		if err != nil {
			return nil, from, err
		}
		if n == 0 {
			return nil, from, io.EOF
		}
		if sender != nil {
			from = name(sender, nil)
		}
		line = append(line, buffer[:n]...)
	}
	return line, from, nil
}

// watch reads on until the socket fails, and returns how.
func (s *socket) watch(timeout time.Duration) error {
	s.deadline = time.Now().Add(timeout)
	for {
		if _, _, err := s.receive(); err != nil {
			return err
		}
	}
}

// wait returns when the socket can do what events say, or has failed, or when
// the time is over.
func (s *socket) wait(events int16) error {
	poll := []unix.PollFd{{Fd: int32(s.fd), Events: events}}
	for {
		left := time.Until(s.deadline)
		if left <= 0 {
			return unix.ETIMEDOUT
		}
		n, err := unix.Poll(poll, int(left.Milliseconds())+1)
		if err != nil && err != unix.EINTR {
			return err
		}
		if n > 0 {
			return nil
		}
	}
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

// name turns what a system call says of an address into one; a mapped IPv4
// address stays mapped, since the client sees it so. On an error it is invalid.
func name(sa unix.Sockaddr, err error) netip.AddrPort {
	if err != nil {
		return netip.AddrPort{}
	}
	switch a := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
	}
	return netip.AddrPort{}
}

// errorName is the name by which programs know an error.
func errorName(err error) string {
	var errno unix.Errno
	switch {
	case err == nil:
		return ""
	case errors.As(err, &errno):
		return unix.ErrnoName(errno)
	case errors.Is(err, io.EOF):
		return "EOF"
	}
	return err.Error()
}
