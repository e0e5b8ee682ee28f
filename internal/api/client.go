// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"syscall"
	"time"
)

// ErrNoAgent says that nobody serves the socket.
var ErrNoAgent = errors.New("start `fairlead agent`, or name its socket with --socket")

// headerPatience bounds how long an agent may think before it answers. A fresh
// read of a large cluster takes seconds; a long poll takes up to waitLimit.
const headerPatience = 2 * waitLimit

// Client asks an agent over its unix socket.
type Client struct {
	socket string
	http   *http.Client
}

// NewClient returns a client of the agent on the socket. It connects with the
// first request, so that it never fails.
func NewClient(socket string) *Client {
	dialer := net.Dialer{Timeout: 5 * time.Second}
	return &Client{socket, &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		},
		ResponseHeaderTimeout: headerPatience,
		// A command asks a few times and goes; idle connections would only
		// keep an agent that stops waiting.
		DisableKeepAlives: true,
	}}}
}

// Status returns the agent's state.
func (c *Client) Status(ctx context.Context) (Status, error) {
	return ask[Status](ctx, c, "/v1/status")
}

// Services returns the Services of the agent's tables.
func (c *Client) Services(ctx context.Context) (Services, error) {
	return ask[Services](ctx, c, "/v1/services")
}

// Frontends returns the rows of the agent's tables.
func (c *Client) Frontends(ctx context.Context) ([]Frontend, error) {
	return ask[[]Frontend](ctx, c, "/v1/frontends")
}

// Backends returns the backends of the agent's tables.
func (c *Client) Backends(ctx context.Context) (Backends, error) {
	return ask[Backends](ctx, c, "/v1/backends")
}

// Kernel returns the maps as the agent reads them.
func (c *Client) Kernel(ctx context.Context) (Kernel, error) {
	return ask[Kernel](ctx, c, "/v1/kernel")
}

// Desired returns the rows that a fresh read of the agent's source asks for.
func (c *Client) Desired(ctx context.Context) ([]Frontend, error) {
	return ask[[]Frontend](ctx, c, "/v1/desired")
}

// Explain returns what is known of a Service, or of a target.
func (c *Client) Explain(ctx context.Context, target string) (Explain, error) {
	return ask[Explain](ctx, c, "/v1/explain?"+url.Values{"target": {target}}.Encode())
}

// Wait returns the revision of the tables once it differs from known, or the
// same one after the long poll's limit.
func (c *Client) Wait(ctx context.Context, known uint64) (uint64, error) {
	answer, err := ask[Revision](ctx, c, "/v1/wait?revision="+strconv.FormatUint(known, 10))
	return answer.Revision, err
}

// Trace says what would happen to each flow, in order.
func (c *Client) Trace(ctx context.Context, flows []FlowRequest) ([]Trace, error) {
	body, err := json.Marshal(flows)
	if err != nil {
		return nil, fmt.Errorf("write the flows to trace: %w", err)
	}
	traces, err := decode[[]Trace](c.send(ctx, http.MethodPost, "/v1/trace", bytes.NewReader(body)))
	if err != nil {
		return nil, err
	}
	if len(traces) != len(flows) {
		return nil, fmt.Errorf("the agent answered %d of %d flows", len(traces), len(flows))
	}
	return traces, nil
}

// Release ends the retention of a Service, namespace/name, and says what was
// retained.
func (c *Client) Release(ctx context.Context, service string) (Released, error) {
	body, err := json.Marshal(ReleaseRequest{service})
	if err != nil {
		return Released{}, fmt.Errorf("write which Service to release: %w", err)
	}
	return decode[Released](c.send(ctx, http.MethodPost, "/v1/release", bytes.NewReader(body)))
}

// Events opens the stream of events from now on. Ranging over
// it ends without an error when ctx ends, and with one when the agent stops;
// it must be ranged over once, which closes it.
func (c *Client) Events(ctx context.Context) (iter.Seq2[Event, error], error) {
	body, err := c.send(ctx, http.MethodGet, "/v1/events", nil)
	if err != nil {
		return nil, err
	}
	return func(yield func(Event, error) bool) {
		defer body.Close()
		for lines := json.NewDecoder(body); ; {
			event, err := nextEvent(lines)
			if ctx.Err() != nil || !yield(event, err) || err != nil {
				return
			}
		}
	}, nil
}

func nextEvent(lines *json.Decoder) (Event, error) {
	line := eventLine{Event: new(Event)}
	err := lines.Decode(&line)
	switch {
	case errors.Is(err, io.EOF):
		return Event{}, errors.New("the agent ended the stream: it has stopped, or starts again")
	case err != nil:
		return Event{}, fmt.Errorf("read the agent's stream of events: %w", err)
	case line.Error != "":
		return Event{}, fmt.Errorf("the agent ended the stream: %s", line.Error)
	}
	return *line.Event, nil
}

func ask[T any](ctx context.Context, c *Client, path string) (T, error) {
	return decode[T](c.send(ctx, http.MethodGet, path, nil))
}

func decode[T any](body io.ReadCloser, err error) (T, error) {
	var answer T
	if err != nil {
		return answer, err
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(&answer); err != nil {
		return answer, fmt.Errorf("read the agent's answer: %w", err)
	}
	return answer, nil
}

// send returns the body of a good answer. The host in the URL is never looked
// up: every connection goes to the socket.
func (c *Client) send(ctx context.Context, method, path string, body io.Reader) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://fairlead"+path, body)
	if err != nil {
		return nil, fmt.Errorf("ask the agent: %w", err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, c.explain(err)
	}
	if response.StatusCode == http.StatusOK {
		return response.Body, nil
	}
	defer response.Body.Close()
	var answer errorJSON
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || answer.Error == "" {
		return nil, &Error{response.StatusCode, "the agent answered " + response.Status}
	}
	return nil, &Error{response.StatusCode, answer.Error}
}

func (c *Client) explain(err error) error {
	if nobodyAnswers(err) {
		return fmt.Errorf("no agent answers on %s: %w", c.socket, ErrNoAgent)
	}
	if errors.Is(err, syscall.EACCES) {
		return fmt.Errorf("the agent's socket %s is for root only: run this command as root", c.socket)
	}
	// The URL that net/http puts before its errors is made up.
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	return fmt.Errorf("ask the agent on %s: %w", c.socket, err)
}

// nobodyAnswers tells a socket that is not there, or that nobody serves, from
// one that fails otherwise.
func nobodyAnswers(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED)
}
