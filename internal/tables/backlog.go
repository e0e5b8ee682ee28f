// SPDX-License-Identifier: Apache-2.0

package tables

import (
	"time"

	"github.com/fairlead-io/fairlead/internal/reflector"
)

// Counts counts events by kind of object.
type Counts [3]uint64

// Backlog is how far what was heard of is ahead of what was tried.
type Backlog struct {
	// Since is when the oldest change that the reconciler has not tried yet
	// came; zero if there is none. What waits for the first lists does not
	// count: nobody may write it yet (R33).
	Since time.Time
	// Received are all events so far, Pending those not tried yet.
	Received, Pending Counts
	LastReceived      time.Time
}

// arrivals is the Writer's part of the backlog: what is not in a row yet.
type arrivals struct {
	received Counts
	last     time.Time
	queued   time.Time // when the oldest that is queued came; zero for none
	taken    time.Time // the same of what is being compiled
}

func (a *arrivals) note(events []reflector.Event, now time.Time) {
	for i := range events {
		a.received[events[i].Kind]++
	}
	a.queue(now)
}

// queue notes that something waits to be compiled.
func (a *arrivals) queue(now time.Time) {
	a.last = now
	if a.queued.IsZero() {
		a.queued = now
	}
}

// delayed forgets how long the queue has waited for others.
func (a *arrivals) delayed(now time.Time) {
	if !a.queued.IsZero() {
		a.queued = now
	}
}

// take moves what is queued to what is being compiled, and returns how much
// there was up to now.
func (a *arrivals) take() Counts {
	a.taken, a.queued = a.queued, time.Time{}
	return a.received
}

// oldest returns the earlier of two times, of which zero is none.
func oldest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// unsettled is the tables' part of the backlog: rows that were not tried yet.
type unsettled struct {
	revision uint64    // of the last commit
	received Counts    // all that the last commit holds
	tried    Counts    // all that was tried
	since    time.Time // when the oldest that was not tried came; zero for none
}

// committed notes that the rows hold all that was received up to a number,
// the oldest of which came at the given time.
func (t *Tables) committed(received Counts, since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	u := &t.status.unsettled
	u.revision = t.services.Revision(t.db.ReadTxn())
	u.received = received
	if u.revision <= t.status.revision {
		u.tried, u.since = received, time.Time{}
		return
	}
	u.since = oldest(u.since, since)
}

// reached notes up to which revision all was tried. What is left then came
// while that was written.
func (u *unsettled) reached(revision uint64, at time.Time) {
	if revision >= u.revision {
		u.tried, u.since = u.received, time.Time{}
		return
	}
	if !u.since.IsZero() {
		u.since = at
	}
}

// Backlog returns how much is still to be done, and since when.
func (w *Writer) Backlog() Backlog {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := Backlog{Received: w.arrivals.received, LastReceived: w.arrivals.last}
	if w.listed() {
		b.Since = oldest(w.arrivals.queued, w.arrivals.taken)
	}
	w.tables.mu.Lock()
	defer w.tables.mu.Unlock()
	u := &w.tables.status.unsettled
	b.Since = oldest(b.Since, u.since)
	for kind := range b.Pending {
		b.Pending[kind] = b.Received[kind] - u.tried[kind]
	}
	return b
}
