// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// FlowRequest is one connection to trace: who dials (an address, or a pod as
// namespace/name) and what (ADDR:PORT[/PROTO]).
type FlowRequest struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// ReleaseRequest names the Service, namespace/name, whose retention is to end.
type ReleaseRequest struct {
	Service string `json:"service"`
}

// Revision is the answer to /v1/wait.
type Revision struct {
	Revision uint64 `json:"revision"`
}

// Agent is what answers the requests of the socket. Each method reads a
// snapshot, and may be called from several goroutines.
//
// An *Error (see NotFound, BadRequest) tells the caller what to mend; any
// other error is the agent's own failure.
type Agent interface {
	Status(ctx context.Context) (Status, error)
	Services(ctx context.Context) (Services, error)
	Frontends(ctx context.Context) ([]Frontend, error)
	Backends(ctx context.Context) (Backends, error)
	Kernel(ctx context.Context) (Kernel, error)
	// Desired compiles a fresh read of the source, past the tables.
	Desired(ctx context.Context) ([]Frontend, error)
	// Explain takes a Service (namespace/name) or a target (see ParseTarget).
	Explain(ctx context.Context, target string) (Explain, error)
	// Trace answers the flows in their order.
	Trace(ctx context.Context, flows []FlowRequest) ([]Trace, error)
	// Events calls emit for each event from now on, until ctx ends (then it
	// returns nil) or emit fails.
	Events(ctx context.Context, emit func(Event) error) error
	// Release ends the retention of a Service (namespace/name), and says what
	// was retained.
	Release(ctx context.Context, service string) (Released, error)
	// Wait returns the revision of the tables as soon as it differs from
	// known, or the error of ctx.
	Wait(ctx context.Context, known uint64) (uint64, error)
}

// waitLimit bounds a long poll, so that neither end keeps a dead connection.
const waitLimit = 30 * time.Second

// requestLimit bounds the body of a request.
const requestLimit = 16 << 20

// NewHandler serves a as the agent's API.
func NewHandler(a Agent) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /v1/status", get(a.Status))
	mux.Handle("GET /v1/services", get(a.Services))
	mux.Handle("GET /v1/frontends", get(a.Frontends))
	mux.Handle("GET /v1/backends", get(a.Backends))
	mux.Handle("GET /v1/kernel", get(a.Kernel))
	mux.Handle("GET /v1/desired", get(a.Desired))
	mux.HandleFunc("GET /v1/explain", func(w http.ResponseWriter, r *http.Request) {
		answer, err := a.Explain(r.Context(), r.URL.Query().Get("target"))
		respond(w, answer, err)
	})
	mux.HandleFunc("POST /v1/trace", func(w http.ResponseWriter, r *http.Request) { serveTrace(a, w, r) })
	mux.HandleFunc("GET /v1/wait", func(w http.ResponseWriter, r *http.Request) { serveWait(a, w, r) })
	mux.HandleFunc("GET /v1/events", func(w http.ResponseWriter, r *http.Request) { serveEvents(a, w, r) })
	mux.HandleFunc("POST /v1/release", func(w http.ResponseWriter, r *http.Request) { serveRelease(a, w, r) })
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		respond(w, nil, NotFound("this agent does not serve %s %s: the command and the agent differ in version", r.Method, r.URL.Path))
	})
	return mux
}

func get[T any](read func(context.Context) (T, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, err := read(r.Context())
		respond(w, answer, err)
	})
}

func serveTrace(a Agent, w http.ResponseWriter, r *http.Request) {
	var flows []FlowRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, requestLimit)).Decode(&flows); err != nil {
		respond(w, nil, BadRequest("the body is no JSON array of {\"from\",\"to\"}: %v", err))
		return
	}
	answer, err := a.Trace(r.Context(), flows)
	respond(w, answer, err)
}

func serveRelease(a Agent, w http.ResponseWriter, r *http.Request) {
	var request ReleaseRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, requestLimit)).Decode(&request); err != nil {
		respond(w, nil, BadRequest("the body is no JSON object {\"service\"}: %v", err))
		return
	}
	answer, err := a.Release(r.Context(), request.Service)
	respond(w, answer, err)
}

func serveWait(a Agent, w http.ResponseWriter, r *http.Request) {
	known, err := strconv.ParseUint(r.URL.Query().Get("revision"), 10, 64)
	if err != nil {
		respond(w, nil, BadRequest("revision: %v", err))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), waitLimit)
	defer cancel()
	revision, err := a.Wait(ctx, known)
	if errors.Is(err, context.DeadlineExceeded) {
		revision, err = known, nil
	}
	respond(w, Revision{revision}, err)
}

// eventLine is one line of the stream: an event or, as the last one, why the
// stream ends.
type eventLine struct {
	*Event
	Error string `json:"error,omitempty"`
}

func serveEvents(a Agent, w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	stream := http.NewResponseController(w)
	if stream.Flush() != nil {
		return
	}
	lines := json.NewEncoder(w)
	err := a.Events(r.Context(), func(event Event) error {
		if err := lines.Encode(eventLine{Event: &event}); err != nil {
			return err
		}
		return stream.Flush()
	})
	if err == nil || r.Context().Err() != nil {
		return
	}
	// Nobody is left to tell if this fails too.
	_ = lines.Encode(eventLine{Error: err.Error()})
}

// respond encodes before it writes, so that an answer is whole or an error.
func respond(w http.ResponseWriter, answer any, err error) {
	status := http.StatusOK
	body, encodeErr := json.Marshal(answer)
	if err = errors.Join(err, encodeErr); err != nil {
		status, body = errorBody(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// A caller that has gone needs no answer.
	_, _ = w.Write(append(body, '\n'))
}

// Error is an answer other than the one asked for, at both ends of the socket.
type Error struct {
	Status  int // HTTP status, 4xx or 5xx
	Message string
}

func (e *Error) Error() string { return e.Message }

// NotFound says that the agent knows no such thing.
func NotFound(format string, args ...any) error {
	return &Error{http.StatusNotFound, fmt.Sprintf(format, args...)}
}

// BadRequest says what is wrong with what the caller asked.
func BadRequest(format string, args ...any) error {
	return &Error{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

type errorJSON struct {
	Error string `json:"error"`
}

func errorBody(err error) (int, []byte) {
	status := http.StatusInternalServerError
	if known, ok := errors.AsType[*Error](err); ok {
		status = known.Status
	}
	body, encodeErr := json.Marshal(errorJSON{err.Error()})
	if encodeErr != nil {
		return http.StatusInternalServerError, []byte(`{"error":"the error cannot be written as JSON"}`)
	}
	return status, body
}
