// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/api"
)

// Answer is what is found at an address.
type Answer uint8

// The answers of Client.Probe.
const (
	Silent  Answer = iota // nobody answered, or nobody can tell who did
	Answers               // an API server, ready or not
	Foreign               // something else
)

// String returns the answer as a word.
func (a Answer) String() string {
	switch a {
	case Answers:
		return api.EndpointAnswers
	case Foreign:
		return api.EndpointForeign
	}
	return api.EndpointSilent
}

// verdict is how a heartbeat ended.
type verdict struct {
	state string // api.Endpoint…
	err   error  // why it is not EndpointAnswers
}

var errIgnores = errors.New("heartbeats are answered, and the last request was not")

// heartbeat asks whether the server is ready.
func (l *link) heartbeat(ctx context.Context, timeout time.Duration) verdict {
	late := fmt.Errorf("no answer within %s", timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, late)
	defer cancel()
	// The path is rewritten when it is sent; a constant URL always parses.
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, anyEndpoint+"/readyz", nil)
	if err != nil {
		return verdict{api.EndpointSilent, err}
	}
	resp, err := l.send(req)
	if err != nil && context.Cause(ctx) == late {
		return verdict{api.EndpointSilent, late}
	}
	if err != nil {
		return verdict{stateAfter(err), err}
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 1<<16) // so that the connection can be used again
	switch resp.StatusCode {
	case http.StatusOK, http.StatusUnauthorized, http.StatusForbidden:
		if l.ignores.Load() {
			return verdict{api.EndpointUnready, errIgnores}
		}
		return verdict{state: api.EndpointAnswers}
	}
	return verdict{api.EndpointUnready, fmt.Errorf("GET /readyz was answered with %s", resp.Status)}
}

// stateAfter tells a server that proved to be another one from one that said
// nothing. An alert or a broken connection says nothing, and a certificate
// that has expired, or is not valid yet, may be a matter of this machine's clock.
func stateAfter(err error) string {
	if errors.Is(err, http.ErrSchemeMismatch) {
		return api.EndpointForeign
	}
	var noTLS tls.RecordHeaderError
	if errors.As(err, &noTLS) {
		return api.EndpointForeign
	}
	var refused *tls.CertificateVerificationError
	if !errors.As(err, &refused) {
		return api.EndpointSilent
	}
	var invalid x509.CertificateInvalidError
	if errors.As(refused, &invalid) && invalid.Reason == x509.Expired {
		return api.EndpointSilent
	}
	return api.EndpointForeign
}

// try makes a link with the first of the names that the server's certificate
// has. The link is nil if the server is silent or foreign; if it has none of
// the names, the verdict says so of the first.
func (c *Client) try(ctx context.Context, config *rest.Config, u url.URL, names []string) (*link, verdict) {
	var misnamed verdict
	for _, name := range names {
		l, err := newLink(config, c.dialer, u, name, c.cfg.Heartbeat)
		if err != nil {
			return nil, verdict{api.EndpointSilent, err}
		}
		v := l.heartbeat(ctx, c.cfg.Timeout)
		if v.state == api.EndpointAnswers || v.state == api.EndpointUnready {
			return l, v
		}
		l.leave()
		var otherName x509.HostnameError
		if !errors.As(v.err, &otherName) {
			return nil, v
		}
		if misnamed.err == nil {
			misnamed = v
		}
	}
	return nil, misnamed
}

// Probe finds out, with one heartbeat, whether an API server is at an address.
// It says nothing about this agent: it sends no credentials. The error tells
// why the answer is not Answers.
func (c *Client) Probe(ctx context.Context, at netip.AddrPort) (Answer, error) {
	if !c.verifies {
		return Silent, errNotVerifying
	}
	if !usable(at) {
		return Silent, fmt.Errorf("no API server can have the address %s", at)
	}
	u := atAddress(at)
	l, v := c.try(ctx, rest.AnonymousClientConfig(c.config), u, learnedNames(c.own))
	if l != nil {
		l.leave()
		return Answers, nil
	}
	if v.state == api.EndpointForeign {
		return Foreign, v.err
	}
	return Silent, v.err
}
