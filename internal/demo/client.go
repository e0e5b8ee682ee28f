// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fairlead-io/fairlead/internal/model"
)

// dialTimeout is far longer than anything here takes.
const dialTimeout = 3 * time.Second

// ask connects and returns the name of the server that answered.
func ask(to netip.AddrPort, p model.Protocol) (string, error) {
	conn, err := net.DialTimeout(strings.ToLower(p.String()), to.String(), dialTimeout)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(dialTimeout))
	if conn.RemoteAddr().String() != to.String() {
		return "", fmt.Errorf("the socket says it talks to %s", conn.RemoteAddr())
	}
	if p == model.UDP {
		if _, err := conn.Write([]byte("who?")); err != nil {
			return "", err
		}
		answer := make([]byte, 100)
		n, err := conn.Read(answer)
		return string(answer[:n]), err
	}
	answer, err := io.ReadAll(conn)
	return string(answer), err
}

// outcome is what a person wants to read of an error.
func outcome(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return err.Error()
}

// stream connects again and again and counts, from start until stop.
type stream struct {
	done     chan struct{}
	cancel   context.CancelFunc
	good     atomic.Uint64
	bad      atomic.Uint64
	firstBad atomic.Pointer[string]
}

func startStream(ctx context.Context, to netip.AddrPort, p model.Protocol) *stream {
	ctx, cancel := context.WithCancel(ctx)
	s := &stream{done: make(chan struct{}), cancel: cancel}
	go func() {
		defer close(s.done)
		for ctx.Err() == nil {
			if _, err := ask(to, p); err != nil {
				text := outcome(err)
				s.firstBad.CompareAndSwap(nil, &text)
				s.bad.Add(1)
				continue
			}
			s.good.Add(1)
		}
	}()
	return s
}

func (s *stream) stop() {
	s.cancel()
	<-s.done
}
