// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fairlead-io/fairlead/test/lab"
)

// Server answers questions on one address until it is closed or the test ends.
type Server struct {
	name   string
	addr   netip.AddrPort
	served atomic.Int64
	stop   func() error
	conns  sync.WaitGroup

	mu     sync.Mutex
	open   map[net.Conn]bool
	closed bool
}

// Listen starts a server in the namespace, or in the test's own if ns is nil.
// The network is TCP or UDP; port 0 stands for any free one.
func Listen(t testing.TB, ns *lab.NetNS, name string, network Network, addr string) *Server {
	t.Helper()
	s := &Server{name: name, open: map[net.Conn]bool{}}
	listen := func() {
		var err error
		if network == UDP {
			err = s.listenUDP(addr)
		} else {
			err = s.listenTCP(addr)
		}
		if err != nil {
			t.Fatalf("server %s: %v", name, err)
		}
	}
	if ns == nil {
		listen()
	} else {
		ns.Do(listen)
	}
	t.Cleanup(s.Close)
	return s
}

// Addr is where the server listens.
func (s *Server) Addr() netip.AddrPort { return s.addr }

// Served counts the TCP connections, or the datagrams, that came in.
func (s *Server) Served() int { return int(s.served.Load()) }

// Close ends the server and its connections, and waits for both.
func (s *Server) Close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		s.stop()
		for conn := range s.open {
			conn.Close()
		}
	}
	s.mu.Unlock()
	s.conns.Wait()
}

func (s *Server) listenTCP(addr string) error {
	var config net.ListenConfig
	config.SetMultipathTCP(false)
	listener, err := config.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return err
	}
	s.addr, s.stop = addrPort(listener.Addr()), listener.Close
	s.conns.Go(func() { s.acceptAll(listener) })
	return nil
}

func (s *Server) acceptAll(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		if !s.keep(conn) {
			conn.Close()
			return
		}
		s.served.Add(1)
		s.conns.Go(func() { s.answerConn(conn) })
	}
}

// keep notes an open connection; it says no once the server is closed.
func (s *Server) keep(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.open[conn] = true
	}
	return !s.closed
}

func (s *Server) forget(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, conn)
}

func (s *Server) answerConn(conn net.Conn) {
	defer s.forget(conn)
	defer conn.Close()
	answer := s.answer(addrPort(conn.LocalAddr()), addrPort(conn.RemoteAddr()))
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if _, err := conn.Write(answer); err != nil {
			return
		}
	}
}

func (s *Server) listenUDP(addr string) error {
	conn, err := net.ListenPacket("udp", addr)
	if err != nil {
		return err
	}
	s.addr, s.stop = addrPort(conn.LocalAddr()), conn.Close
	s.conns.Go(func() { s.answerDatagrams(conn) })
	return nil
}

func (s *Server) answerDatagrams(conn net.PacketConn) {
	buffer := make([]byte, len(question))
	for {
		_, peer, err := conn.ReadFrom(buffer)
		if err != nil {
			return
		}
		s.served.Add(1)
		// Whoever cannot be answered any more does not wait for it.
		conn.WriteTo(s.answer(s.addr, addrPort(peer)), peer)
	}
}

// answer is one line of JSON; these plain fields always marshal.
func (s *Server) answer(local, peer netip.AddrPort) []byte {
	line, _ := json.Marshal(Answer{Server: s.name, Local: local, Peer: peer})
	return append(line, '\n')
}

// addrPort reads the address of a TCP or UDP socket.
func addrPort(addr net.Addr) netip.AddrPort {
	var ap netip.AddrPort
	switch a := addr.(type) {
	case *net.TCPAddr:
		ap = a.AddrPort()
	case *net.UDPAddr:
		ap = a.AddrPort()
	}
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}
