// SPDX-License-Identifier: Apache-2.0

// Package healthcheck answers those who ask over HTTP whether to send traffic
// to this node: load balancers about one Service (healthCheckNodePort), and
// about the node and its proxy (/healthz, /livez).
//
// It holds listeners and writes answers. What is healthy, and how many
// endpoints a Service has here, it is told: it knows neither the tables nor
// the kernel, nor what the API says of a Service.
package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// retryInterval is the time between tries to listen on an address that cannot
// be had.
const retryInterval = 5 * time.Second

// Server serves HTTP on one address. While the address cannot be had, as
// before a predecessor lets go of it, it tries again.
type Server struct {
	purpose string
	address string
	handler http.Handler
	log     *slog.Logger

	mu    sync.Mutex
	bound net.Addr // nil while it does not listen
	err   error    // why not
}

// NewServer returns a server that listens while Run runs. The purpose is for
// people: "/healthz and /livez".
func NewServer(purpose, address string, handler http.Handler, log *slog.Logger) *Server {
	return &Server{purpose: purpose, address: address, handler: handler, log: log}
}

// Run serves until ctx ends, then returns nil.
func (s *Server) Run(ctx context.Context) error {
	for {
		err := s.serve(ctx)
		if ctx.Err() != nil {
			return nil
		}
		s.fail(err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retryInterval):
		}
	}
}

func (s *Server) serve(ctx context.Context) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.address)
	if err != nil {
		return err
	}
	s.listens(listener.Addr())
	server := newHTTPServer(s.handler, s.log)
	defer context.AfterFunc(ctx, func() { server.Close() })()
	return server.Serve(listener)
}

func (s *Server) listens(at net.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		s.log.Info("listens at last", "for", s.purpose, "address", s.address)
	}
	s.bound, s.err = at, nil
}

func (s *Server) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.log.Error("cannot listen, will try again", "for", s.purpose, "address", s.address, "error", err, "in", retryInterval)
	}
	s.bound, s.err = nil, err
}

// State returns the address on which the server listens, "" if it does not,
// and why not.
func (s *Server) State() (address string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return "", fmt.Errorf("%s: %w", s.purpose, s.err)
	}
	if s.bound == nil {
		return "", nil
	}
	return s.bound.String(), nil
}

// newHTTPServer bounds what a caller can keep busy: anyone may be one.
func newHTTPServer(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       15 * time.Second,
		MaxHeaderBytes:    4 << 10,
		// What callers do wrong is theirs to know.
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// ended says that a server was closed by its owner.
func ended(err error) bool { return errors.Is(err, http.ErrServerClosed) }
