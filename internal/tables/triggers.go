// SPDX-License-Identifier: Apache-2.0

package tables

import (
	"time"

	"github.com/fairlead-io/fairlead/internal/model"
)

// Trigger is when something changed in the cluster that led to another
// version of an EndpointSlice (R32).
type Trigger struct {
	Time   time.Time
	Family model.Family
}

// Triggers are those of a Service since the start. Rows that nobody looked at
// are lost to their followers, triggers are not: each row has the last of all.
type Triggers struct {
	Count uint64
	last  []Trigger // oldest first; never modified
}

// triggersKept is how many a Service may have between two looks at its row.
const triggersKept = 16

func (t Triggers) with(next Trigger) Triggers {
	keep := t.last[max(0, len(t.last)-(triggersKept-1)):]
	last := make([]Trigger, 0, len(keep)+1)
	return Triggers{t.Count + 1, append(append(last, keep...), next)}
}

// After returns those that followed the first ones, as far as they are kept.
func (t Triggers) After(first uint64) []Trigger {
	if first >= t.Count {
		return nil
	}
	return t.last[max(0, len(t.last)-int(t.Count-first)):]
}

// trigger notes when the change began that a new version of a slice brings:
// not if it is known already, as after a relist, and not if it began before
// this writer could know, which would say nothing about it.
func (w *Writer) trigger(in *input, was, is *model.EndpointSlice) {
	if !is.Triggered.After(w.started) || was != nil && !is.Triggered.After(was.Triggered) {
		return
	}
	in.triggers = in.triggers.with(Trigger{is.Triggered, is.Family})
}
