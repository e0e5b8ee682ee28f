// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/tables"
	"github.com/fairlead-io/fairlead/test/history"
)

// After any history, with any faults that end, the kernel holds what the rows
// say; and at no call in between was a frontend missing that was there before
// and is wanted after.
func TestAnyHistoryWithFaultsThatEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, newKernel(t))
		w.list()
		w.writer.Flush()
		objects := history.NewWorld()
		for range rapid.IntRange(1, 12).Draw(t, "batches") {
			before := wanted(w.tables)
			w.tell(objects.Step(t))
			for rapid.Bool().Draw(t, "more in this batch") {
				w.tell(objects.Step(t))
			}
			newAgent := rapid.IntRange(0, 3).Draw(t, "a new agent") == 0
			if newAgent {
				w = w.successor(t)
			}
			w.fault = drawFaults(t)
			w.keep = kept(before, wanted(w.tables), newAgent, w.fault != nil)
			w.reconciler.Step()
			if rapid.Bool().Draw(t, "a retry under the fault") {
				w.reconciler.tryAgain()
			}
			w.heal(t)
			checkKernel(t, w)
		}
		w.tell(objects.Clear(t))
		w.keep = nil
		w.heal(t)
		if len(w.elements)+len(w.sets) != 0 {
			t.Fatalf("when everything is gone the kernel holds %d frontends and %d sets", len(w.elements), len(w.sets))
		}
	})
}

// tell makes rows of a step.
func (w *world) tell(s history.Step) {
	w.writer.Events(s.Events)
	if s.Node != nil {
		w.writer.SetNode(*s.Node)
	}
	w.writer.Flush()
}

// successor is a new reconciler on the same rows and the same kernel.
func (w *world) successor(t reporter) *world {
	next := newWorld(t, w.kernel)
	next.tables, next.writer = w.tables, w.writer
	cfg := next.reconciler.cfg
	cfg.Tables = w.tables
	next.reconciler.changes.Close()
	w.reconciler.changes.Close()
	r, err := New(cfg)
	if err != nil {
		t.Fatalf("%v", err)
	}
	next.reconciler = r
	w.kernel.restart()
	return next
}

// drawFaults draws which calls fail, each by chance, or none.
func drawFaults(t *rapid.T) func(string) error {
	if rapid.Bool().Draw(t, "no faults") {
		return nil
	}
	return func(method string) error {
		if rapid.IntRange(0, 2).Draw(t, method+" fails") == 0 {
			return errFault
		}
		return nil
	}
}

// heal ends the faults and lets the reconciler take up what is unfinished.
func (w *world) heal(t reporter) {
	t.Helper()
	w.fault = nil
	w.reconciler.Step()
	w.reconciler.tryAgain()
	if w.reconciler.unfinished() {
		t.Fatalf("something is still unfinished after the faults ended: failed %v, deletes %v", w.reconciler.failed, w.reconciler.deletes)
	}
}

// wanted are the frontends that the rows ask for, as the kernel has them, and
// their sets.
func wanted(tab *tables.Tables) map[model.FrontendKey]model.SetKey {
	keys := map[model.FrontendKey]model.SetKey{}
	for row := range tab.Snapshot().Services() {
		for _, c := range row.Compiled.Claims {
			if inForce(row, &c) {
				keys[inKernel(c.Key)] = row.Compiled.Sets[c.Set].Key
			}
		}
	}
	return keys
}

func inForce(row *tables.Service, c *model.Claim) bool {
	return c.Shadowed == "" && row.Compiled.Sets[c.Set].Action != model.ActionUnsupported
}

// kept are the frontends wanted before and after. Where calls fail, those may
// go missing that change hands, or whose port has another name; and a new
// agent prunes what it could not publish.
func kept(before, after map[model.FrontendKey]model.SetKey, newAgent, faults bool) []model.FrontendKey {
	var keys []model.FrontendKey
	if newAgent && faults {
		return nil
	}
	for key, set := range before {
		if now, ok := after[key]; ok && (now == set || !faults) {
			keys = append(keys, key)
		}
	}
	return keys
}

// checkKernel holds the kernel against the rows: every frontend in force with
// its set, the content of each set, and nothing beside.
func checkKernel(t *rapid.T, w *world) {
	t.Helper()
	found := 0
	owners := map[model.SetKey]uint32{}
	snapshot := w.tables.Snapshot()
	for row := range snapshot.Services() {
		for _, c := range row.Compiled.Claims {
			if state, message, _ := snapshot.Status(row, c.Key); state != "Done" {
				t.Fatalf("%s %s: status %s %s", row.Name, c.Key, state, message)
			}
			if !inForce(row, &c) {
				continue
			}
			found++
			id, ok := w.elements[inKernel(c.Key)]
			if !ok {
				t.Fatalf("%s: frontend %s (%s) is missing", row.Name, c.Key, c.Key.Scope)
			}
			want, have := &row.Compiled.Sets[c.Set], w.sets[id]
			if have.key != want.Key || !sameContent(have.content, want) {
				t.Fatalf("%s: frontend %s points to\n%+v, want\n%+v", row.Name, c.Key, have.content, want)
			}
			port := want.Key
			port.Role = 0
			if owner, known := owners[port]; known && owner != have.owner {
				t.Fatalf("%s: sets of one port have the owners %d and %d", port, owner, have.owner)
			}
			owners[port] = have.owner
		}
	}
	if len(w.elements) != found {
		t.Fatalf("the kernel holds %d frontends, the rows %d", len(w.elements), found)
	}
	expectSetsOfRows(t, w)
}
