// SPDX-License-Identifier: Apache-2.0

package recorder

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-io/fairlead/internal/journal"
)

// stored is an event on its way to the journal, with the object that it is of,
// and what it takes to say what changed and who wrote.
type stored struct {
	event    journal.Event
	object   *state
	old      []byte    // the content before; nil: there is nothing to compare
	managers []manager // of the new one
	marks    []uint64  // of the managers of the old one
}

// finish compares. Who deletes an object leaves no trace in it.
func (s *stored) finish() {
	e := &s.event
	if s.old != nil {
		e.Diff = journal.Diff(s.old, e.Content)
	}
	if e.Type != journal.Deleted {
		w := writerOf(s.managers, s.marks, e.Diff)
		e.Manager, e.Operation, e.Subresource, e.ManagedAt = w.name, w.operation, w.subresource, w.at
	}
	s.old, s.managers, s.marks = nil, nil, nil
}

// listing is a list on its way to the journal, which has it when the first event
// comes, or the end.
type listing struct {
	begun journal.List
	id    int64 // for the goroutine that writes alone; 0: it is not in the journal
}

// item is an event, of a list or not, a gap, or the end of a list.
type item struct {
	stored
	of    *listing // nil: a watch brought it
	ended *journal.List
	gap   *journal.Gap
}

const (
	// queued is how many events wait to be compared at most, and batch how many
	// go into it at once. Few wait when all is well.
	queued = 1000
	batch  = 500
	// gather is how long an event waits for others.
	gather = 20 * time.Millisecond
	// pruneEvery is for times in which nothing happens.
	pruneEvery = 10 * time.Minute
	// retryEvery is how often a journal is tried that takes nothing.
	retryEvery = time.Second
)

// sink is two goroutines: one that compares states, for that takes as long as to
// read them, and one that writes the journal.
type sink struct {
	journal  *journal.Journal
	log      *slog.Logger
	items    chan item
	finished chan item
	broken   error // why no more is compared; it is for whoever saw that finished is closed

	events, lists, gaps atomic.Int64

	mu      sync.Mutex
	trouble error // why the journal takes nothing at present
}

func newSink(j *journal.Journal, log *slog.Logger) *sink {
	return &sink{journal: j, log: log, items: make(chan item, queued), finished: make(chan item, batch)}
}

// put hands on what happened, and waits while the queue is full. It is false if
// ctx ended first.
func (s *sink) put(ctx context.Context, i item) bool {
	if i.object != nil {
		i.object.unwritten.Add(1)
	}
	select {
	case s.items <- i:
		return true
	case <-ctx.Done():
		return false
	}
}

// run writes until the items end. A journal that takes nothing is tried again
// until ctx ends; the error says what was not written then, or that the journal
// cannot be written any more.
func (s *sink) run(ctx context.Context) error {
	go s.finish()
	prune := time.NewTicker(pruneEvery)
	defer prune.Stop()
	for {
		select {
		case first, more := <-s.finished:
			if !more {
				return s.broken
			}
			if err := s.write(ctx, s.gather(first)); err != nil {
				return err
			}
		case <-prune.C:
			s.note(s.journal.Prune(ctx))
		}
	}
}

// finish compares what waits. Where it cannot go on it takes the rest, so that
// nobody waits.
func (s *sink) finish() {
	s.broken = guard(s.log, func() error {
		for i := range s.items {
			i.finish()
			s.finished <- i
		}
		return nil
	})
	close(s.finished)
	for range s.items {
	}
}

// drain takes what nobody can write any more, so that nobody waits.
func (s *sink) drain() {
	for range s.finished {
	}
}

// gather collects what comes within a moment of the first.
func (s *sink) gather(first item) []item {
	items := []item{first}
	late := time.NewTimer(gather)
	defer late.Stop()
	for len(items) < batch {
		select {
		case next, more := <-s.finished:
			if !more {
				return items
			}
			items = append(items, next)
		case <-late.C:
			return items
		}
	}
	return items
}

// write writes all events up to each gap, and the gap, and likewise with the
// ends of lists.
func (s *sink) write(ctx context.Context, items []item) error {
	events := make([]journal.Event, 0, len(items))
	for i := range items {
		it := &items[i]
		if err := s.begin(ctx, it.of); err != nil {
			return err
		}
		if it.gap == nil && it.ended == nil {
			events = append(events, it.event)
			if it.of != nil {
				events[len(events)-1].List = it.of.id
			}
			continue
		}
		if err := s.append(ctx, events); err != nil {
			return err
		}
		events = events[:0]
		if err := s.mark(ctx, it); err != nil {
			return err
		}
	}
	if err := s.append(ctx, events); err != nil {
		return err
	}
	for _, i := range items {
		if i.object != nil {
			i.object.unwritten.Add(-1)
		}
	}
	return nil
}

// begin has a list in the journal.
func (s *sink) begin(ctx context.Context, l *listing) error {
	if l == nil || l.id != 0 {
		return nil
	}
	return s.insist(ctx, func() (err error) {
		l.id, err = s.journal.BeginList(context.WithoutCancel(ctx), l.begun)
		return err
	})
}

// mark writes a gap, or the end of a list.
func (s *sink) mark(ctx context.Context, i *item) error {
	writing := context.WithoutCancel(ctx)
	do, count := func() error { return s.journal.AppendGap(writing, *i.gap) }, &s.gaps
	if i.ended != nil {
		i.ended.ID = i.of.id
		do, count = func() error { return s.journal.EndList(writing, *i.ended) }, &s.lists
	}
	if err := s.insist(ctx, do); err != nil {
		return err
	}
	count.Add(1)
	return nil
}

func (s *sink) append(ctx context.Context, events []journal.Event) error {
	if len(events) == 0 {
		return nil
	}
	err := s.insist(ctx, func() error { return s.journal.Append(context.WithoutCancel(ctx), events) })
	if err != nil {
		return fmt.Errorf("%d events and what waited behind them are lost: %w", len(events), err)
	}
	s.events.Add(int64(len(events)))
	return nil
}

// insist does something until it goes well, or ctx ended. A journal of which a
// part is lost takes nothing any more.
func (s *sink) insist(ctx context.Context, do func() error) error {
	for {
		err := do()
		s.note(err)
		if err == nil || errors.Is(err, journal.ErrTorn) || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryEvery):
		}
	}
}

// note logs when the journal begins to take nothing, and when it takes
// something again.
func (s *sink) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil && s.trouble == nil:
		s.log.Error("the journal takes nothing; nothing more is read from the API server until it does", "error", err)
	case err == nil && s.trouble != nil:
		s.log.Info("the journal takes events again")
	}
	s.trouble = err
}

func (s *sink) current() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trouble
}
