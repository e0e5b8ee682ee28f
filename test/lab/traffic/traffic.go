// SPDX-License-Identifier: Apache-2.0

// Package traffic is what talks in the lab: servers that answer with who they
// are and whom they see, and clients that report what a program would find at
// its sockets.
//
// Servers run in the test process, with their sockets in the namespace they
// were opened in. Clients are processes of their own, since programs on a
// cgroup decide by process; a package that uses them gives Roles to lab.Main.
// Neither knows what stands between the two.
package traffic

import (
	"net/netip"

	"github.com/fairlead-io/fairlead/test/lab"
)

// Network says what kind of socket a client uses. Whether it is an IPv4 or an
// IPv6 socket follows from the address; an IPv4 address written as
// ::ffff:192.0.2.1 goes through an IPv6 socket, as in many programs.
type Network string

// The networks. A datagram socket may fix its peer once, by connect, or name
// it with every datagram.
const (
	TCP            Network = "tcp"
	MPTCP          Network = "mptcp"
	UDP            Network = "udp"
	UDPUnconnected Network = "udp-unconnected"
)

// Answer is what a server says to every question.
type Answer struct {
	Server string         // its name
	Local  netip.AddrPort // its own end, as its socket has it
	Peer   netip.AddrPort // the client, as the server sees it
}

// Reply is what one question came to, seen from the client.
type Reply struct {
	Answer
	Sockname netip.AddrPort // the client's own end, as getsockname has it
	Peername netip.AddrPort // the server, as getpeername has it; a UDPUnconnected socket has none
	From     netip.AddrPort // where the answer came from, as recvfrom has it; UDP only
	// Error is the name of the kernel's error, such as ECONNREFUSED, or
	// ETIMEDOUT where nothing came in time, or EOF; "" if there was an answer.
	Error string
}

// Tally counts what many questions came to.
type Tally struct {
	Servers map[string]int // answers by the server's name
	Errors  map[string]int // failures by Reply.Error
}

// question is what a client sends, on TCP ended by a line's end.
const question = "who?\n"

// maxAnswer bounds the length of an answer.
const maxAnswer = 1024

// Roles are the roles that package lab starts for this package.
var Roles = map[string]lab.Role{roleClient: serveClient}
