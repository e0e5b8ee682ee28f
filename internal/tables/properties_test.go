// SPDX-License-Identifier: Apache-2.0

package tables

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
	"github.com/fairlead-io/fairlead/test/history"
)

// listed returns a writer whose sources have told everything: that nothing is
// there yet.
func listed(t interface{ Fatal(...any) }, node model.Node) *Writer {
	tables, err := New()
	if err != nil {
		t.Fatal(err)
	}
	w := NewWriter(tables, node, model.Options{})
	for k := reflector.KindService; k <= reflector.KindNode; k++ {
		w.Listed(k)
	}
	return w
}

func rowsOf(t *Tables) map[model.Name]*Service {
	rows := map[model.Name]*Service{}
	for row := range t.Snapshot().Services() {
		rows[row.Name] = row
	}
	return rows
}

// tell queues a step as a source and the node's tracker would.
func tell(w *Writer, s history.Step) {
	w.Events(s.Events)
	if s.Node != nil {
		w.SetNode(*s.Node)
	}
}

func TestTablesEqualCompilingEverythingFromScratch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		world := history.NewWorld()
		w := listed(t, world.Node)
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			tell(w, world.Step(t))
			if !rapid.Bool().Draw(t, "one batch with the next") {
				w.Flush()
				checkRows(t, w.tables, world)
			}
		}
		w.Flush()
		checkRows(t, w.tables, world)
		tell(w, world.Clear(t))
		w.Flush()
		checkNothingIsLeft(t, w)
	})
}

func checkRows(t *rapid.T, tables *Tables, world *history.World) {
	t.Helper()
	services, endpointSlices := world.Objects()
	rows := rowsOf(tables)
	if len(rows) != len(services) {
		t.Fatalf("%d rows for %d Services", len(rows), len(services))
	}
	options := model.Options{}
	for i, want := range model.CompileAll(services, endpointSlices, &world.Node, &options) {
		row := rows[want.Service]
		if row == nil {
			t.Fatalf("%s has no row", want.Service)
		}
		own := model.Compile(services[i], row.Slices, &world.Node, &options)
		if !row.Own.Equal(&own) {
			t.Fatalf("%s: own is\n%+v, want\n%+v", want.Service, row.Own, own)
		}
		if !row.Compiled.Equal(&want.Compiled) {
			t.Fatalf("%s: compiled is\n%+v, want\n%+v", want.Service, row.Compiled, want.Compiled)
		}
		checkProvenance(t, row, services[i], endpointSlices, &options)
	}
}

func checkProvenance(t *rapid.T, row *Service, object *model.Service, all []*model.EndpointSlice, options *model.Options) {
	t.Helper()
	var own []*model.EndpointSlice
	for _, s := range all {
		if s.ServiceName() == row.Name {
			own = append(own, s)
		}
	}
	if row.Object != object || !slices.Equal(row.Slices, own) {
		t.Fatalf("%s was made from %v and %v, not from the last objects %v and %v", row.Name, row.Object, row.Slices, object, own)
	}
	if want := model.Ignored(object, options); row.Ignored != want {
		t.Fatalf("%s is ignored because %q, want %q", row.Name, row.Ignored, want)
	}
	if len(row.History) == 0 || len(row.History) > historyLength {
		t.Fatalf("%s has %d transitions", row.Name, len(row.History))
	}
	for _, transition := range row.History {
		if len(transition.Changes) == 0 || len(transition.Changes) > maxChanges || len(transition.Causes) == 0 {
			t.Fatalf("%s has a transition of %d causes and %d changes", row.Name, len(transition.Causes), len(transition.Changes))
		}
	}
}

func checkNothingIsLeft(t *rapid.T, w *Writer) {
	t.Helper()
	if n := w.tables.Snapshot().Len(); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	if len(w.inputs)+len(w.owners)+len(w.contest.holders)+len(w.contest.rivals)+len(w.tables.status.exceptions)+w.objects != 0 {
		t.Errorf("left: inputs %v, owners %v, holders %v, rivals %v, exceptions %v, %d objects",
			w.inputs, w.owners, w.contest.holders, w.contest.rivals, w.tables.status.exceptions, w.objects)
	}
}

// Whether some of the Services are under retention makes no difference.
func TestAnEventTouchesNoServiceButThoseThatClaimACommonSpot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		world := history.NewWorld()
		w := listed(t, world.Node)
		if rapid.Bool().Draw(t, "retention") {
			w.Retain(Retention{Services: underRetention, Limit: time.Hour})
		}
		for range rapid.IntRange(2, 25).Draw(t, "steps") {
			before, node := rowsOf(w.tables), world.Node
			step := world.Step(t)
			tell(w, step)
			w.Flush()
			involved := step.Involved
			for name, row := range before {
				if row.Object.AffectedBy(&node, &world.Node) {
					involved = append(involved, name)
				}
			}
			checkBystanders(t, before, rowsOf(w.tables), involved)
		}
	})
}

// checkBystanders holds the rows of Services that a step was not about against
// those before: the very same row, unless a spot is shared with one that the
// step was about; then another Compiled only if it says something else.
func checkBystanders(t *rapid.T, before, after map[model.Name]*Service, involved []model.Name) {
	t.Helper()
	contended := map[model.Spot]bool{}
	for _, name := range involved {
		maps.Copy(contended, spotsOf(before[name]))
		maps.Copy(contended, spotsOf(after[name]))
	}
	for name, was := range before {
		is := after[name]
		if slices.Contains(involved, name) || was == is {
			continue
		}
		if is == nil {
			t.Fatalf("an event of %v deleted the row of %s", involved, name)
		}
		if !intersect(spotsOf(was), contended) {
			t.Fatalf("an event of %v wrote the row of %s, which shares no spot with it", involved, name)
		}
		if !sameSlice(was.Own.Claims, is.Own.Claims) || !sameSlice(was.Own.Sets, is.Own.Sets) {
			t.Fatalf("an event of %v compiled %s anew", involved, name)
		}
		if was.Compiled.Equal(&is.Compiled) && !sameCompiled(was, is) {
			t.Fatalf("an event of %v changed nothing of %s, but its Compiled is another", involved, name)
		}
	}
}

func sameCompiled(a, b *Service) bool {
	return sameSlice(a.Compiled.Claims, b.Compiled.Claims) && sameSlice(a.Compiled.Sets, b.Compiled.Sets)
}

// sameSlice says that both are one array in memory.
func sameSlice[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

func spotsOf(row *Service) map[model.Spot]bool {
	spots := map[model.Spot]bool{}
	if row == nil {
		return spots
	}
	for s := range row.Own.Spots() {
		spots[s] = true
	}
	return spots
}

func intersect(a, b map[model.Spot]bool) bool {
	for s := range a {
		if b[s] {
			return true
		}
	}
	return false
}
