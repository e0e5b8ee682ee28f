// SPDX-License-Identifier: Apache-2.0

package correlation

import (
	"hash/maphash"
	"slices"
	"time"

	"github.com/fairlead-io/fairlead/internal/audit"
	"github.com/fairlead-io/fairlead/internal/journal"
)

const (
	// window is how far an event and a record of one version may be apart. A
	// record waits for longer, until every event near it has been decided.
	window = 30 * time.Second
	// maxWaiting bounds the events, and the records, that wait for each other. In
	// a flood the oldest are decided early.
	maxWaiting = 50_000
	// maxCompared bounds how many records are compared with an event, those
	// nearest in time, and maxTogether how many events share them: fewer, so that
	// enough are left over.
	maxCompared = 16
	maxTogether = 8
)

// entry is an event that waits for its record.
type entry struct {
	event  journal.Event
	record *waiting // nil: none yet
	exact  bool
}

// desk holds events and records until it is decided what belongs together.
type desk struct {
	clocks *clocks
	// entries and records are in the order in which they came.
	entries queue[*entry]
	records queue[*waiting]
	// Of each version: its event, and the records that were answered with it.
	made    map[version]*entry
	answers map[version][]*waiting
	// Of each object: events without a record so far, and records that may be
	// those of an event. A record without a name is under no name.
	open       map[object][]*entry
	candidates map[object][]*waiting
	// begun are records of requests whose end has not been seen, by audit ID.
	begun map[string]*waiting
	// current is the version of each object, by hashes of both.
	current map[uint64]uint64
	seed    maphash.Seed
}

func newDesk(c *clocks) *desk {
	return &desk{
		clocks: c, made: map[version]*entry{}, answers: map[version][]*waiting{},
		open: map[object][]*entry{}, candidates: map[object][]*waiting{}, begun: map[string]*waiting{},
		current: map[uint64]uint64{}, seed: maphash.MakeSeed(),
	}
}

// addEvent takes the next event. A record that is known to be its own, because
// the journal was asked for it, comes with it.
func (d *desk) addEvent(e journal.Event, own *waiting) {
	e.Content = nil
	en := &entry{event: e}
	d.entries.push(en)
	o, v := eventObject(e), version{resource{e.Kind.Group, e.Kind.Resource}, e.ResourceVersion}
	d.note(o, e)
	if own != nil {
		en.take(own, true)
		return
	}
	if v.rv != "" && e.Type != journal.Absent {
		d.made[v] = en
		if answers := d.answers[v]; len(answers) > 0 {
			d.pair(en, answers[0])
			return
		}
	}
	if e.Type != journal.Listed {
		d.open[o] = append(d.open[o], en)
	}
}

// note remembers which version an object has.
func (d *desk) note(o object, e journal.Event) {
	key := maphash.Comparable(d.seed, o)
	if e.Type == journal.Deleted || e.Type == journal.Absent {
		delete(d.current, key)
		return
	}
	d.current[key] = maphash.String(d.seed, e.ResourceVersion)
}

// is says whether that is the version that the journal last had of an object.
func (d *desk) is(o object, rv string) bool {
	known, ok := d.current[maphash.Comparable(d.seed, o)]
	return ok && known == maphash.String(d.seed, rv)
}

// addRecord takes the next record of a write. It says whether the request is
// known to have left everything as it was.
func (d *desk) addRecord(w *waiting) (unchanged bool) {
	if before := d.begun[w.AuditID]; before != nil {
		before.decided, w.used = true, before.used
		delete(d.begun, w.AuditID)
	}
	if w.used {
		return false
	}
	v := versionOf(w.Record)
	if v.rv != "" {
		en := d.made[v]
		if en != nil && en.record == nil {
			d.records.push(w)
			d.pair(en, w)
			return false
		}
		if en != nil || d.is(objectOf(w.Record), v.rv) {
			return true
		}
		d.answers[v] = append(d.answers[v], w)
	}
	if !w.Done() && w.AuditID != "" {
		d.begun[w.AuditID] = w
	}
	d.records.push(w)
	if v.rv == "" || w.Verb == "delete" { // all that verbCost allows
		d.candidates[objectOf(w.Record)] = append(d.candidates[objectOf(w.Record)], w)
	}
	return false
}

// fail takes note that a request failed, so that its beginning made nothing.
func (d *desk) fail(r audit.Record) {
	if begun := d.begun[r.AuditID]; begun != nil {
		begun.decided = true
		delete(d.begun, r.AuditID)
	}
}

// pair joins an event and a record of one version.
func (d *desk) pair(en *entry, w *waiting) {
	if en.event.Type != journal.Listed {
		d.clocks.learn(w.Record, en.event)
	}
	en.take(w, true)
	d.close(en)
	for _, other := range d.answers[versionOf(w.Record)] {
		other.decided = other.decided || other != w
	}
}

func (en *entry) take(w *waiting, exact bool) {
	en.record, en.exact = w, exact
	w.used = true
}

// close takes an event off those that look for a record.
func (d *desk) close(en *entry) { remove(d.open, eventObject(en.event), en) }

// decide gives an event that found no record of its version the one that fits
// best, if any fits.
func (d *desk) decide(en *entry) {
	defer d.close(en)
	if en.record != nil || en.event.Type == journal.Listed {
		return
	}
	best := d.best(en)
	if best == nil {
		return
	}
	en.take(best, false)
	if best.Verb != "deletecollection" {
		remove(d.candidates, objectOf(best.Record), best)
	}
}

// best is the record that an event gets if it and those of the object that
// follow it share out the records near it as they fit best.
func (d *desk) best(en *entry) *waiting {
	records := d.nearest(en, eventObject(en.event))
	if len(records) == 0 {
		return nil
	}
	events := d.following(en)
	cost := make([][]float64, len(events))
	var mine *waiting // that need not be shared
	for i, event := range events {
		row, shared := d.costs(event, records, len(events))
		if cost[i] = row; i == 0 {
			mine = shared
		}
	}
	at := assign(cost)[0]
	switch {
	case at >= len(records):
		return mine
	case cost[0][at] >= alone:
		return nil
	}
	return records[at]
}

// following are an event that is to be decided and the next ones of its object
// without a record.
func (d *desk) following(en *entry) []*entry {
	events := []*entry{en}
	for _, other := range d.open[eventObject(en.event)] {
		if len(events) == maxTogether {
			break
		}
		if other != en { // those before it have been decided
			events = append(events, other)
		}
	}
	return events
}

// costs are what an event costs with each of the records, and then alone. A
// deleted collection leaves enough for others: an event that may be of one is as
// good as alone.
func (d *desk) costs(en *entry, records []*waiting, alones int) (row []float64, shared *waiting) {
	row = make([]float64, len(records)+alones)
	single := float64(alone)
	for i, w := range records {
		row[i] = alone
		cost, ok := d.against(en, w)
		switch {
		case !ok:
		case w.Verb != "deletecollection":
			row[i] = square(cost)
		case square(cost) < single:
			single, shared = square(cost), w
		}
	}
	for i := len(records); i < len(row); i++ {
		row[i] = single
	}
	return row, shared
}

func (d *desk) against(en *entry, w *waiting) (time.Duration, bool) {
	return against(en.event, w, d.clocks.of(w.Server).behind)
}

// nearest are the records that an event may have.
func (d *desk) nearest(en *entry, o object) []*waiting {
	found := around(d.candidates[o], en.event.Time)
	o.name = ""
	return append(found, around(d.candidates[o], en.event.Time)...)
}

// around are the records nearest to a moment that an event may still have. The
// list is in the order of time, or nearly so.
func around(list []*waiting, at time.Time) []*waiting {
	after, _ := slices.BinarySearchFunc(list, at, func(w *waiting, at time.Time) int { return w.at.Compare(at) })
	var found []*waiting
	before := after - 1
	for len(found) < maxCompared && (before >= 0 || after < len(list)) {
		next := &before
		if before < 0 || after < len(list) && list[after].at.Sub(at) < at.Sub(list[before].at) {
			next = &after
		}
		if w := list[*next]; !w.decided && (!w.used || w.Verb == "deletecollection") {
			found = append(found, w)
		}
		if next == &before {
			before--
		} else {
			after++
		}
	}
	return found
}

// forgetEvent drops what is held for an event that has been decided.
func (d *desk) forgetEvent(en *entry) {
	v := version{resource{en.event.Kind.Group, en.event.Kind.Resource}, en.event.ResourceVersion}
	if d.made[v] == en {
		delete(d.made, v)
	}
}

func (d *desk) forgetRecord(w *waiting) {
	if d.begun[w.AuditID] == w {
		delete(d.begun, w.AuditID)
	}
	remove(d.answers, versionOf(w.Record), w)
	remove(d.candidates, objectOf(w.Record), w)
}

// remove takes one element out of a list of lists that does not keep empty ones.
func remove[K, V comparable](lists map[K][]V, key K, value V) {
	list := lists[key]
	at := slices.Index(list, value)
	if at < 0 {
		return
	}
	if len(list) == 1 {
		delete(lists, key)
		return
	}
	lists[key] = slices.Delete(list, at, at+1)
}

// queue is first in, first out.
type queue[T any] struct {
	items []T
	head  int
}

func (q *queue[T]) push(item T) { q.items = append(q.items, item) }

func (q *queue[T]) len() int { return len(q.items) - q.head }

func (q *queue[T]) first() T { return q.items[q.head] }

// pop gives memory back once half of it is empty.
func (q *queue[T]) pop() T {
	var zero T
	item := q.items[q.head]
	q.items[q.head] = zero
	if q.head++; q.head > 1024 && q.head*2 > len(q.items) {
		q.items = append(q.items[:0:0], q.items[q.head:]...)
		q.head = 0
	}
	return item
}
