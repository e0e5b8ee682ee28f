// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/test/lab"
)

// defaultTimeout is long enough for a busy machine, and short enough for tests
// that expect silence.
const defaultTimeout = 2 * time.Second

// Client is a process that opens sockets where it lives and asks through them.
// It does one thing at a time.
type Client struct {
	// Timeout bounds each connect and each wait for an answer.
	Timeout time.Duration
	// From, where valid, is what sockets are bound to before they connect.
	From netip.AddrPort

	t       testing.TB
	process *lab.Process
}

// StartClient starts a client at the place; it ends with the test.
func StartClient(t testing.TB, place lab.Place) *Client {
	t.Helper()
	return &Client{Timeout: defaultTimeout, t: t, process: place.StartRole(t, roleClient)}
}

// PID is the number of the client's process.
func (c *Client) PID() int { return c.process.PID() }

// Ask opens a socket, asks one question and closes the socket.
func (c *Client) Ask(network Network, to string) Reply {
	c.t.Helper()
	conn, reply := c.Open(network, to)
	if reply.Error != "" {
		return reply
	}
	defer conn.Close()
	return conn.Ask()
}

// Many asks count questions, each through a socket of its own.
func (c *Client) Many(network Network, to string, count int) Tally {
	c.t.Helper()
	r := c.request(opMany, network, to)
	r.Count = count
	return c.do(r).Tally
}

// Open opens a socket, and connects it unless the network is UDPUnconnected.
// It has failed if the reply says so; the reply has no answer.
func (c *Client) Open(network Network, to string) (*Conn, Reply) {
	c.t.Helper()
	r := c.do(c.request(opOpen, network, to))
	return &Conn{client: c, id: r.Conn}, r.Reply
}

func (c *Client) request(op operation, network Network, to string) request {
	c.t.Helper()
	target, err := netip.ParseAddrPort(to)
	if err != nil {
		c.t.Fatalf("client: %v", err)
	}
	return request{Op: op, Network: network, To: target, From: c.From, Timeout: c.Timeout}
}

func (c *Client) do(r request) response {
	c.t.Helper()
	line, err := json.Marshal(r)
	if err != nil {
		c.t.Fatalf("client: %v", err)
	}
	c.process.WriteLine(string(line))
	var answer response
	if err := json.Unmarshal([]byte(c.process.ReadLine()), &answer); err != nil {
		c.t.Fatalf("client: %v", err)
	}
	c.process.Trim()
	return answer
}

// Conn is a socket that a client holds open.
type Conn struct {
	client *Client
	id     int
}

// Ask asks one question through the open socket.
func (c *Conn) Ask() Reply {
	c.client.t.Helper()
	return c.client.do(request{Op: opAsk, Conn: c.id, Timeout: c.client.Timeout}).Reply
}

// AskAt asks one question at another address than the one the socket was
// opened for, which only a UDPUnconnected socket can.
func (c *Conn) AskAt(to string) Reply {
	c.client.t.Helper()
	return c.client.do(c.request(opAsk, to)).Reply
}

// Connect connects a UDP socket again, to another address; it has failed if
// the reply says so.
func (c *Conn) Connect(to string) Reply {
	c.client.t.Helper()
	return c.client.do(c.request(opConnect, to)).Reply
}

func (c *Conn) request(op operation, to string) request {
	c.client.t.Helper()
	r := c.client.request(op, "", to)
	r.Conn = c.id
	return r
}

// Watch reads until the socket fails, and returns its error as Reply has it:
// ETIMEDOUT if it did not fail in time.
func (c *Conn) Watch() string {
	c.client.t.Helper()
	return c.client.do(request{Op: opWatch, Conn: c.id, Timeout: c.client.Timeout}).Reply.Error
}

// Close closes the socket.
func (c *Conn) Close() {
	c.client.t.Helper()
	c.client.do(request{Op: opClose, Conn: c.id})
}

func (r Reply) String() string {
	if r.Error != "" {
		return r.Error
	}
	return fmt.Sprintf("%s at %s", r.Server, r.Local)
}
