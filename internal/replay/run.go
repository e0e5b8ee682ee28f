// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/reflector"
)

// Moment is how far to replay. The zero Moment is the end of the journal.
type Moment struct {
	Time    time.Time // what was received up to then
	Version uint64    // what was written up to this resourceVersion
}

// Summary is what was replayed.
type Summary struct {
	Events      int
	First, Last time.Time
	// Cut says that the moment lies within a list: what had come of it is left
	// out, since a list counts as a whole.
	Cut bool
	// Gaps are the times that nobody watched a kind that rows are made of.
	Gaps []journal.Gap
}

// ErrTooEarly is a moment before everything that a journal tells.
var ErrTooEarly = errors.New("nothing is known of that time")

// errNothing is a journal from which no row can be made.
var errNothing = errors.New("the journal has no event of a Service, an EndpointSlice or the Node: record these kinds")

// filter picks the events of the kinds that rows are made of. Only findings tell
// what changed.
func filter() journal.Filter {
	f := journal.Filter{NoDiff: true}
	for _, k := range kinds {
		f.Kinds = append(f.Kinds, k.Resource)
	}
	return f
}

// Nodes are the names of the Nodes that a journal tells of, in their order.
func Nodes(ctx context.Context, j *journal.Journal) ([]string, error) {
	return j.Names(ctx, kinds[reflector.KindNode])
}

// Run feeds a journal to the engine up to a moment. Of a torn journal it feeds
// what can be read, and returns journal.ErrTorn besides.
func (e *Engine) Run(ctx context.Context, j *journal.Journal, to Moment) (Summary, error) {
	gaps, torn := j.Gaps(ctx, filter())
	e.gaps = newGaps(gaps)
	if err := e.readLists(ctx, j, to.Time); torn == nil {
		torn = err
	}
	if torn != nil && !errors.Is(torn, journal.ErrTorn) {
		return Summary{}, torn
	}
	reading, stop := context.WithCancel(ctx)
	var readers sync.WaitGroup
	defer readers.Wait()
	defer stop()
	run := run{Engine: e, to: to}
	var failed error
	for b := range e.read(reading, &readers, j) {
		<-b.done
		more := false
		e.writer.Together(func() { more = run.take(b.inputs) })
		if failed = b.err; !more || failed != nil {
			break
		}
	}
	if err := cmp.Or(failed, ctx.Err()); err != nil && !errors.Is(err, journal.ErrTorn) {
		return run.Summary, err
	}
	e.Flush()
	run.settle()
	e.advance(to.Time)
	if failed == nil {
		failed = cmp.Or(run.verdict(), torn)
	}
	run.Gaps = run.gapsWithin()
	return run.Summary, failed
}

// readLists learns of the lists up to a moment. Where a torn journal lost some,
// it has to be guessed.
func (e *Engine) readLists(ctx context.Context, j *journal.Journal, moment time.Time) error {
	from, err := j.ListsFrom(ctx)
	var all []journal.List
	if err == nil {
		all, err = j.Lists(ctx)
	}
	if err != nil {
		return err
	}
	e.lists = newLists(all, from, moment)
	return nil
}

// run is one Run on its way.
type run struct {
	*Engine
	Summary
	to     Moment
	beyond bool      // an event of a later resourceVersion came
	next   time.Time // of the event that is too late
}

// take applies events, and returns false when nothing more counts.
func (r *run) take(inputs []input) bool {
	for i := range inputs {
		in := &inputs[i]
		r.endLists(in.event.ID)
		if !in.ours || r.isNewer(&in.event) {
			continue
		}
		if !r.to.Time.IsZero() && in.event.Time.After(r.to.Time) {
			if r.next.IsZero() {
				r.next = in.event.Time
			}
			if r.isPast(in) {
				return false
			}
			continue
		}
		if r.First.IsZero() {
			r.First = in.event.Time
		}
		r.Last = later(r.Last, in.event.Time)
		r.Events++
		r.apply(*in)
	}
	return true
}

// isPast says that no list is open any more which began before the moment. One
// that went on after it is left out.
func (r *run) isPast(in *input) bool {
	past := len(r.lists.due) == 0
	for kind := range r.guesses {
		g := &r.guesses[kind]
		cut := g.until.After(r.to.Time) || reflector.Kind(kind) == in.object.Kind && g.takes(in, g.until)
		if cut && g.open() {
			r.leaveOut(len(g.take()))
		}
		past = past && (!g.open() || g.over(in.event.Time))
	}
	return past
}

// leaveOut notes events that came of a list which was not complete then.
func (r *run) leaveOut(events int) {
	r.Cut = r.Cut || events > 0
	r.Events -= events
}

// settle is for the end: lists that were not complete do not count, and where
// lists found nothing at all, it is their time that was replayed.
func (r *run) settle() {
	r.leaveOut(r.lists.waiting())
	if r.First.IsZero() {
		r.First, r.Last = r.clock, r.clock
	}
}

// isNewer says that an event was written after the resourceVersion in question.
// Kinds are watched apart, so an older one of another kind may follow; but what
// a list found gone since then may have been there.
func (r *run) isNewer(e *journal.Event) bool {
	if r.to.Version == 0 {
		return false
	}
	version, err := strconv.ParseUint(e.ResourceVersion, 10, 64)
	if err == nil && version > r.to.Version {
		r.beyond = true
		return true
	}
	return r.beyond && e.Type == journal.Absent
}

func (r *run) verdict() error {
	switch {
	case !r.First.IsZero():
		return nil
	case !r.next.IsZero():
		return fmt.Errorf("%w: the first event that counts is of %s", ErrTooEarly, r.next.UTC().Format(time.RFC3339Nano))
	case r.beyond:
		return fmt.Errorf("%w: every event is of a later resourceVersion than %d", ErrTooEarly, r.to.Version)
	}
	return errNothing
}

// gapsWithin are the gaps in what was replayed.
func (r *run) gapsWithin() (within []journal.Gap) {
	for _, g := range r.gaps.all {
		if !g.Ended.Before(r.First) && !g.Began.After(r.Last) {
			within = append(within, g)
		}
	}
	return within
}

// batch is some events on their way: read by one goroutine, decoded by another,
// and applied in their order once that is done.
type batch struct {
	inputs []input
	err    error // after the inputs
	done   chan struct{}
}

const (
	batchEvents  = 128
	batchesAhead = 16
)

// read reads ahead, and decodes on all processors, until ctx ends.
func (e *Engine) read(ctx context.Context, readers *sync.WaitGroup, j *journal.Journal) <-chan *batch {
	ordered, work := make(chan *batch, batchesAhead), make(chan *batch, batchesAhead)
	for range runtime.GOMAXPROCS(0) {
		readers.Go(func() {
			for b := range work {
				for i := range b.inputs {
					b.inputs[i] = e.decoder.decode(b.inputs[i].event)
				}
				close(b.done)
			}
		})
	}
	readers.Go(func() {
		defer close(ordered)
		defer close(work)
		for b := range batches(j.Events(ctx, filter())) {
			select {
			case ordered <- b:
				work <- b
			case <-ctx.Done():
				return
			}
		}
	})
	return ordered
}

// batches puts events together. The last batch has the error, if there is one.
func batches(events iter.Seq2[journal.Event, error]) iter.Seq[*batch] {
	return func(yield func(*batch) bool) {
		b := newBatch()
		for event, err := range events {
			if err != nil {
				b.err = err
				break
			}
			if b.inputs = append(b.inputs, input{event: event}); len(b.inputs) < batchEvents {
				continue
			}
			if !yield(b) {
				return
			}
			b = newBatch()
		}
		yield(b)
	}
}

func newBatch() *batch {
	return &batch{inputs: make([]input, 0, batchEvents), done: make(chan struct{})}
}
