// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"time"

	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
)

// listPause is longer than a server pauses within a list.
const listPause = time.Second

// guess is what one list seems to have brought so far, in a journal that does
// not tell of lists. It reaches the tables in one call, so that an endpoint which
// moved between slices is never seen absent (R4). Lists of several kinds may come
// at once, each with its own guess.
type guess struct {
	inputs []input
	last   time.Time           // of its last event
	until  time.Time           // when the gap that it closes ends; zero: it closes none
	named  map[model.Name]bool // what is in it
}

func (g *guess) open() bool { return len(g.inputs) > 0 }

// over says that nothing more comes of it: the gap is closed or, where there
// was none, nothing came for longer than a list takes a breath.
func (g *guess) over(now time.Time) bool {
	if !g.open() {
		return false
	}
	if !g.until.IsZero() {
		return now.After(g.until)
	}
	return now.Sub(g.last) > listPause
}

// takes says that the event belongs to the list as it stands: to the same gap or,
// without one, of a type that only lists bring, about an object that it has not
// had.
func (g *guess) takes(in *input, until time.Time) bool {
	if !g.open() || !g.until.Equal(until) || g.over(in.event.Time) {
		return false
	}
	return !until.IsZero() || ofList(in.event.Type) && !g.named[in.object.Name]
}

func (g *guess) add(in input, until time.Time) {
	if !g.open() {
		g.named = map[model.Name]bool{}
	}
	g.inputs, g.last, g.until = append(g.inputs, in), in.event.Time, until
	g.named[in.object.Name] = true
}

func (g *guess) take() []input {
	taken := g.inputs
	*g = guess{}
	return taken
}

// ofList says that only a list brings events of this type.
func ofList(t journal.Type) bool { return t == journal.Listed || t == journal.Absent }

// gaps are the times that nobody watched a kind, as recorders note them: from
// the last that was heard until a list was complete. All that came of the kind in
// between is of that list.
type gaps struct {
	all    []journal.Gap
	byKind [len(kinds)][]span
}

// span is a time without its first moment.
type span struct{ began, ended time.Time }

// newGaps keeps those of our kinds. Gaps that meet are one.
func newGaps(all []journal.Gap) (g gaps) {
	for _, gap := range all {
		kind, ours := kindOf(gap.Kind)
		if !ours {
			continue
		}
		g.all = append(g.all, gap)
		spans := g.byKind[kind]
		if n := len(spans); n > 0 && !gap.Began.After(spans[n-1].ended) {
			spans[n-1].ended = later(spans[n-1].ended, gap.Ended)
			continue
		}
		g.byKind[kind] = append(spans, span{gap.Began, gap.Ended})
	}
	return g
}

// end is when the gap ends in which an event came; zero: it came in none. Gaps
// that ended before it are not asked for again: journals go forward.
func (g *gaps) end(kind reflector.Kind, at time.Time) time.Time {
	spans := g.byKind[kind]
	for len(spans) > 0 && spans[0].ended.Before(at) {
		spans = spans[1:]
	}
	g.byKind[kind] = spans
	if len(spans) == 0 || !at.After(spans[0].began) {
		return time.Time{}
	}
	return spans[0].ended
}
