// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

// recorder is a Handler that keeps what it is told.
type recorder struct {
	mu       sync.Mutex
	held     map[object]Event
	batches  [][]Event
	deleted  []string
	problems []Problem
	trouble  map[Kind]error
	troubles []string // every call of Stale, in order
	listed   []Kind
}

func newRecorder() *recorder {
	return &recorder{held: make(map[object]Event), trouble: make(map[Kind]error)}
}

func (r *recorder) Events(events []Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.batches = append(r.batches, events)
	for _, e := range events {
		if !e.gone() {
			r.held[e.object()] = e
			continue
		}
		delete(r.held, e.object())
		r.deleted = append(r.deleted, describe(e.Kind, e.Name))
	}
}

func (r *recorder) Listed(kind Kind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listed = append(r.listed, kind)
}

func (r *recorder) Stale(kind Kind, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trouble[kind] = err
	r.troubles = append(r.troubles, fmt.Sprintf("%s: %v", kind, err))
}

func (r *recorder) Problems(problems []Problem) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problems = problems
}

// ports says which Services are held and on which ports: "shop/web:80".
func (r *recorder) ports() string {
	var out []string
	for _, key := range sortedKeys(r.held) {
		if s := r.held[key].Service; s != nil {
			out = append(out, fmt.Sprintf("%s:%d", s.Name, s.Ports[0].Port))
		}
	}
	return strings.Join(out, " ")
}

// saysProblem says whether a problem contains the text.
func (r *recorder) saysProblem(text string) bool {
	for _, p := range r.problems {
		if strings.Contains(p.Error(), text) {
			return true
		}
	}
	return false
}

// await waits until the condition holds, which it is asked under the lock.
func (r *recorder) await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for {
		r.mu.Lock()
		ok := holds()
		state := fmt.Sprintf("services %q, deleted %q, problems %q, trouble %q", r.ports(), r.deleted, r.problems, r.troubles)
		r.mu.Unlock()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("never: %s; there is %s", what, state)
		}
		time.Sleep(time.Millisecond)
	}
}

func (r *recorder) awaitPorts(t *testing.T, want string) {
	t.Helper()
	r.await(t, "services "+want, func() bool { return r.ports() == want })
}

// wantDeleted compares every deletion so far.
func (r *recorder) wantDeleted(t *testing.T, want ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if fmt.Sprint(r.deleted) != fmt.Sprint(want) {
		t.Errorf("deleted %q, want %q", r.deleted, want)
	}
}

// wantTrouble compares what a kind's trouble says of itself.
func (r *recorder) wantTrouble(t *testing.T, kind Kind, reason Reason, missing string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	trouble, ok := errors.AsType[*Trouble](r.trouble[kind])
	if !ok {
		t.Errorf("%v is no Trouble", r.trouble[kind])
		return
	}
	if trouble.Reason != reason || trouble.Missing() != missing {
		t.Errorf("%v: reason %s, missing %q; want %s, %q", trouble, trouble.Reason, trouble.Missing(), reason, missing)
	}
}

// run follows a source until the test ends.
func (r *recorder) run(t *testing.T, s Source) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, r) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
}

func (r *recorder) awaitListed(t *testing.T) {
	t.Helper()
	r.await(t, "all kinds listed", func() bool { return len(r.listed) == 3 })
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
