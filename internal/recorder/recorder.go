// SPDX-License-Identifier: Apache-2.0

package recorder

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/reflector"
)

// Config is what to record, and where.
type Config struct {
	// REST leads to the API server; requests must not be rate limited. Found
	// returns a channel that is closed when the API server was found again after
	// it had not answered; nil where nobody tells.
	REST  *rest.Config
	Found func() <-chan struct{}
	// Servers is told where API servers say that they are; nil if nobody needs to
	// know. It may be called from several goroutines.
	Servers func([]netip.AddrPort)

	// Path is the journal's file, and Journal how it is kept.
	Path    string
	Journal journal.Options

	// Kinds are recorded besides the usual ones, or with Only instead of them,
	// by the names that kubectl takes. An API server that lacks one is an error.
	Kinds []string
	Only  bool
	// Namespaces bound what is recorded of kinds that have some; empty: all.
	Namespaces []string

	Log *slog.Logger
}

// Recorder records an API server's objects.
type Recorder struct {
	cfg  Config
	api  client
	room room
	look time.Duration // how often to look which kinds there are

	mu        sync.Mutex
	running   bool
	began     time.Time
	sink      *sink
	followers map[target]*follower
	searching error // why it cannot be told which kinds there are
}

// lookEvery is how often a recorder looks which kinds there are: those of a
// network that is installed later are recorded from then on.
const lookEvery = time.Minute

// New returns a recorder. It makes no request, and opens no file.
func New(cfg Config) (*Recorder, error) {
	if cfg.Only && len(cfg.Kinds) == 0 {
		return nil, errors.New("--only without --kind records nothing: name the kinds to record")
	}
	if cfg.Found == nil {
		cfg.Found = func() <-chan struct{} { return nil }
	}
	api, err := newClient(cfg.REST)
	if err != nil {
		return nil, err
	}
	return &Recorder{cfg: cfg, api: api, room: room{limit: contentRoom}, look: lookEvery}, nil
}

// Run records until ctx ends, then returns nil. While no API server answers it
// waits. An error is one that no retry can mend: of the journal, a kind that was
// asked for by a name that the API server does not know, or a panic of its own.
func (r *Recorder) Run(ctx context.Context) error {
	j, err := journal.Create(r.cfg.Path, r.cfg.Journal)
	if err != nil {
		return err
	}
	r.cfg.Log.Info("recording", "journal", r.cfg.Path)
	err = r.record(ctx, j)
	return errors.Join(err, j.Close())
}

// record has every part end before the journal is closed, those that write last.
func (r *Recorder) record(parent context.Context, j *journal.Journal) error {
	ctx, stop := context.WithCancelCause(parent)
	defer stop(nil)
	out := newSink(j, r.cfg.Log)
	r.begin(out)
	defer r.end()
	written := make(chan error, 1)
	go func() {
		err := guard(r.cfg.Log, func() error { return out.run(ctx) })
		stop(err)
		out.drain()
		written <- err
	}()
	broken := guard(r.cfg.Log, func() error { r.followAll(ctx, stop, j); return nil })
	close(out.items)
	if err := errors.Join(broken, <-written); err != nil || parent.Err() != nil {
		return err
	}
	return context.Cause(ctx)
}

func (r *Recorder) begin(out *sink) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running, r.sink, r.began, r.followers = true, out, time.Now(), map[target]*follower{}
}

func (r *Recorder) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = false
}

// followAll looks which kinds there are, again and again, and follows them.
func (r *Recorder) followAll(ctx context.Context, stop context.CancelCauseFunc, j *journal.Journal) {
	var running sync.WaitGroup
	defer running.Wait()
	defer stop(nil)
	cancels := map[target]context.CancelCauseFunc{}
	var pause reflector.Backoff
	for first := true; ctx.Err() == nil; {
		there, err := discover(ctx, r.cfg.REST)
		if r.noteSearch(ctx, err); err != nil {
			pause.Wait(ctx, r.cfg.Found())
			continue
		}
		wanted, err := there.targets(r.cfg)
		if err != nil && first {
			stop(err)
			return
		}
		if err == nil {
			r.retire(there, cancels, wanted)
		}
		for _, t := range wanted {
			f, isNew := r.newFollower(t, j)
			if !isNew {
				continue
			}
			following, cancel := context.WithCancelCause(ctx)
			cancels[t] = cancel
			running.Go(func() {
				err := guard(r.cfg.Log, func() error { return f.run(following) })
				if err != nil && ctx.Err() == nil {
					stop(err)
				}
				if ctx.Err() == nil {
					r.forget(t)
				}
			})
		}
		first, pause = false, reflector.Backoff{}
		wait(ctx, r.look)
	}
}

// retire ends the followers of kinds that the API server has no more. Where a
// group does not tell what it has, nothing is gone.
func (r *Recorder) retire(there catalogue, cancels map[target]context.CancelCauseFunc, wanted []target) {
	for t, cancel := range cancels {
		if there.broken[t.Group] == nil && !slices.Contains(wanted, t) {
			cancel(errGone)
			delete(cancels, t)
		}
	}
}

// newFollower returns one for a kind that has none.
func (r *Recorder) newFollower(t target, j *journal.Journal) (f *follower, isNew bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.followers[t] != nil {
		return nil, false
	}
	f = &follower{
		target: t, api: r.api, sink: r.sink, found: r.cfg.Found, servers: r.cfg.Servers, log: r.cfg.Log, started: time.Now(),
		states: newStates(t.Kind, j, &r.room),
	}
	r.followers[t] = f
	return f, true
}

// forget leaves a kind to whoever looks next.
func (r *Recorder) forget(t target) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.followers, t)
}

// noteSearch logs when it cannot be told which kinds there are.
func (r *Recorder) noteSearch(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && r.searching == nil {
		r.cfg.Log.Warn("cannot tell which kinds there are; will try again", "error", err)
	}
	r.searching = err
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// Status is how far a recorder has come, or where it was when it ended.
type Status struct {
	Path    string
	Running bool
	Began   time.Time // zero: it has not begun
	Kinds   []KindStatus
	Objects int64
	Events  int64 // written since it began
	Lists   int64 // complete ones
	Gaps    int64
	Trouble error // why the journal takes nothing, or nobody knows what to record
}

// KindStatus is how a kind is followed.
type KindStatus struct {
	Name    string // endpointslices.discovery.k8s.io
	Objects int64
	Listed  bool  // it was followed once
	Trouble error // why it is not followed at present
}

// Status may be asked for at any time.
func (r *Recorder) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Status{Path: r.cfg.Path, Running: r.running, Began: r.began, Trouble: r.searching}
	if r.sink == nil {
		return s
	}
	s.Events, s.Lists, s.Gaps = r.sink.events.Load(), r.sink.lists.Load(), r.sink.gaps.Load()
	if err := r.sink.current(); err != nil {
		s.Trouble = err
	}
	targets := slices.SortedFunc(maps.Keys(r.followers), func(a, b target) int { return strings.Compare(a.String(), b.String()) })
	for _, t := range targets {
		k := r.followers[t].status()
		s.Kinds = append(s.Kinds, k)
		s.Objects += k.Objects
	}
	return s
}

func (f *follower) status() KindStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	return KindStatus{Name: f.target.String(), Objects: f.states.count.Load(), Listed: f.listed, Trouble: f.trouble}
}
