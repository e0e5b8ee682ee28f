// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"slices"
	"sync"
)

// state is what the objects of a Service ask for between two writes.
type state struct {
	usable []string // the endpoints that new connections may go to, by name
	// draining are those besides that open connections may stay with (R9).
	draining []string
	// interrupted says that a step took what the Service needs from the node
	// itself, so that nothing can be promised.
	interrupted bool
}

func (s state) keeps(server string) bool {
	return slices.Contains(s.usable, server) || slices.Contains(s.draining, server)
}

func (s state) mayFail() bool { return s.interrupted || len(s.usable) == 0 }

// ledger knows what the objects of each Service have asked for. It is told
// before a write, so that the state that a client meets is always in it.
//
// From the last quiet point on, at which the agent was seen to have everything,
// the agent may be at any state since: nobody promises how soon it hears of a
// change. But a Service that has had endpoints all the time is always served,
// and by none but those.
type ledger struct {
	mu       sync.Mutex
	services map[string]*record
	broken   []string // promises, in words
}

// record is the history of a Service. The states before settled are over.
type record struct {
	states  []state
	settled int
}

func newLedger() *ledger { return &ledger{services: map[string]*record{}} }

// write notes what a write is about to make of a Service.
func (l *ledger) write(service string, s state) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.services[service]
	if !ok {
		// It is not there yet, whatever it is about to be.
		r = &record{states: []state{{}}}
		l.services[service] = r
	}
	r.states = append(r.states, s)
}

// interrupt notes that a step makes a promise to the Services impossible, until
// the next quiet point; to all of them where none is named.
func (l *ledger) interrupt(services ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, r := range l.services {
		if len(services) > 0 && !slices.Contains(services, name) {
			continue
		}
		now := r.states[len(r.states)-1]
		now.interrupted = true
		r.states = append(r.states, now)
	}
}

// settle notes that the agent has been seen to have everything.
func (l *ledger) settle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.services {
		now := r.states[len(r.states)-1]
		now.interrupted = false
		r.states = append(r.states, now)
		r.settled = len(r.states) - 1
	}
}

// wanted is what the last write asked for, by Service.
func (l *ledger) wanted() map[string][]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[string][]string{}
	for name, r := range l.services {
		all[name] = r.states[len(r.states)-1].usable
	}
	return all
}

// attempt is something that a client, or a reader of the kernel, has begun.
type attempt struct {
	ledger  *ledger
	service string
	from    int // the states that it may meet begin here
}

// begin begins an attempt on a Service that was written.
func (l *ledger) begin(service string) attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	return attempt{l, service, l.services[service].settled}
}

// promised says whether the attempt, if it ended now, could not rightly fail.
func (a attempt) promised() bool {
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	return !slices.ContainsFunc(a.met(), state.mayFail)
}

// met is called with the lock held.
func (a attempt) met() []state { return a.ledger.services[a.service].states[a.from:] }

// may says whether a server may have answered the attempt.
func (a attempt) may(server string) bool {
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	return slices.ContainsFunc(a.met(), func(s state) bool { return slices.Contains(s.usable, server) })
}

// mayStay says whether a server may have gone on answering an open connection.
func (a attempt) mayStay(server string) bool {
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	return slices.ContainsFunc(a.met(), func(s state) bool { return s.keeps(server) })
}

// stayed says whether open connections could stay with the server all along.
func (a attempt) stayed(server string) bool {
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	return !slices.ContainsFunc(a.met(), func(s state) bool { return s.interrupted || !s.keeps(server) })
}

// unchanged says whether nothing was written to the Service.
func (a attempt) unchanged() bool {
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	states := a.met()
	return !slices.ContainsFunc(states, func(s state) bool { return !slices.Equal(s.usable, states[0].usable) })
}

// interrupted says whether a step took from the Service what it needs.
func (a attempt) interrupted() bool {
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	return slices.ContainsFunc(a.met(), func(s state) bool { return s.interrupted })
}

// enough bounds how many broken promises are kept: what follows the first ones
// follows from them.
const enough = 20

// breach notes a broken promise.
func (l *ledger) breach(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.broken) < enough {
		l.broken = append(l.broken, fmt.Sprintf(format, args...))
	}
}

// breaches are the broken promises since it was asked last.
func (l *ledger) breaches() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	broken := l.broken
	l.broken = nil
	return broken
}
