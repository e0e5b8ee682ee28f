// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// anyEndpoint is the URL for which client-go makes its requests; each is sent to
// the endpoint in use then.
const anyEndpoint = "https://" + serviceName

// RoundTrip sends a request to the endpoint in use. While that one is in doubt
// the request waits for the race, for a bounded time. A request that meets a
// broken connection is made once more, of the endpoint that the race found.
func (c *Client) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Host != serviceName {
		closeBody(req)
		return nil, fmt.Errorf("a request for %s is not one for the API server: its redirects are not followed", req.URL.Host)
	}
	l, err := c.await(req.Context())
	if err != nil {
		closeBody(req)
		return nil, err
	}
	resp, err := l.send(req)
	if err != nil && c.failed(req, l, err) && req.Body == nil {
		if l, err = c.await(req.Context()); err != nil {
			return nil, err
		}
		if resp, err = l.send(req); err != nil {
			c.failed(req, l, err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("asking the API server at %s: %w", l.url.String(), err)
	}
	l.ignores.Store(false)
	resp.Body = &body{ReadCloser: resp.Body, client: c, link: l, req: req}
	return resp, nil
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

// failed says that a request failed by no wish of those who made it, and puts
// its endpoint in doubt.
func (c *Client) failed(req *http.Request, l *link, err error) bool {
	if req.Context().Err() != nil {
		return false
	}
	if unanswered(err) {
		l.ignores.Store(true)
	}
	c.doubt(l, err)
	return true
}

// unanswered says that a request was sent, and ran out of time. Where the
// connection is the matter, heartbeats find that out.
func unanswered(err error) bool {
	var late interface{ Timeout() bool }
	var connection *net.OpError
	return errors.As(err, &late) && late.Timeout() && !errors.As(err, &connection)
}

// await returns the link in use. While there is none, or it is in doubt, it
// waits for the race, for a bounded time; after that, a doubtful link is better
// than none.
func (c *Client) await(ctx context.Context) (*link, error) {
	timer := time.NewTimer(c.cfg.Timeout)
	defer timer.Stop()
	l, doubtful, turned := c.inUse()
	for doubtful || l == nil {
		select {
		case <-turned:
			if l, doubtful, turned = c.inUse(); l == nil {
				return nil, c.unreachable()
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-timer.C:
			if l == nil {
				return nil, c.unreachable()
			}
			return l, nil
		}
	}
	return l, nil
}

// body is the body of a response. It puts the endpoint in doubt if it breaks.
type body struct {
	io.ReadCloser
	client *Client
	link   *link
	req    *http.Request
	closed atomic.Bool
}

// Read implements io.Reader. A broken watch ends as client-go expects of one
// that lost its connection: it then goes on from the last event. Any other
// error would make it list everything anew. The body of a list must end with
// an error, since half a list is not a list.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == nil || errors.Is(err, io.EOF) || b.closed.Load() || !b.client.failed(b.req, b.link, err) {
		return n, err
	}
	if b.req.URL.Query().Get("watch") == "true" {
		return n, io.ErrUnexpectedEOF
	}
	if b.link.left.Err() != nil {
		err = errLeft
	}
	return n, fmt.Errorf("reading the answer of the API server at %s: %w", b.link.url.String(), err)
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.closed.Store(true)
	return b.ReadCloser.Close()
}
