// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// roleClient is the role of a client's process.
const roleClient = "traffic-client"

// operation is what a test asks of a client.
type operation string

const (
	opOpen    operation = "open"
	opAsk     operation = "ask"
	opConnect operation = "connect"
	opWatch   operation = "watch"
	opClose   operation = "close"
	opMany    operation = "many"
)

// request is one line to a client.
type request struct {
	Op       operation
	Conn     int // of opAsk, opConnect, opWatch and opClose
	Network  Network
	To, From netip.AddrPort
	Timeout  time.Duration
	Count    int // of opMany
}

// response is one line from a client; each request has one.
type response struct {
	Conn  int // of opOpen
	Reply Reply
	Tally Tally
}

// sockets are those that a client holds, by number.
type sockets map[int]*socket

// serveClient is the client's process: it does as it is told until its
// standard input ends.
func serveClient([]string) error {
	open := sockets{}
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var r request
		if err := in.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read a request: %w", err)
		}
		answer, err := open.do(r)
		if err != nil {
			return err
		}
		if err := out.Encode(answer); err != nil {
			return fmt.Errorf("write a response: %w", err)
		}
	}
}

func (open sockets) do(r request) (response, error) {
	switch r.Op {
	case opOpen:
		return open.open(r), nil
	case opMany:
		return response{Tally: many(r)}, nil
	}
	s, ok := open[r.Conn]
	if !ok {
		return response{}, fmt.Errorf("%s: no socket has the number %d", r.Op, r.Conn)
	}
	if r.To.IsValid() {
		s.to = r.To
	}
	switch r.Op {
	case opConnect:
		return response{Reply: Reply{Error: errorName(unix.Connect(s.fd, sockaddr(s.to)))}}, nil
	case opAsk:
		return response{Reply: ask(s, r.Timeout)}, nil
	case opWatch:
		return response{Reply: Reply{Error: errorName(s.watch(r.Timeout))}}, nil
	case opClose:
		s.close()
		delete(open, r.Conn)
		return response{}, nil
	}
	return response{}, fmt.Errorf("%q is no operation", r.Op)
}

func (open sockets) open(r request) response {
	s, err := dial(r.Network, r.To, r.From, r.Timeout)
	if err != nil {
		return response{Reply: Reply{Error: errorName(err)}}
	}
	open[s.fd] = s // the kernel gives no number twice while it is in use
	return response{Conn: s.fd}
}

func ask(s *socket, timeout time.Duration) Reply {
	reply, err := s.ask(timeout)
	reply.Error = errorName(err)
	return reply
}

func many(r request) Tally {
	tally := Tally{Servers: map[string]int{}, Errors: map[string]int{}}
	for range r.Count {
		reply := once(r)
		if reply.Error != "" {
			tally.Errors[reply.Error]++
			continue
		}
		tally.Servers[reply.Server]++
	}
	return tally
}

func once(r request) Reply {
	s, err := dial(r.Network, r.To, r.From, r.Timeout)
	if err != nil {
		return Reply{Error: errorName(err)}
	}
	defer s.close()
	return ask(s, r.Timeout)
}
