// SPDX-License-Identifier: Apache-2.0

package recorder

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/reflector"
)

const (
	// settled is how long a watch must last for the next pause to be a short one.
	settled = 10 * time.Second
	// behind is how long a server that does not know a version yet is waited for.
	behind = time.Minute
	// uncoveredEvery is how often a gap that goes on is noted, so that a recorder
	// that is killed meanwhile leaves it in the journal.
	uncoveredEvery = time.Minute
)

// errNotRunning is the reason of the gap between two runs.
var errNotRunning = errors.New("the recorder was not running")

// follower keeps one kind in step with the API server, in all namespaces or in
// one.
type follower struct {
	target  target
	api     client
	states  *states
	sink    *sink
	found   func() <-chan struct{}
	servers func([]netip.AddrPort) // nil: nobody needs to know
	log     *slog.Logger
	started time.Time

	// These are for the goroutine of run alone. Version is the last that was seen
	// of the kind, and good the last moment at which it was followed. Nothing that
	// happened later than good is sure to be told unless a watch from version is.
	version string
	good    time.Time
	lost    bool // a new list is needed to know what is there
	// open is a list of which there are events, and that is not complete: who asks
	// again goes on with it.
	open  *listing
	cause error
	noted time.Time // when the gap was last noted

	mu      sync.Mutex
	listed  bool
	trouble error
}

// errGone says that the API server does not know the kind any more.
var errGone = errors.New("the API server has this kind no more")

// run follows until ctx ends; errGone is a cause for it to end. An error says
// that the journal cannot be read.
func (f *follower) run(ctx context.Context) error {
	defer f.states.release()
	if err := f.begin(ctx); err != nil {
		return err
	}
	if err := f.follow(ctx); err != nil {
		return err
	}
	ending := context.WithoutCancel(ctx)
	if errors.Is(context.Cause(ctx), errGone) {
		return f.end(ending)
	}
	if f.lost || f.stale() != nil {
		f.gap(ending, time.Now(), "")
	}
	return nil
}

// begin goes on where the journal ends.
func (f *follower) begin(ctx context.Context) error {
	if err := f.states.recall(ctx, f.target.holds); err != nil {
		return err
	}
	until, version, found, err := f.states.journal.Watched(ctx, f.target.Kind)
	if err != nil {
		return err
	}
	f.good, f.version, f.lost = f.started, version, true
	if found {
		f.good, f.cause = until, errNotRunning
	}
	return nil
}

func (f *follower) follow(ctx context.Context) error {
	var pause reflector.Backoff
	for ctx.Err() == nil {
		began := time.Now()
		err := f.list(ctx)
		if err == nil {
			err = f.watch(ctx)
		}
		if ctx.Err() != nil {
			return nil
		}
		if !isTrouble(err) {
			return err
		}
		f.lose(ctx, err)
		f.failed(err)
		if time.Since(began) > settled {
			pause = reflector.Backoff{}
		}
		pause.Wait(ctx, f.found())
	}
	return nil
}

// isTrouble tells errors of the API server from those of the journal.
func isTrouble(err error) bool {
	_, trouble := errors.AsType[*reflector.Trouble](err)
	return trouble
}

// list takes what is there now, and ends the gap before.
func (f *follower) list(ctx context.Context) error {
	f.states.lists++
	of, objects := f.listing(), 0
	version, err := f.api.list(ctx, f.target, func(fields map[string]any) error {
		objects++
		o, err := readObject(f.target.Kind, fields)
		if err != nil {
			return f.target.trouble("list", true, err)
		}
		f.tellServers(o)
		events, err := f.states.see(ctx, o, journal.Listed, time.Now())
		return f.hand(ctx, of, events, err)
	})
	if err != nil {
		return err
	}
	now := time.Now()
	events, err := f.states.missing(ctx, now)
	if err := f.hand(ctx, of, events, err); err != nil {
		return err
	}
	if f.cause != nil {
		f.gap(ctx, now, version)
	}
	if err := f.complete(ctx, of, journal.List{Ended: now, ResourceVersion: version, Objects: objects}); err != nil {
		return err
	}
	f.version, f.good, f.lost, f.cause = version, now, false, nil
	return nil
}

// listing is the list to go on with, or one that begins.
func (f *follower) listing() *listing {
	if f.open != nil {
		return f.open
	}
	return &listing{begun: journal.List{Kind: f.target.Kind, Namespace: f.target.namespace, Began: time.Now(), Reason: f.listReason()}}
}

// complete ends a list: all that it brought was handed on.
func (f *follower) complete(ctx context.Context, of *listing, ended journal.List) error {
	ended.Reason = f.listReason()
	if !f.sink.put(ctx, item{of: of, ended: &ended}) {
		return context.Cause(ctx)
	}
	f.open = nil
	return nil
}

// watch goes on from the last version, however often the connection ends, and
// returns why that is not possible any more.
func (f *follower) watch(ctx context.Context) error {
	var pause reflector.Backoff
	var vain time.Time // since when watches are answered and lead no further
	for ctx.Err() == nil {
		began, from := time.Now(), f.version
		err := f.api.watch(ctx, f.target, f.version, f.followed, func(change change) error { return f.take(ctx, change) })
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			f.good = time.Now()
		}
		further := err == nil || f.version != from || time.Since(began) > settled
		if further {
			pause = reflector.Backoff{}
		}
		if further || !reopens(err) && !isAhead(err) {
			vain = time.Time{}
		} else if vain.IsZero() {
			vain = began
		}
		if err != nil && !resumable(err, vain) {
			return err
		}
		if !reopens(err) {
			f.failed(err)
		}
		if !reopens(err) || f.version == from {
			pause.Wait(ctx, f.found())
		}
	}
	return nil
}

// reopens says that a watch was open and ended: as servers end them now and
// then, or with its connection.
func reopens(err error) bool {
	trouble, ok := errors.AsType[*reflector.Trouble](err)
	return err == nil || ok && trouble.Reason == reflector.ReasonBroken
}

// resumable says that asking for the same version again may go well, when since
// some time, if ever, answers have led no further.
func resumable(err error, vain time.Time) bool {
	trouble, ok := errors.AsType[*reflector.Trouble](err)
	if !ok || trouble.Reason == reflector.ReasonExpired || trouble.Reason == reflector.ReasonRefused {
		return false
	}
	// A server that is behind the others knows the version soon; one whose data
	// were restored from a backup never will.
	patience := settled
	if isAhead(err) {
		patience = behind
	}
	return vain.IsZero() || time.Since(vain) < patience
}

func isAhead(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// take takes what a watch tells.
func (f *follower) take(ctx context.Context, c change) error {
	now := time.Now()
	o, err := readObject(f.target.Kind, c.object)
	if err != nil && c.kind != bookmark {
		return f.target.trouble("watch", true, err)
	}
	if c.kind == bookmark {
		meta, _ := c.object["metadata"].(map[string]any)
		o.version = text(meta, "resourceVersion")
	}
	var events []stored
	switch c.kind {
	case added, modified:
		f.tellServers(o)
		events, err = f.states.see(ctx, o, journal.Added, now)
	case deleted:
		events, err = f.states.remove(ctx, o, now)
	case bookmark:
		err = nil
	default:
		err = f.target.trouble("watch", true, fmt.Errorf("an event of type %q, which this version does not know", c.kind))
	}
	if err := f.hand(ctx, nil, events, err); err != nil {
		return err
	}
	f.version, f.good = o.version, now
	return nil
}

// hand passes events of a list, or of none, on, unless there was an error.
func (f *follower) hand(ctx context.Context, of *listing, events []stored, err error) error {
	if err != nil {
		return err
	}
	for _, e := range events {
		f.open = of
		if !f.sink.put(ctx, item{stored: e, of: of}) {
			return context.Cause(ctx)
		}
	}
	return nil
}

// lose notes that the kind is not followed, and that only a list tells what is
// there.
func (f *follower) lose(ctx context.Context, err error) {
	f.lost = true
	if errors.Is(f.cause, errNotRunning) {
		f.gap(ctx, f.started, "")
		f.good, f.cause = f.started, nil
	}
	if f.cause == nil {
		f.cause = err
	}
	if now := time.Now(); now.Sub(f.good) > uncoveredEvery && now.Sub(f.noted) > uncoveredEvery {
		f.gap(ctx, now, "")
	}
}

// gap notes that from the last good moment on nobody watched.
func (f *follower) gap(ctx context.Context, until time.Time, version string) {
	f.noted = until
	f.put(ctx, journal.Gap{Began: f.good, Ended: until, Reason: f.reason(), FromVersion: f.version, ToVersion: version})
}

func (f *follower) put(ctx context.Context, g journal.Gap) {
	g.Kind = f.target.Kind
	f.sink.put(ctx, item{gap: &g})
}

// end is when the API server has the kind no more, and no object of it.
func (f *follower) end(ctx context.Context) error {
	f.states.lists++
	f.retired()
	f.cause = errGone
	of, now := f.listing(), time.Now()
	events, err := f.states.missing(ctx, now)
	if err := f.hand(ctx, of, events, err); err != nil {
		return err
	}
	return f.complete(ctx, of, journal.List{Ended: now})
}
