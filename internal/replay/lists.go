// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/reflector"
)

// recordedLists are those that a journal tells of. What one brings takes effect
// in one call when it is complete, so that an endpoint which moved between slices
// is never seen absent (R4). What came of one that never was complete waits for
// the next one that looks for the same objects: recorders do not tell it again.
type recordedLists struct {
	from int64            // the number of the first event of which the journal tells
	of   map[int64]listOf // by list
	due  []journal.List   // complete ones that have not taken effect, in that order
	held [len(kinds)][]input
}

// listOf is what a list is of.
type listOf struct {
	kind      reflector.Kind
	namespace string // empty: all
}

// newLists keeps those of our kinds. At a moment, one that ended later is not
// complete.
func newLists(all []journal.List, from int64, moment time.Time) recordedLists {
	l := recordedLists{from: from, of: map[int64]listOf{}}
	for _, list := range all {
		kind, ours := kindOf(list.Kind)
		if !ours {
			continue
		}
		l.of[list.ID] = listOf{kind, list.Namespace}
		if !list.Ended.IsZero() && (moment.IsZero() || !list.Ended.After(moment)) {
			l.due = append(l.due, list)
		}
	}
	slices.SortStableFunc(l.due, func(a, b journal.List) int { return cmp.Compare(a.LastEvent, b.LastEvent) })
	return l
}

// noLists are those of a journal that tells of none.
func noLists() recordedLists { return recordedLists{from: math.MaxInt64} }

// tell says whether an event came with a list, if that is known.
func (l *recordedLists) tell(e *journal.Event) (listed, known bool) {
	_, listed = l.of[e.List]
	return listed, e.ID >= l.from && listed == (e.List != 0)
}

// hold keeps what a list brought until one is complete.
func (l *recordedLists) hold(in input) {
	l.held[in.object.Kind] = append(l.held[in.object.Kind], in)
}

// underWay says that a list of a kind had begun by a moment, and will be
// complete.
func (l *recordedLists) underWay(kind reflector.Kind, at time.Time) bool {
	return slices.ContainsFunc(l.due, func(list journal.List) bool { return l.of[list.ID].kind == kind && !list.Began.After(at) })
}

// next takes out the next list that is complete before an event, with what it
// brought.
func (l *recordedLists) next(before int64) (list journal.List, inputs []input, found bool) {
	if len(l.due) == 0 || l.due[0].LastEvent >= before {
		return journal.List{}, nil, false
	}
	list, l.due = l.due[0], l.due[1:]
	return list, l.release(l.of[list.ID]), true
}

// release takes out what is held of the objects that a list looked for.
func (l *recordedLists) release(of listOf) (inputs []input) {
	var others []input
	for _, in := range l.held[of.kind] {
		if of.namespace == "" || of.namespace == in.object.Name.Namespace {
			inputs = append(inputs, in)
		} else {
			others = append(others, in)
		}
	}
	l.held[of.kind] = others
	return inputs
}

// waiting is how many events wait for a list to be complete.
func (l *recordedLists) waiting() (n int) {
	for _, inputs := range l.held {
		n += len(inputs)
	}
	return n
}
