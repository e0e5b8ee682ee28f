// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"context"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
	"github.com/fairlead-io/fairlead/internal/tables"
)

// APIServer is the Service in which the API servers publish themselves.
var APIServer = model.Name{Namespace: "default", Name: "kubernetes"}

// Options say which agent is played.
type Options struct {
	// Node is the node to look from. What is set holds; the zone and the
	// addresses that are not set are those of its object in the journal.
	Node model.Node
	// NodeRecorded says that the journal has that object: nothing is served
	// before it was heard of.
	NodeRecorded bool
	Model        model.Options
	Retention    tables.Retention
	// Observe hears of every step; nil: nobody does. The step is valid until it
	// returns, and a Snapshot may lack it until Run does.
	Observe func(Step)
}

// Engine is an agent without a kernel, in a time of its own. One goroutine
// uses it.
type Engine struct {
	options Options
	stop    context.CancelFunc
	tables  *tables.Tables
	writer  *tables.Writer
	rows    map[model.Name]*tables.Service // as observed
	step    Step                           // in the making

	clock    time.Time
	convert  reflector.Converter
	decoder  *decoder
	lists    recordedLists
	guesses  [len(kinds)]guess
	single   [1]input
	gaps     gaps
	world    world
	node     model.Node
	listed   [len(kinds)]bool
	problems problems
}

// New returns an engine that knows nothing yet. Close it.
func New(o Options) (*Engine, error) {
	made, err := tables.New()
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	if err := made.Start(ctx); err != nil {
		stop()
		return nil, err
	}
	e := &Engine{options: o, stop: stop, tables: made, node: o.Node, world: newWorld(), lists: noLists(), rows: map[model.Name]*tables.Service{}}
	e.decoder = newDecoder(&e.convert, o.Node.Name)
	e.writer = tables.NewWriter(made, o.Node, o.Model)
	e.writer.UseClock(func() time.Time { return e.clock })
	e.writer.Retain(o.Retention)
	if o.Observe != nil {
		e.writer.Observe(e.note)
	}
	if !o.NodeRecorded {
		e.complete(reflector.KindNode)
	}
	return e, nil
}

// Close ends what runs in the background. Snapshots stay valid.
func (e *Engine) Close() { e.stop() }

// Apply takes the next event. One of a list takes effect with all others of it,
// once the list is over: that is seen from later events, or said by Flush.
func (e *Engine) Apply(event journal.Event) { e.apply(e.decoder.decode(event)) }

func (e *Engine) apply(in input) {
	if !in.ours {
		return
	}
	switch listed, known := e.lists.tell(&in.event); {
	case !known:
		e.guess(in)
	case listed:
		e.lists.hold(in)
	default:
		e.alone(in)
	}
}

// guess takes an event of a journal that does not tell of lists.
func (e *Engine) guess(in input) {
	for kind := range e.guesses {
		if e.guesses[kind].over(in.event.Time) {
			e.endGuess(reflector.Kind(kind))
		}
	}
	kind := in.object.Kind
	until := e.gaps.end(kind, in.event.Time)
	if !e.guesses[kind].takes(&in, until) {
		e.endGuess(kind)
	}
	if until.IsZero() && !ofList(in.event.Type) {
		e.alone(in)
		return
	}
	e.guesses[kind].add(in, until)
}

// alone takes what a watch brought.
func (e *Engine) alone(in input) {
	e.single[0] = in
	e.effect(in.object.Kind, e.single[:], in.event.Time)
}

// Flush ends every list: nothing more comes.
func (e *Engine) Flush() { e.endLists(math.MaxInt64) }

// endLists ends the lists that were complete before an event. From the first one
// of which the journal tells, nothing is left to be guessed.
func (e *Engine) endLists(before int64) {
	if before >= e.lists.from {
		for kind := range e.guesses {
			e.endGuess(reflector.Kind(kind))
		}
	}
	for list, inputs, more := e.lists.next(before); more; list, inputs, more = e.lists.next(before) {
		e.effect(e.lists.of[list.ID].kind, inputs, list.Ended)
	}
}

func (e *Engine) endGuess(kind reflector.Kind) {
	if inputs := e.guesses[kind].take(); len(inputs) > 0 {
		e.effect(kind, inputs, inputs[len(inputs)-1].event.Time)
	}
}

// effect lets inputs of one kind reach the tables together. None are what a list
// of nothing brings: that makes a kind known, but for the node.
func (e *Engine) effect(kind reflector.Kind, inputs []input, at time.Time) {
	if len(inputs) == 0 && (e.listed[kind] || kind == reflector.KindNode) {
		return
	}
	e.advance(at)
	events := make([]reflector.Event, 0, len(inputs))
	for i := range inputs {
		if object, ok := e.admit(&inputs[i]); ok {
			events = append(events, object)
		}
	}
	if len(events) > 0 {
		e.writer.Events(events)
	}
	if !e.listed[kind] && !e.lists.underWay(kind, at) {
		e.complete(kind)
	}
	e.writer.Flush()
	e.observe(inputs)
}

// complete says that a kind is known as a whole: that is after the first list,
// or the first ones of several namespaces, or, where a journal lost its
// beginning, after the first event.
func (e *Engine) complete(kind reflector.Kind) {
	e.listed[kind] = true
	e.writer.Listed(kind)
}

// advance lets time pass, and what is due by then happen. Clocks may be turned
// back while somebody records; here time never does.
func (e *Engine) advance(to time.Time) {
	for due := e.writer.Due(); !due.IsZero() && !due.After(to); due = e.writer.Due() {
		e.clock = later(e.clock, due)
		e.writer.Flush()
		e.observe(nil)
	}
	e.clock = later(e.clock, to)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// admit decides as the agent's store does what the tables hear: nothing of an
// object that is refused, for the last good one stays in force.
func (e *Engine) admit(in *input) (reflector.Event, bool) {
	e.problems.note(in)
	if in.gone() && (len(in.problems) > 0 || !e.world.has(&in.object)) {
		return reflector.Event{}, false
	}
	e.world.take(&in.object)
	if in.object.Kind == reflector.KindNode {
		e.setNode(in)
	}
	return in.object, true
}

// setNode joins what the options say of the node with its object.
func (e *Engine) setNode(in *input) {
	e.node = e.options.Node
	if n := in.object.Node; n != nil {
		if e.node.Zone == "" {
			e.node.Zone = n.Zone
		}
		if len(e.node.Addresses) == 0 {
			e.node.Addresses = addresses(n.Addresses)
		}
	}
	e.writer.SetNode(e.node)
}

// addresses are those that can be read, without loopback.
func addresses(texts []string) (all []netip.Addr) {
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil && !a.IsLoopback() {
			all = append(all, a.Unmap())
		}
	}
	return all
}

// note takes what became of a row into the step.
func (e *Engine) note(before, after *tables.Service) {
	change := Change{Before: before, After: after}
	if after == nil {
		change.Service = before.Name
		delete(e.rows, change.Service)
	} else {
		change.Service = after.Name
		e.rows[change.Service] = after
	}
	e.step.Changes = append(e.step.Changes, change)
}

// observe tells of a step.
func (e *Engine) observe(inputs []input) {
	if e.options.Observe == nil {
		return
	}
	for i := range inputs {
		e.step.Events = append(e.step.Events, inputs[i].event)
	}
	e.step.Time = e.clock
	slices.SortFunc(e.step.Changes, func(a, b Change) int { return a.Service.Compare(b.Service) })
	e.options.Observe(e.step)
	e.step = Step{Events: e.step.Events[:0], Changes: e.step.Changes[:0]}
}

// Snapshot returns the rows as they are.
func (e *Engine) Snapshot() tables.Snapshot { return e.tables.Snapshot() }

// Node is the node as it is.
func (e *Engine) Node() model.Node { return e.node }

// Retained returns the sets that go on without endpoints.
func (e *Engine) Retained() []tables.Retained { return e.writer.Retained() }

// Problems are what could not be used so far: for each object the last one.
func (e *Engine) Problems() []reflector.Problem { return e.problems.list() }

// Unheard are the kinds of which nothing was heard yet. Until there is none, an
// agent serves nothing (R33).
func (e *Engine) Unheard() (unheard []reflector.Kind) {
	for kind, listed := range e.listed {
		if !listed {
			unheard = append(unheard, reflector.Kind(kind))
		}
	}
	return unheard
}

// Candidates are the rows as model.Trace and the printers take them.
func (e *Engine) Candidates() []model.Candidate {
	var all []model.Candidate
	for row := range e.Snapshot().Services() {
		all = append(all, model.Candidate{
			Contender: model.Contender{Service: row.Name, Created: row.Object.CreationTimestamp},
			Compiled:  row.Compiled,
		})
	}
	return all
}
