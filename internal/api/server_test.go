// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// station answers from values; what it is asked comes back in its answers, so
// that a test sees both directions of the socket.
type station struct {
	mu       sync.Mutex
	revision uint64
	changed  chan struct{}
	events   []Event
	failure  error // of the stream, after the events
}

func newStation() *station { return &station{revision: 7, changed: make(chan struct{})} }

func (s *station) publish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *station) Status(context.Context) (Status, error) {
	return Status{SchemaVersion: SchemaVersion, Healthy: true, Node: "n1", Findings: []string{}}, nil
}

func (s *station) Services(context.Context) (Services, error) {
	return Services{SchemaVersion: SchemaVersion, Services: []Service{{Service: "default/web"}}}, nil
}

func (s *station) Frontends(context.Context) ([]Frontend, error) {
	return []Frontend{{Address: "10.96.0.10", Port: 53, Protocol: "UDP", Backends: []Backend{{Address: "10.0.1.7", Port: 53}}}}, nil
}

func (s *station) Backends(context.Context) (Backends, error) {
	return Backends{SchemaVersion: SchemaVersion, Backends: []BackendRow{{Service: "default/web"}}}, nil
}

func (s *station) Kernel(context.Context) (Kernel, error) {
	return Kernel{}, errors.New("read the maps: no such file")
}

func (s *station) Desired(context.Context) ([]Frontend, error) { return []Frontend{}, nil }

func (s *station) Explain(_ context.Context, target string) (Explain, error) {
	if target == "" {
		return Explain{}, BadRequest("name a Service or an address")
	}
	if target == "default/absent" {
		return Explain{}, fmt.Errorf("explain: %w", NotFound("no Service %s", target))
	}
	return Explain{SchemaVersion: SchemaVersion, Service: target}, nil
}

func (s *station) Trace(_ context.Context, flows []FlowRequest) ([]Trace, error) {
	traces := make([]Trace, 0, len(flows))
	for _, flow := range flows {
		if flow.To == "short" {
			continue
		}
		traces = append(traces, Trace{Verdict: "pass", Steps: []Step{{Stage: flow.From, Fact: flow.To}}})
	}
	return traces, nil
}

func (s *station) Release(_ context.Context, service string) (Released, error) {
	if service != "default/kubernetes" {
		return Released{}, NotFound("nothing is retained for %s", service)
	}
	return Released{SchemaVersion: SchemaVersion, Service: service, Retained: []Retention{}}, nil
}

func (s *station) Events(ctx context.Context, emit func(Event) error) error {
	for _, event := range s.events {
		if err := emit(event); err != nil {
			return err
		}
	}
	if s.failure != nil {
		return s.failure
	}
	<-ctx.Done()
	return nil
}

func (s *station) Wait(ctx context.Context, known uint64) (uint64, error) {
	for {
		s.mu.Lock()
		revision, changed := s.revision, s.changed
		s.mu.Unlock()
		if revision != known {
			return revision, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// serve answers on a real socket until the test ends.
func serve(t *testing.T, a Agent) *Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "run", "agent.sock")
	listener, err := Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: NewHandler(a)}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	return NewClient(socket)
}

func TestEveryAnswerArrivesAsItWasGiven(t *testing.T) {
	s := newStation()
	client := serve(t, s)
	flows := []FlowRequest{{"10.0.1.1", "10.96.0.10:53/UDP"}, {"default/client", "[fd00::10]:80"}}
	checkAnswer(t, "status", s.Status, client.Status)
	checkAnswer(t, "services", s.Services, client.Services)
	checkAnswer(t, "frontends", s.Frontends, client.Frontends)
	checkAnswer(t, "backends", s.Backends, client.Backends)
	checkAnswer(t, "an empty list", s.Desired, client.Desired)
	checkAnswer(t, "explain",
		func(ctx context.Context) (Explain, error) { return s.Explain(ctx, "default/a b&c=d") },
		func(ctx context.Context) (Explain, error) { return client.Explain(ctx, "default/a b&c=d") })
	checkAnswer(t, "release",
		func(ctx context.Context) (Released, error) { return s.Release(ctx, "default/kubernetes") },
		func(ctx context.Context) (Released, error) { return client.Release(ctx, "default/kubernetes") })
	checkAnswer(t, "trace",
		func(ctx context.Context) ([]Trace, error) { return s.Trace(ctx, flows) },
		func(ctx context.Context) ([]Trace, error) { return client.Trace(ctx, flows) })
}

func checkAnswer[T any](t *testing.T, name string, given, got func(context.Context) (T, error)) {
	t.Helper()
	want, err := given(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	have, err := got(t.Context())
	if err != nil {
		t.Errorf("%s: %v", name, err)
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("%s differs (-given +arrived):\n%s", name, diff)
	}
}

func TestErrorsKeepTheirWordsAndStatus(t *testing.T) {
	client := serve(t, newStation())
	tests := []struct {
		name   string
		ask    func(context.Context) error
		status int
		text   string
	}{
		{"what does not exist is 404", explain(client, "default/absent"), 404, "explain: no Service default/absent"},
		{"a bad request is 400", explain(client, ""), 400, "name a Service or an address"},
		{"a failure of the agent is 500", func(ctx context.Context) error { _, err := client.Kernel(ctx); return err }, 500, "read the maps: no such file"},
		{"an unknown endpoint is 404 and says why", func(ctx context.Context) error {
			_, err := ask[Status](ctx, client, "/v2/status")
			return err
		}, 404, "this agent does not serve GET /v2/status: the command and the agent differ in version"},
		{"a revision that is no number is 400", func(ctx context.Context) error {
			_, err := ask[Revision](ctx, client, "/v1/wait?revision=x")
			return err
		}, 400, `revision: strconv.ParseUint: parsing "x": invalid syntax`},
		{"a body that is no array is 400", func(ctx context.Context) error {
			_, err := decode[[]Trace](client.send(ctx, http.MethodPost, "/v1/trace", strings.NewReader("{")))
			return err
		}, 400, `the body is no JSON array of {"from","to"}: unexpected EOF`},
		{"a release of what is not retained is 404", func(ctx context.Context) error {
			_, err := client.Release(ctx, "shop/web")
			return err
		}, 404, "nothing is retained for shop/web"},
		{"a release that names nothing readable is 400", func(ctx context.Context) error {
			_, err := decode[Released](client.send(ctx, http.MethodPost, "/v1/release", strings.NewReader("[]")))
			return err
		}, 400, `the body is no JSON object {"service"}: json: cannot unmarshal array into Go value of type api.ReleaseRequest`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			known, ok := errors.AsType[*Error](test.ask(t.Context()))
			if !ok {
				t.Fatal("the error is no *Error")
			}
			if diff := cmp.Diff(Error{test.status, test.text}, *known); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func explain(client *Client, target string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := client.Explain(ctx, target)
		return err
	}
}

func TestTraceRefusesAnAnswerOfAnotherLength(t *testing.T) {
	client := serve(t, newStation())
	_, err := client.Trace(t.Context(), []FlowRequest{{"10.0.0.1", "short"}, {"10.0.0.1", "10.96.0.1:443"}})
	if err == nil || err.Error() != "the agent answered 1 of 2 flows" {
		t.Errorf("got %v", err)
	}
}

func TestWaitReturnsWithTheNextRevision(t *testing.T) {
	s := newStation()
	client := serve(t, s)
	first, err := client.Wait(t.Context(), 0)
	if err != nil || first != 7 {
		t.Fatalf("the first wait answered %d, %v; want 7 at once", first, err)
	}
	go func() {
		time.Sleep(50 * time.Millisecond)
		s.publish()
	}()
	next, err := client.Wait(t.Context(), first)
	if err != nil || next != 8 {
		t.Errorf("got %d, %v; want 8", next, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := client.Wait(ctx, next); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a wait whose caller gave up returned %v", err)
	}
}

func TestEventsAreStreamed(t *testing.T) {
	events := []Event{
		{Event: EventRefused, Refusal: Refusal{SchemaVersion: SchemaVersion, Address: "10.96.0.10", Port: 53, Action: "reject", Reason: "no endpoint"}},
		{Event: EventRetained, Refusal: Refusal{SchemaVersion: SchemaVersion, Service: "default/kubernetes"}, Family: "IPv4", Role: "cluster-ip"},
		{Event: EventRefused, Refusal: Refusal{SchemaVersion: SchemaVersion, Address: "fd00::10", Port: 80, Action: "drop"}},
	}
	tests := []struct {
		name    string
		failure error
		last    func(cancel func()) (more bool) // at the last event
		want    string
	}{
		{"until the caller's context ends, which is no error", nil, func(cancel func()) bool { cancel(); return true }, "<nil>"},
		{"until the caller has seen enough", nil, func(func()) bool { return false }, "<nil>"},
		{"until the agent fails, with its words", errors.New("the ring buffer is closed"), func(func()) bool { return true },
			"the agent ended the stream: the ring buffer is closed"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newStation()
			s.events, s.failure = events, test.failure
			client := serve(t, s)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			got, err := collect(ctx, client, func(n int) bool { return n < len(events) || test.last(cancel) })
			if fmt.Sprint(err) != test.want {
				t.Errorf("got error %v, want %s", err, test.want)
			}
			if diff := cmp.Diff(events, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// collect reads events while more says so, and returns how the stream ended.
func collect(ctx context.Context, client *Client, more func(n int) bool) ([]Event, error) {
	stream, err := client.Events(ctx)
	if err != nil {
		return nil, err
	}
	var got []Event
	for event, err := range stream {
		if err != nil {
			return got, err
		}
		if got = append(got, event); !more(len(got)) {
			break
		}
	}
	return got, nil
}

func TestAnAgentThatStopsEndsTheStreamWithAnError(t *testing.T) {
	listener, err := Listen(filepath.Join(t.TempDir(), "agent.sock"))
	if err != nil {
		t.Fatal(err)
	}
	s := newStation()
	s.events = []Event{{Event: EventRefused}}
	server := &http.Server{Handler: NewHandler(s)}
	go func() { _ = server.Serve(listener) }()
	_, err = collect(t.Context(), NewClient(listener.Addr().String()), func(int) bool { return server.Close() == nil })
	if err == nil || !strings.HasPrefix(err.Error(), "read the agent's stream of events: ") && !strings.HasPrefix(err.Error(), "the agent ended the stream") {
		t.Errorf("got %v", err)
	}
}

func TestNoAgent(t *testing.T) {
	folder := t.TempDir()
	dead := filepath.Join(folder, "dead.sock")
	abandon(t, dead)
	tests := []struct{ name, socket string }{
		{"a socket that does not exist", filepath.Join(folder, "absent.sock")},
		{"a socket that nobody serves", dead},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := NewClient(test.socket).Status(t.Context())
			want := "no agent answers on " + test.socket + ": start `fairlead agent`, or name its socket with --socket"
			if !errors.Is(err, ErrNoAgent) || err.Error() != want {
				t.Errorf("got  %v\nwant %s", err, want)
			}
		})
	}
}

// abandon leaves a socket behind as an agent does that was killed.
func abandon(t *testing.T, path string) {
	t.Helper()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestListen(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "sub", "agent.sock")
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	abandon(t, path)
	first, err := Listen(path)
	if err != nil {
		t.Fatalf("a socket that a dead agent left is not replaced: %v", err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket has mode %v, %v; want 0600", info.Mode(), err)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("beside the socket lie %v, %v; want nothing", entries, err)
	}
	if _, err := Listen(path); err == nil || err.Error() != "another agent answers on "+path+": stop it, or name another path with --socket" {
		t.Errorf("a second agent on the same socket got %v", err)
	}
	if err := first.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the closed socket is still there: %v", err)
	}
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path); err == nil || err.Error() != path+" exists and is no socket: name another path with --socket" {
		t.Errorf("a file in the way got %v", err)
	}
}
