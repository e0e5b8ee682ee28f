// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// errLeft is what a request meets whose endpoint was left.
var errLeft = errors.New("the agent turned to another API server")

// patience is how many times longer than for a heartbeat the answer to a
// request is waited for.
const patience = 15

// keepAlive finds dead connections on which nobody is about to write.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}

// link is one way to one endpoint: its connections, and the credentials that
// go over them. It is used from the first heartbeat until it is left.
type link struct {
	url    url.URL
	rt     http.RoundTripper
	dialer *net.Dialer

	// ignores says that the last request was not answered in time, whatever
	// heartbeats are told.
	ignores atomic.Bool

	// left ends when the link is left, and with it every connection.
	left  context.Context
	leave context.CancelFunc

	tls         *tls.Config
	reloads     bool     // the client certificate, from files
	certificate [][]byte // as it was when the link was made
}

// newLink makes a link that accepts a certificate with this name. All files
// that config names are read now; those with client certificates and tokens
// also later.
func newLink(config *rest.Config, dialer *net.Dialer, u url.URL, name string, pings time.Duration) (*link, error) {
	l := &link{url: u, dialer: dialer}
	l.left, l.leave = context.WithCancel(context.Background())
	config = rest.CopyConfig(config)
	config.Dial = l.dial
	settings, err := config.TransportConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the credentials for %s: %w", u.String(), err)
	}
	settings.TLS.ServerName = name
	if l.tls, err = transport.TLSConfigFor(settings); err != nil {
		return nil, fmt.Errorf("reading the certificates for %s: %w", u.String(), err)
	}
	proxy := settings.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	// The transports of client-go stay in a table of the process for good, and
	// take 45 s to notice a peer that has gone silent.
	base := &http.Transport{
		Proxy:               proxy,
		DialContext:         settings.DialHolder.Dial,
		TLSClientConfig:     l.tls,
		TLSHandshakeTimeout: 2 * dialer.Timeout, // a heartbeat is over before
		// An API server gives a request up after a minute, and says so.
		ResponseHeaderTimeout: patience * dialer.Timeout,
		MaxIdleConnsPerHost:   4,
		IdleConnTimeout:       90 * time.Second,
		DisableCompression:    settings.DisableCompression,
		ForceAttemptHTTP2:     true,
		HTTP2:                 &http.HTTP2Config{SendPingTimeout: pings, PingTimeout: dialer.Timeout},
	}
	if l.rt, err = transport.HTTPWrappersForConfig(settings, base); err != nil {
		return nil, fmt.Errorf("reading the credentials for %s: %w", u.String(), err)
	}
	if l.reloads = settings.TLS.ReloadTLSFiles && settings.HasCertAuth(); l.reloads {
		l.certificate, err = l.readCertificate()
	}
	return l, err
}

// dial opens a connection that closes when the link is left.
func (l *link) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.left, cancel)()
	conn, err := l.dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &linkConn{Conn: conn, forget: context.AfterFunc(l.left, func() { _ = conn.Close() })}, nil
}

type linkConn struct {
	net.Conn
	forget func() bool
}

func (c *linkConn) Close() error {
	c.forget()
	return c.Conn.Close()
}

// rotated says that the client certificate in the files is another one by now.
// A server asks for it only when a connection begins, so there must be a new one.
func (l *link) rotated() bool {
	if !l.reloads {
		return false
	}
	now, err := l.readCertificate()
	return err == nil && !slices.EqualFunc(now, l.certificate, slices.Equal)
}

func (l *link) readCertificate() ([][]byte, error) {
	certificate, err := l.tls.GetClientCertificate(new(tls.CertificateRequestInfo))
	if err != nil {
		return nil, fmt.Errorf("reading the client certificate for %s: %w", l.url.String(), err)
	}
	return certificate.Certificate, nil
}

// send sends a request that was made for any endpoint to this one. It leaves
// the request as it is.
func (l *link) send(req *http.Request) (*http.Response, error) {
	out := req.Clone(req.Context())
	out.URL.Scheme = l.url.Scheme
	out.URL.Host = l.url.Host
	out.Host = l.url.Host
	if l.url.Path != "" {
		out.URL.RawPath = l.url.EscapedPath() + req.URL.EscapedPath()
		out.URL.Path = l.url.Path + req.URL.Path
	}
	resp, err := l.rt.RoundTrip(out)
	if err != nil && l.left.Err() != nil {
		return nil, errLeft
	}
	return resp, err
}

// newDialer returns a dialer whose sockets the agent's own programs leave
// alone. If a socket cannot be marked, it is not connected: the agent must not
// depend on its own tables for a single connection.
//
// Names are resolved by Go, over sockets that are marked as well. If the name
// server is a Service of the cluster, it then never answers, which shows on the
// first day. Otherwise it would answer until the day on which the tables are
// wrong, when the API server's name is what the agent needs to correct them.
func newDialer(exempt func(fd uintptr) error, timeout time.Duration) *net.Dialer {
	control := func(_, address string, conn syscall.RawConn) error {
		if exempt == nil {
			return nil
		}
		var failed error
		err := conn.Control(func(fd uintptr) { failed = exempt(fd) })
		if err = errors.Join(err, failed); err != nil {
			return fmt.Errorf("exempting the agent's own socket to %s from translation: %w", address, err)
		}
		return nil
	}
	plain := net.Dialer{Timeout: timeout, KeepAliveConfig: keepAlive, Control: control}
	plain.SetMultipathTCP(false)
	dialer := plain
	dialer.Resolver = &net.Resolver{PreferGo: true, Dial: plain.DialContext}
	return &dialer
}
