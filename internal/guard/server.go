// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// Serve answers on a listener over TLS until ctx ends, then returns nil.
func Serve(ctx context.Context, l net.Listener, c *Certificate, handler http.Handler, log *slog.Logger) error {
	server := &http.Server{
		Handler:           handler,
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get},
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      10 * time.Second,
		// An API server keeps its connection for the next delete.
		IdleTimeout:    90 * time.Second,
		MaxHeaderBytes: 16 << 10,
		// What callers do wrong is theirs to know.
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	defer context.AfterFunc(ctx, func() {
		// Deletes that are being judged get their answer.
		rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_ = server.Shutdown(rest)
	})()
	if err := server.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("answering on %s: %w", l.Addr(), err)
	}
	return nil
}

// Certificate is a serving certificate in two files, which are read again when
// they have changed.
type Certificate struct {
	certFile, keyFile string
	expires           func(time.Time)
	log               *slog.Logger

	mu    sync.Mutex
	read  *tls.Certificate
	state [2]fileState
}

// fileState is by what a file is seen to have changed.
type fileState struct {
	modified time.Time
	size     int64
}

// NewCertificate reads the files for the first time. Expires is told when the
// certificate ends, each time that it is read.
func NewCertificate(certFile, keyFile string, expires func(time.Time), log *slog.Logger) (*Certificate, error) {
	c := &Certificate{certFile: certFile, keyFile: keyFile, expires: expires, log: log}
	state, err := c.look()
	if err != nil {
		return nil, err
	}
	return c, c.load(state)
}

func (c *Certificate) look() (state [2]fileState, err error) {
	for i, name := range []string{c.certFile, c.keyFile} {
		info, err := os.Stat(name)
		if err != nil {
			return state, fmt.Errorf("reading the serving certificate: %w", err)
		}
		state[i] = fileState{info.ModTime(), info.Size()}
	}
	return state, nil
}

func (c *Certificate) load(state [2]fileState) error {
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("reading the serving certificate in %s and %s: %w", c.certFile, c.keyFile, err)
	}
	c.read, c.state = &pair, state
	c.expires(pair.Leaf.NotAfter)
	return nil
}

// get is the certificate for a new connection. While the files do not fit, as
// while they are being replaced, it is the last that did.
func (c *Certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	state, err := c.look()
	if err == nil && state != c.state {
		err = c.load(state)
	}
	if err != nil {
		c.log.Error("the serving certificate cannot be read again, and the last one is used", "error", err)
	}
	return c.read, nil
}
