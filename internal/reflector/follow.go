// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// errCut is why a list that streamed in is of no use if nothing else is.
var errCut = errors.New("the list ended before it was complete")

// follower keeps one kind in step with the API server by means of client-go's
// reflector, whose requests it makes itself in order to know how they end.
type follower struct {
	resource resource
	handler  Handler
	found    func() <-chan struct{}
	log      *slog.Logger

	mu        sync.Mutex
	trouble   string // what the handler was last told is wrong; "" = nothing
	streaming bool   // the list in progress comes through a watch

	// These are for the goroutine of client-go's reflector alone.
	unfinished *observed // a list that streams in and is not complete
	cuts       Backoff   // between streams that end before their list is complete
}

// run lists and watches until ctx ends.
func (f *follower) run(ctx context.Context, s *store) {
	s.synced = f.synced
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(f.log.Handler()).V(4))
	r := cache.NewReflectorWithOptions(
		&cache.ListWatch{
			ListWithContextFunc:  f.list,
			WatchFuncWithContext: f.watch,
		},
		f.resource.example, s, cache.ReflectorOptions{Name: f.resource.name})
	var pause Backoff
	for ctx.Err() == nil {
		began := time.Now()
		if err := r.ListAndWatchWithContext(ctx); err != nil && !f.stale() {
			f.failed(ctx, f.resource.trouble("follow", &exchange{answered: true}, err))
		}
		if time.Since(began) > settled {
			pause = Backoff{}
		}
		pause.Wait(ctx, f.found())
	}
}

func (f *follower) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	f.setStreaming(false)
	f.unfinished = nil
	list, err := f.resource.list(ctx, options)
	if err != nil {
		f.failed(ctx, err)
		return nil, err
	}
	return list, nil
}

// watch opens a watch. An API server that is away or overloaded is waited for
// here, where the watch goes on from where it was; any other error leads to a
// new list. An error of a streamed list is reported only if client-go asks for
// the stream again, which it does at once: most often it answers with a plain
// list, whose own error tells more.
func (f *follower) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	streamed := options.SendInitialEvents != nil && *options.SendInitialEvents
	f.setStreaming(streamed)
	if streamed && f.unfinished != nil {
		f.failed(ctx, f.unfinished.end(f.resource))
		f.cuts.Wait(ctx, f.found())
	}
	f.unfinished = nil
	var pause Backoff
	for {
		w, err := f.resource.watch(ctx, options)
		if err == nil && streamed {
			f.unfinished = f.observe(ctx, w, true)
			return f.unfinished, nil
		}
		if err == nil {
			f.followed()
			return f.observe(ctx, w, false), nil
		}
		if streamed && !away(err) {
			return nil, plainError(options, err)
		}
		f.failed(ctx, err)
		if ctx.Err() != nil || !away(err) {
			return nil, err
		}
		pause.Wait(ctx, f.found())
	}
}

// plainError strips an error of what it is if it cannot be that. client-go
// answers "expired" by asking again at once for the newest state. A server
// that calls the newest state expired would be asked without end.
func plainError(options metav1.ListOptions, err error) error {
	if options.ResourceVersion == "" {
		return errors.New(err.Error())
	}
	return err
}

// away says that nobody answered, or that whoever answered asks to be left
// alone for a while.
func away(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err)
}

// synced is called when a list has been passed on. A streamed list proves that
// the watch is open; after a plain one that is still to be seen.
func (f *follower) synced() {
	f.mu.Lock()
	streaming := f.streaming
	f.mu.Unlock()
	f.unfinished, f.cuts = nil, Backoff{}
	if streaming {
		f.followed()
	}
}

func (f *follower) setStreaming(streaming bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.streaming = streaming
}

func (f *follower) stale() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.trouble != ""
}

// failed tells the handler that the kind is stale, once per reason.
func (f *follower) failed(ctx context.Context, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() != nil || f.trouble == err.Error() {
		return
	}
	if f.trouble == "" {
		f.log.Warn("cannot follow the API server; the last state stays in force while this is retried",
			"kind", f.resource.kind, "error", err)
	}
	f.trouble = err.Error()
	f.handler.Stale(f.resource.kind, err)
}

func (f *follower) followed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.trouble == "" {
		return
	}
	f.trouble = ""
	f.log.Info("following the API server again", "kind", f.resource.kind)
	f.handler.Stale(f.resource.kind, nil)
}

// observe passes a watch on and reports the error that ends it: client-go
// keeps that to itself. While a list still streams in, it is only noted, for
// the reason given at watch.
func (f *follower) observe(ctx context.Context, w watch.Interface, listing bool) *observed {
	o := &observed{Interface: w, events: make(chan watch.Event), stopped: make(chan struct{})}
	go func() {
		defer close(o.events)
		for event := range w.ResultChan() {
			if event.Type == watch.Error {
				o.err = f.resource.trouble("watch", &exchange{answered: true}, apierrors.FromObject(event.Object))
				if !listing {
					f.failed(ctx, o.err)
				}
			}
			listing = listing && !endsList(event)
			select {
			case o.events <- event:
			case <-o.stopped:
				return
			}
		}
	}()
	return o
}

func endsList(event watch.Event) bool {
	m, ok := event.Object.(metav1.ObjectMetaAccessor)
	return ok && event.Type == watch.Bookmark &&
		m.GetObjectMeta().GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}

// observed is a watch whose events pass through follower.observe.
type observed struct {
	watch.Interface
	events  chan watch.Event
	once    sync.Once
	stopped chan struct{}
	err     error // that ended it; read after the event that tells of it
}

// end returns why a list that streamed in is not complete.
func (o *observed) end(r resource) error {
	if o.err != nil {
		return o.err
	}
	return r.trouble("watch", &exchange{answered: true}, errCut)
}

// ResultChan implements watch.Interface.
func (o *observed) ResultChan() <-chan watch.Event { return o.events }

// Stop implements watch.Interface.
func (o *observed) Stop() {
	o.once.Do(func() { close(o.stopped) })
	o.Interface.Stop()
}

const (
	firstPause = 200 * time.Millisecond
	// longestPause may grow by half of itself, so that a thousand agents do
	// not come back in the same second.
	longestPause = 20 * time.Second
	// settled is how long a watch must last for the next pause to be a short one.
	settled = 10 * time.Second
)

// Backoff waits longer each time, up to half a minute. The zero value starts over.
type Backoff struct{ pause time.Duration }

// Wait ends at once, and starts over, when the API server is found again.
func (b *Backoff) Wait(ctx context.Context, found <-chan struct{}) {
	b.pause = min(max(2*b.pause, firstPause), longestPause)
	timer := time.NewTimer(b.pause + rand.N(b.pause/2))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-found:
		b.pause = 0
	case <-timer.C:
	}
}
