// SPDX-License-Identifier: Apache-2.0

package tables

import (
	"cmp"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/cilium/statedb"

	"github.com/fairlead-io/fairlead/internal/model"
)

// fillChunk is how many rows of the first fill are committed at a time, so
// that the reconciler writes some while others are still being made.
const fillChunk = 4096

// commit compiles what was touched, decides who holds what, and writes the
// rows. A change after the first fill is one transaction, however many
// Services it touches. Listed says that this is the first fill, or after it.
func (w *Writer) commit(listed bool, now time.Time) {
	if len(w.touched) == 0 && (w.completed || !listed) {
		return
	}
	w.compileTouched()
	w.observe(now)
	// The order decides nothing but the order of transitions.
	for i := 0; i < len(w.touched); i++ {
		w.compete(w.touched[i])
	}
	chunk := len(w.touched)
	if !w.completed {
		chunk = fillChunk
		// Where there is no room for all, it is there for the API server's own.
		slices.SortStableFunc(w.touched, func(a, b *input) int { return keptFirst(a) - keptFirst(b) })
	}
	for part := range slices.Chunk(w.touched, max(chunk, 1)) {
		w.transact(func(txn statedb.WriteTxn) {
			for _, in := range part {
				w.write(txn, in, now.UTC())
			}
		})
	}
	if listed && !w.completed {
		w.transact(w.tables.complete)
		w.completed = true
	}
	w.touched = nil
	w.tables.mu.Lock()
	w.tables.touch()
	w.tables.mu.Unlock()
}

// transact runs do in the transaction of Together, or in one of its own.
func (w *Writer) transact(do func(statedb.WriteTxn)) {
	if w.together != nil {
		do(w.together)
		return
	}
	txn := w.tables.db.WriteTxn(w.tables.services)
	do(txn)
	txn.Commit()
}

func keptFirst(in *input) int {
	if in.keeper != nil {
		return 0
	}
	return 1
}

// compileTouched compiles on all cores: Compile sees one Service each.
func (w *Writer) compileTouched() {
	const worthSplitting = 256
	workers := runtime.GOMAXPROCS(0)
	if len(w.touched) < worthSplitting || workers == 1 {
		w.compileSome(w.touched)
		return
	}
	var wg sync.WaitGroup
	for part := range slices.Chunk(w.touched, (len(w.touched)+workers-1)/workers) {
		wg.Go(func() { w.compileSome(part) })
	}
	wg.Wait()
}

func (w *Writer) compileSome(inputs []*input) {
	for _, in := range inputs {
		if in.object == nil {
			in.own = model.Compiled{}
			continue
		}
		in.own = model.Compile(in.object, in.slices, &w.current, &w.options)
		if in.row != nil && in.own.Equal(&in.row.Own) {
			in.own = in.row.Own
		}
	}
}

// compete enters a Service's spots into the contest and leaves those it gave
// up. Other Services whose claims change hands by it are touched too; that
// they are compiled already, as they are, is seen from their row.
func (w *Writer) compete(in *input) {
	contender := model.Contender{Service: in.name}
	if in.object != nil {
		contender.Created = in.object.CreationTimestamp
	}
	if in.row != nil {
		if sameClaims(&in.row.Own, &in.own) && contender.Created.Equal(in.contender.Created) {
			return
		}
		for spot := range in.row.Own.Spots() {
			for _, other := range w.contest.leave(spot, in) {
				w.contest.enter(spot, other)
				w.touchRival(other, in)
			}
		}
	}
	in.contender = contender
	for spot := range in.own.Spots() {
		for _, loser := range w.contest.enter(spot, in) {
			w.touchRival(loser, in)
		}
	}
}

func (w *Writer) touchRival(rival, because *input) {
	if rival.touched {
		return
	}
	rival.own = rival.row.Own
	for _, c := range because.causes {
		w.touch(rival, c)
	}
}

func sameClaims(a, b *model.Compiled) bool {
	return len(a.Claims) == len(b.Claims) && (len(a.Claims) == 0 || &a.Claims[0] == &b.Claims[0] || slices.Equal(a.Claims, b.Claims))
}

// write makes the row of an input, or deletes it.
func (w *Writer) write(txn statedb.WriteTxn, in *input, now time.Time) {
	causes := in.causes
	in.touched, in.causes = false, nil
	if in.object == nil {
		w.remove(txn, in)
		return
	}
	row := &Service{
		Name: in.name, Object: in.object, Slices: in.slices,
		Ignored: model.Ignored(in.object, &w.options), Restored: in.restored,
		Own: in.own, Compiled: in.own.WithShadows(w.contest.holder, in.name),
		Triggers: in.triggers,
	}
	in.own = model.Compiled{}
	var known []string
	if k := in.keeper; k != nil {
		row.Compiled = row.Compiled.WithKept(k.kept)
		known = k.facts()
	}
	w.chronicle(in.row, row, Transition{now, sortCauses(causes), known})
	if w.tell != nil {
		w.tell(in.row, row)
	}
	in.row = row
	// Insert fails only for a transaction that is closed or of another table.
	if _, _, err := w.tables.services.Insert(txn, row); err != nil {
		panic(err)
	}
}

// chronicle gives a row its history. It goes on after the row before it, which
// may be nil, with a transition whose facts are those known besides. What is
// the same for the kernel is shared.
func (w *Writer) chronicle(before, row *Service, t Transition) {
	if before == nil {
		t.Changes = append(slices.Clip(w.firstSeen), t.Changes...)
		row.key, row.Changed, row.History = row.Name.String(), t.Time, []Transition{t}
		return
	}
	row.key, row.Changed, row.History = before.key, before.Changed, before.History
	if row.Compiled.Equal(&before.Compiled) && row.Ignored == before.Ignored {
		row.Compiled = before.Compiled
		if len(t.Changes) == 0 {
			return
		}
	} else {
		row.Changed = t.Time
	}
	t.Changes = describe(before, row, t.Changes)
	row.History = appendHistory(before.History, t)
}

func (w *Writer) remove(txn statedb.WriteTxn, in *input) {
	if in.row != nil {
		if _, _, err := w.tables.services.Delete(txn, in.row); err != nil {
			panic(err)
		}
		if w.tell != nil {
			w.tell(in.row, nil)
		}
		in.row = nil
		w.tables.forget(in.name)
	}
	if len(in.slices) == 0 {
		delete(w.inputs, in.name)
	}
}

func appendHistory(history []Transition, t Transition) []Transition {
	keep := history[max(0, len(history)-(historyLength-1)):]
	next := make([]Transition, 0, len(keep)+1)
	return append(append(next, keep...), t)
}

// sortCauses puts causes in order and names each object once, as it was last.
func sortCauses(c []Cause) []Cause {
	if len(c) < 2 {
		return c
	}
	slices.SortStableFunc(c, func(a, b Cause) int {
		return cmp.Or(cmp.Compare(a.Other, b.Other), cmp.Compare(a.Kind, b.Kind), a.Name.Compare(b.Name))
	})
	last := c[:0]
	for i := range c {
		if i+1 < len(c) && c[i].Other == c[i+1].Other && c[i].Kind == c[i+1].Kind && c[i].Name == c[i+1].Name {
			continue
		}
		last = append(last, c[i])
	}
	return last
}
