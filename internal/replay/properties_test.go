// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/tables"
)

// history draws what happens to a few Services that compete for addresses.
func history(t *rapid.T) []journal.Event {
	names := []string{"web", "api", "db"}
	addresses := []string{"10.96.0.1", "10.96.0.2", "192.0.2.80", "192.0.2.81"}
	endpoints := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"10.0.1.1", "10.0.1.2", "10.0.1.3"}), 0, 3, rapid.ID[string])
	name := rapid.SampledFrom(names)
	events := lists()
	clock := 2.0
	for i := range rapid.IntRange(0, 30).Draw(t, "events") {
		clock += rapid.SampledFrom([]float64{0, 0.001, 2, 30}).Draw(t, "pause")
		of, kind, content := name.Draw(t, "name"), services, ""
		if rapid.Bool().Draw(t, "slice") {
			kind = endpointSlices
			content = slice(fmt.Sprintf("%s-%d", of, 1+i%2), name.Draw(t, "owner"), endpoints.Draw(t, "endpoints")...)
			of = fmt.Sprintf("%s-%d", of, 1+i%2)
		} else {
			content = service(of, rapid.SliceOfNDistinct(rapid.SampledFrom(addresses), 1, 3, rapid.ID[string]).Draw(t, "addresses")...)
		}
		how := rapid.SampledFrom(append(journal.Types(), journal.Modified, journal.Modified)).Draw(t, "type")
		events = append(events, event(clock, how, kind, of, content))
	}
	return events
}

// everything is all that a replay tells of a journal.
type everything struct {
	Told     []string
	Rows     []api.Frontend
	Findings []Finding
}

func replayed(t *rapid.T, tb *testing.T, events []journal.Event) everything {
	var e everything
	w := &watched{}
	var err error
	o := Options{
		Node: model.Node{Name: "n1"}, NodeRecorded: true, Observe: w.observe,
		Retention: tables.Retention{Services: []model.Name{web}, Limit: 10 * time.Second},
	}
	if w.Engine, err = New(o); err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	check := &checker{engine: w.Engine, fronts: o.Retention.Services, diff: func(int64) []journal.Change { return nil }, claimants: map[model.Spot][]model.Name{}, open: map[invariant]int{}}
	w.options.Observe = func(s Step) { w.observe(s); check.step(s) }
	j := recorded(tb, events)
	if _, err := w.Run(tb.Context(), j, Moment{}); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range w.Candidates() {
		e.Rows = append(e.Rows, api.Frontends(c.Service, &c.Compiled)...)
	}
	e.Told, e.Findings = w.told, check.findings

	// The rows are those of all objects compiled at once, but for what is retained.
	node := w.Node()
	var want []api.Frontend
	for _, c := range model.CompileAll(byName(w.world.services), byName(w.world.slices), &node, &o.Model) {
		kept := w.writer.Keep(c.Service, c.Compiled)
		want = append(want, api.Frontends(c.Service, &kept)...)
	}
	if diff := cmp.Diff(want, e.Rows); diff != "" {
		t.Fatalf("rows differ from their objects (-want +got)\n%s", diff)
	}
	return e
}

func byName[T any](objects map[model.Name]T) (sorted []T) {
	for _, name := range slices.SortedFunc(maps.Keys(objects), model.Name.Compare) {
		sorted = append(sorted, objects[name])
	}
	return sorted
}

func TestTheSameJournalTellsTheSameOnAnyNumberOfProcessors(t *testing.T) {
	processors := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(processors)
	rapid.Check(t, func(r *rapid.T) {
		events := history(r)
		runtime.GOMAXPROCS(1)
		one := replayed(r, t, events)
		runtime.GOMAXPROCS(4)
		if diff := cmp.Diff(one, replayed(r, t, events)); diff != "" {
			r.Fatalf("(-one processor +four)\n%s", diff)
		}
		for _, f := range one.Findings {
			if f.Invariant == BackendsLost {
				r.Fatalf("the tables lost backends: %+v", f)
			}
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, e := range lists() {
		f.Add(string(e.Type), e.Kind.Resource, string(e.Content))
	}
	f.Add("deleted", "services", "")
	f.Add("modified", "endpointslices", `{"endpoints":[{"addresses":["10.0.0.1"]},{"addresses":["10.0.0.1"]},null]}`)
	f.Fuzz(func(t *testing.T, how, resource, content string) {
		w := newWatched(t, time.Minute)
		for _, kind := range kinds {
			if kind.Resource != resource {
				continue
			}
			for _, name := range []string{"web", "web-1", "n1"} {
				w.Apply(event(5, journal.Type(how), kind, name, content))
			}
		}
		w.Flush()
		for _, p := range w.Problems() {
			if p.Error() == "" {
				t.Error("a problem without words")
			}
		}
	})
}
