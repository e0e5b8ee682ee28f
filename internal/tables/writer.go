// SPDX-License-Identifier: Apache-2.0

package tables

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cilium/statedb"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
)

// Writer turns events into rows. It is the reflector's Handler: events are
// queued as they come, and a single goroutine, Run, compiles what they touch.
// What arrives while it works is taken together in the next round, so the
// first event is never delayed and a flood is never compiled twice over.
type Writer struct {
	tables  *Tables
	options model.Options
	now     func() time.Time
	started time.Time

	mu       sync.Mutex // guards the queue and what sources say
	queue    [][]reflector.Event
	node     *model.Node // a new node to be taken, or nil
	sources  [3]sourceState
	problem  []reflector.Problem
	arrivals arrivals
	wake     chan struct{}

	// Owned by Run from here on.
	current   model.Node
	inputs    map[model.Name]*input
	owners    map[model.Name]*input // of each slice
	objects   int                   // inputs that have an object
	contest   contest
	touched   []*input
	firstSeen []string // what every Service's first transition says
	completed bool
	together  statedb.WriteTxn             // nil but within Together
	tell      func(before, after *Service) // nil: nobody asked

	retention retention
}

// input is what is known of a Service: the object may be missing while slices
// are there, and the other way round.
type input struct {
	name   model.Name
	object *model.Service
	slices []*model.EndpointSlice
	row    *Service // as committed last; nil without an object

	triggers Triggers

	keeper   *keeper // nil: the Service is not under Retention
	restored bool    // the object is what a file remembers

	// contender is how the Service entered the contest last.
	contender model.Contender

	touched bool
	causes  []Cause
	own     model.Compiled // compiled in this round
}

type sourceState struct {
	listed bool
	stale  error
	since  time.Time
	count  int
}

// NewWriter returns the writer of t. There must be one only.
func NewWriter(t *Tables, node model.Node, options model.Options) *Writer {
	return &Writer{
		tables: t, options: options, now: time.Now, started: time.Now(), current: node,
		wake:   make(chan struct{}, 1),
		inputs: map[model.Name]*input{}, owners: map[model.Name]*input{}, contest: newContest(),
		firstSeen: []string{firstSeen},
		retention: retention{tell: func(RetentionEvent) {}, remembered: make(chan struct{}, 1)},
	}
}

// UseClock sets what tells the time, where events are of another time than now.
// It comes before everything else.
func (w *Writer) UseClock(now func() time.Time) { w.now = now }

// Observe sets who is told of each row that is written: what it was, nil if it
// is new, and what it is, nil if it is gone. It comes before everything else.
func (w *Writer) Observe(tell func(before, after *Service)) { w.tell = tell }

// Together makes one transaction of all that do flushes. Readers see none of it
// before the end; what is told to an observer is as without it.
func (w *Writer) Together(do func()) {
	w.together = w.tables.db.WriteTxn(w.tables.services)
	defer func() {
		w.together.Commit()
		w.together = nil
	}()
	do()
}

// Events queues events.
func (w *Writer) Events(events []reflector.Event) {
	w.mu.Lock()
	w.queue = append(w.queue, events)
	w.arrivals.note(events, w.now())
	w.mu.Unlock()
	w.signal()
}

// Listed notes that a kind is complete. Rows are made only once Services and
// EndpointSlices both are (R33), and the node was heard of or cannot be.
func (w *Writer) Listed(k reflector.Kind) {
	w.mu.Lock()
	if !w.listed() {
		w.arrivals.delayed(w.now())
	}
	w.sources[k].listed, w.sources[k].since = true, w.now()
	w.mu.Unlock()
	w.signal()
}

// Stale notes that a kind cannot be followed, or can again. Rows stay (R31).
func (w *Writer) Stale(k reflector.Kind, err error) {
	w.mu.Lock()
	if !w.listed() {
		w.arrivals.delayed(w.now())
	}
	if (w.sources[k].stale == nil) != (err == nil) {
		w.sources[k].since = w.now()
	}
	w.sources[k].stale = err
	w.mu.Unlock()
	w.signal()
}

// Problems replaces the list of what cannot be read.
func (w *Writer) Problems(p []reflector.Problem) {
	w.mu.Lock()
	w.problem = slices.Clone(p)
	w.mu.Unlock()
}

// SetNode takes a new picture of this node; what depends on it is compiled
// again (R17).
func (w *Writer) SetNode(n model.Node) {
	w.mu.Lock()
	w.node = &n
	w.arrivals.queue(w.now())
	w.mu.Unlock()
	w.signal()
}

func (w *Writer) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// SourceState is what a source says of one kind.
type SourceState struct {
	Kind   reflector.Kind
	Listed bool
	Stale  error
	Since  time.Time
	Count  int // objects
}

// Sources returns the state of each kind, and what cannot be read.
func (w *Writer) Sources() ([]SourceState, []reflector.Problem) {
	w.mu.Lock()
	defer w.mu.Unlock()
	states := make([]SourceState, len(w.sources))
	for i, s := range w.sources {
		states[i] = SourceState{reflector.Kind(i), s.listed, s.stale, s.since, s.count}
	}
	return states, slices.Clone(w.problem)
}

// Run compiles until ctx ends.
func (w *Writer) Run(ctx context.Context) {
	for {
		w.Flush()
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-w.due():
		}
	}
}

// round is what is taken from the queue at once.
type round struct {
	events   [][]reflector.Event
	node     *model.Node // nil: as before
	orders   orders
	received Counts
	listed   bool // the first lists are complete: the events may be taken
}

// Flush takes everything that is queued now. Only Run, or a caller without a
// Run, may call it.
func (w *Writer) Flush() {
	r, ready := w.take()
	if !ready {
		return
	}
	defer w.finish(r.received)
	now := w.now() // as it is: limits are kept by the clock that nobody turns
	if r.node != nil {
		w.noteNode(r.node)
	}
	w.obey(r.orders, now)
	if r.listed && !w.completed {
		w.expect(r.events)
		w.giveWay()
	}
	for _, batch := range r.events {
		for i := range batch {
			w.note(&batch[i])
		}
	}
	w.count()
	w.commit(r.listed, now)
	w.show()
}

// take empties the queue. Until the first lists are complete events are left
// in it, and there is nothing to do but for what was restored.
func (w *Writer) take() (r round, ready bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.listed = w.listed()
	if !r.listed && !w.retention.orders.restore && !w.retention.restored {
		return round{}, false
	}
	r.node, r.orders = w.node, w.retention.orders
	w.node, w.retention.orders = nil, orders{}
	if r.listed {
		r.events, w.queue = w.queue, nil
		r.received = w.arrivals.take()
	}
	return r, true
}

// listed says that the first lists are complete. The lock is held.
func (w *Writer) listed() bool {
	service, slice, n := w.sources[reflector.KindService], w.sources[reflector.KindEndpointSlice], w.sources[reflector.KindNode]
	return service.listed && slice.listed && (n.listed || n.stale != nil)
}

// finish notes that all that was taken is in the rows.
func (w *Writer) finish(received Counts) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tables.committed(received, w.arrivals.taken)
	w.arrivals.taken = time.Time{}
}

// expect makes room for the first lists at once, beside what was restored.
func (w *Writer) expect(events [][]reflector.Event) {
	var count [3]int
	for _, batch := range events {
		for i := range batch {
			count[batch[i].Kind]++
		}
	}
	services := count[reflector.KindService]
	w.inputs = grown(w.inputs, services)
	w.owners = make(map[model.Name]*input, count[reflector.KindEndpointSlice])
	w.contest.holders = grown(w.contest.holders, services)
	w.touched = append(make([]*input, 0, services+len(w.touched)), w.touched...)
}

func grown[K comparable, V any](m map[K]V, by int) map[K]V {
	more := make(map[K]V, len(m)+by)
	maps.Copy(more, m)
	return more
}

// note takes one event into the inputs.
func (w *Writer) note(e *reflector.Event) {
	cause := Cause{Kind: e.Kind, Name: e.Name, ResourceVersion: e.ResourceVersion}
	switch e.Kind {
	case reflector.KindService:
		in := w.input(e.Name)
		if in.object != nil {
			w.objects--
		}
		if e.Service != nil {
			w.objects++
		}
		in.object = e.Service
		cause.Deleted = e.Service == nil
		w.touch(in, cause)
	case reflector.KindEndpointSlice:
		w.noteSlice(e, cause)
	}
}

// noteSlice moves a slice to the Service it names now; its label may have
// changed, and a deletion does not say what it was.
func (w *Writer) noteSlice(e *reflector.Event, cause Cause) {
	cause.Deleted = e.Slice == nil
	var next *input
	if e.Slice != nil {
		next = w.input(e.Slice.ServiceName())
	}
	var before *model.EndpointSlice
	if was := w.owners[e.Name]; was != nil && was != next {
		i, _ := findSlice(was.slices, e.Name)
		before = was.slices[i]
		// A row may share the array: never write into it.
		was.slices = append(slices.Clone(was.slices[:i]), was.slices[i+1:]...)
		delete(w.owners, e.Name)
		w.touch(was, cause)
	}
	if next == nil {
		return
	}
	i, found := findSlice(next.slices, e.Name)
	s := make([]*model.EndpointSlice, 0, len(next.slices)+1)
	s = append(append(s, next.slices[:i]...), e.Slice)
	if found {
		before = next.slices[i]
		i++
	} else {
		w.owners[e.Name] = next
	}
	next.slices = append(s, next.slices[i:]...)
	w.trigger(next, before, e.Slice)
	w.touch(next, cause)
}

func findSlice(s []*model.EndpointSlice, name model.Name) (int, bool) {
	return slices.BinarySearchFunc(s, name, func(s *model.EndpointSlice, n model.Name) int { return s.Name.Compare(n) })
}

func (w *Writer) input(name model.Name) *input {
	in, ok := w.inputs[name]
	if !ok {
		in = &input{name: name, keeper: w.retention.keepers[name]}
		w.inputs[name] = in
	}
	return in
}

func (w *Writer) touch(in *input, c Cause) {
	if in.causes == nil {
		// A Service and its slice are what most transitions come from.
		in.causes = make([]Cause, 0, 2)
	}
	in.causes = append(in.causes, c)
	if !in.touched {
		in.touched = true
		w.touched = append(w.touched, in)
	}
}

// noteNode touches the Services that may differ on the node as it is now, in
// the order of their names: all for another zone, hardly any for a process
// that listens on another port.
func (w *Writer) noteNode(node *model.Node) {
	var affected []*input
	for _, in := range w.inputs {
		kept := in.keeper != nil && in.keeper.dependsOnNode()
		w.retention.changed = w.retention.changed || kept
		if in.object != nil && (kept || in.object.AffectedBy(&w.current, node)) {
			affected = append(affected, in)
		}
	}
	w.current = *node
	slices.SortFunc(affected, func(a, b *input) int { return a.name.Compare(b.name) })
	cause := Cause{Kind: reflector.KindNode, Name: model.Name{Name: node.Name}}
	for _, in := range affected {
		w.touch(in, cause)
	}
}

func (w *Writer) count() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sources[reflector.KindService].count = w.objects
	w.sources[reflector.KindEndpointSlice].count = len(w.owners)
	w.sources[reflector.KindNode].count = 1
}
