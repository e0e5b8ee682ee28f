// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/model"
)

func TestReplay(t *testing.T) {
	gap := journal.Gap{Kind: endpointSlices, Began: at(5), Ended: at(9), Reason: "410 Gone"}
	for _, c := range []struct {
		name  string
		limit time.Duration
		more  []journal.Event
		gaps  []journal.Gap
		want  []string // after the first lists, which give web its backend
	}{
		{"an event changes the rows of its Service", 0, []journal.Event{
			event(1.5, journal.Modified, endpointSlices, "web-1", slice("web-1", "web", "10.0.1.1", "10.0.1.2")),
			event(2, journal.Added, services, "api", service("api", "10.96.0.2")),
			event(3, journal.Deleted, services, "web", ""),
		}, nil, []string{"1.5s web 1+0→2+0", "2s api 0+0→0+0", "3s web 2+0→0+0"}},
		{"an endpoint that moves between slices of one list is never absent (R4)", 0, []journal.Event{
			event(6, journal.Modified, endpointSlices, "web-1", slice("web-1", "web")),
			event(7, journal.Added, services, "api", service("api", "10.96.0.2")),
			event(8, journal.Listed, endpointSlices, "web-2", slice("web-2", "web", "10.0.1.1")),
			event(12, journal.Added, services, "late", service("late", "10.96.0.3")),
		}, []journal.Gap{gap}, []string{"7s api 0+0→0+0", "8s web 1+0→1+0", "12s late 0+0→0+0"}},
		{"an endpoint that moves in two events of a watch is absent in between", 0, []journal.Event{
			event(6, journal.Modified, endpointSlices, "web-1", slice("web-1", "web")),
			event(8, journal.Added, endpointSlices, "web-2", slice("web-2", "web", "10.0.1.1")),
		}, nil, []string{"6s web 1+0→0+0", "8s web 0+0→1+0"}},
		{"what a list found gone goes with what it brings", 0, []journal.Event{
			event(6, journal.Listed, endpointSlices, "web-2", slice("web-2", "web", "10.0.1.2")),
			event(6.1, journal.Absent, endpointSlices, "web-1", ""),
		}, nil, []string{"6.1s web 1+0→1+0"}},
		{"two lists without a gap are told by an object that comes again", 0, []journal.Event{
			event(6, journal.Absent, endpointSlices, "web-1", ""),
			event(6.1, journal.Listed, endpointSlices, "web-1", slice("web-1", "web", "10.0.1.1")),
		}, nil, []string{"6s web 1+0→0+0", "6.1s web 0+0→1+0"}},
		{"a retention ends at its moment, not with the next event", 3 * time.Second, []journal.Event{
			event(2, journal.Modified, endpointSlices, "web-1", slice("web-1", "web")),
			event(9, journal.Added, services, "api", service("api", "10.96.0.2")),
		}, nil, []string{"2s web 1+0→0+1", "5s web 0+1→0+0", "9s api 0+0→0+0"}},
		{"a clock that was turned back turns no time back", 3 * time.Second, []journal.Event{
			event(8, journal.Modified, endpointSlices, "web-1", slice("web-1", "web")),
			event(2, journal.Added, services, "api", service("api", "10.96.0.2")),
			event(9, journal.Modified, endpointSlices, "web-1", slice("web-1", "web", "10.0.1.1")),
		}, nil, []string{"8s web 1+0→0+1", "8s api 0+0→0+0", "9s web 0+1→1+0"}},
		{"what cannot be read leaves the last good state", 0, []journal.Event{
			event(1, journal.Modified, endpointSlices, "web-1", `{"endpoints":"none"}`),
			event(2, journal.Modified, services, "web", ""),
			event(3, "replaced", services, "web", service("web", "10.96.0.9")),
			event(4, journal.Modified, services, "web", service("other", "10.96.0.9")),
		}, nil, nil},
		{"who goes without having been seen changes nothing", 0, []journal.Event{
			event(1, journal.Deleted, services, "never", ""),
			event(2, journal.Absent, endpointSlices, "never-1", ""),
		}, nil, nil},
		{"another Node says nothing of this one", 0, []journal.Event{
			event(1, journal.Modified, nodes, "n2", node("n2", "b", "192.0.2.2")),
		}, nil, nil},
		{"objects of another group are not Services", 0, []journal.Event{
			event(1, journal.Added, journal.Kind{Group: "serving.knative.dev", Version: "v1", Resource: "services", Kind: "Service"}, "web", service("web", "10.96.0.9")),
		}, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWatched(t, c.limit)
			if _, err := w.Run(t.Context(), recorded(t, append(lists(), c.more...), c.gaps...), Moment{}); err != nil {
				t.Fatal(err)
			}
			if len(w.told) == 0 || !strings.HasSuffix(w.told[0], " web 0+0→1+0") {
				t.Fatalf("the first lists gave %v", w.told)
			}
			if diff := cmp.Diff(append([]string{}, c.want...), w.told[1:]); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestNothingIsServedBeforeTheFirstListsAreComplete(t *testing.T) {
	for missing, kind := range kinds {
		t.Run("without "+kind.Resource+" (R33)", func(t *testing.T) {
			w := newWatched(t, 0)
			for _, e := range slices.DeleteFunc(lists(), func(e journal.Event) bool { return e.Kind == kind }) {
				w.Apply(e)
			}
			w.Flush()
			if unheard := w.Unheard(); len(unheard) != 1 || int(unheard[0]) != missing || w.Snapshot().Len() != 0 {
				t.Errorf("%d rows, unheard of %v", w.Snapshot().Len(), unheard)
			}
		})
	}
}

func TestMoments(t *testing.T) {
	events := append(lists(),
		event(3, journal.Modified, endpointSlices, "web-1", slice("web-1", "web", "10.0.1.1", "10.0.1.2")),
		event(6, journal.Modified, endpointSlices, "web-1", slice("web-1", "web", "10.0.1.3", "10.0.1.4", "10.0.1.5")),
		event(8, journal.Listed, endpointSlices, "web-2", slice("web-2", "web", "10.0.1.6")),
		event(20, journal.Added, services, "api", service("api", "10.96.0.2")))
	gap := journal.Gap{Kind: endpointSlices, Began: at(5), Ended: at(9), Reason: "410 Gone"}
	for _, c := range []struct {
		name     string
		to       Moment
		backends int // of web; -1: it has no row
		events   int
		cut      bool
		err      error
	}{
		{"the end", Moment{}, 4, 7, false, nil},
		{"long after the end", Moment{Time: at(1000)}, 4, 7, false, nil},
		{"an event's own moment has it", Moment{Time: at(3)}, 2, 4, false, nil},
		{"just before it has not", Moment{Time: at(2.999)}, 1, 3, false, nil},
		{"within a list that closes a gap, nothing of it counts", Moment{Time: at(8.5)}, 2, 4, true, nil},
		{"once the gap is closed, all of it does", Moment{Time: at(9)}, 4, 6, false, nil},
		{"the first event", Moment{Time: at(0)}, -1, 1, false, nil},
		{"before the first event", Moment{Time: at(-1)}, -1, 0, false, ErrTooEarly},
		{"a resourceVersion has what was written up to it", Moment{Version: 30}, 2, 4, false, nil},
		{"one in between has what came before", Moment{Version: 59}, 2, 4, false, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWatched(t, 0)
			s, err := w.Run(t.Context(), recorded(t, events, gap), c.to)
			if !errors.Is(err, c.err) || err != nil && c.err == nil {
				t.Fatalf("%v, want %v", err, c.err)
			}
			got := -1
			if row, found := w.Snapshot().Service(web); found {
				got = CountBackends(row).Own
			}
			if got != c.backends || s.Events != c.events || s.Cut != c.cut {
				t.Errorf("%d backends, %d events, cut %t; want %d, %d, %t", got, s.Events, s.Cut, c.backends, c.events, c.cut)
			}
		})
	}
}

func TestATornJournalGivesWhatCanBeReadOfIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	events := lists()
	for i := range 3000 {
		events = append(events, event(3+float64(i), journal.Modified, endpointSlices, "web-1", slice("web-1", "web", "10.0.1.1", fmt.Sprintf("10.0.2.%d", i%250))))
	}
	j, err := journal.Create(path, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(j.Append(t.Context(), events), j.Close()); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, info.Size()*3/4); err != nil {
		t.Fatal(err)
	}
	if j, err = journal.Open(path); err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	report, err := Check(t.Context(), j, Options{Node: model.Node{Name: "n1"}}, Moment{})
	if !errors.Is(err, journal.ErrTorn) || report.Summary.Events < 1000 || report.Summary.Events >= len(events) || len(report.Findings) != 0 {
		t.Errorf("%d events of %d, findings %v, %v", report.Summary.Events, len(events), report.Findings, err)
	}
}

func TestAReplayThatTellsNothingSaysWhy(t *testing.T) {
	w := newWatched(t, 0)
	if _, err := w.Run(t.Context(), recorded(t, nil), Moment{}); !errors.Is(err, errNothing) {
		t.Errorf("an empty journal: %v", err)
	}
	ctx, cancel := cancelled(t)
	defer cancel()
	if _, err := w.Run(ctx, recorded(t, lists()), Moment{}); err == nil || !strings.Contains(err.Error(), "canceled") {
		t.Errorf("a replay that was cancelled: %v", err)
	}
}

func TestRowsHaveTheVersionOfTheEvent(t *testing.T) {
	w := newWatched(t, 0)
	for _, e := range lists() {
		w.Apply(e)
	}
	w.Flush()
	row, found := w.Snapshot().Service(web)
	if !found || row.Object.ResourceVersion != "0" || len(row.Slices) != 1 || row.Slices[0].ResourceVersion != "1" {
		t.Errorf("%+v", row)
	}
}

func TestProblemsNameTheEventAndTheObject(t *testing.T) {
	w := newWatched(t, 0)
	for _, e := range []journal.Event{
		event(1, journal.Modified, services, "web", `{"spec":{"ports":"many"}}`),
		event(2, journal.Modified, endpointSlices, "web-1", ``),
		event(3, journal.Modified, services, "api", `[`),
		event(4, journal.Modified, services, "old", service("new", "10.96.0.1")),
		event(5, "replaced", services, "odd", `{}`),
	} {
		e.ID = int64(e.Time.Sub(began) / time.Second)
		w.Apply(e)
	}
	for i, want := range []string{
		`event 1: Service default/web: its content cannot be read: /spec/ports does not hold what a []v1.ServicePort is written as`,
		`event 2: EndpointSlice default/web-1: the journal does not hold the object`,
		`event 3: Service default/api: its content cannot be read: it does not hold what a v1.Service is written as`,
		`event 4: Service default/old: its content is of default/new`,
		`event 5: Service default/odd: "replaced" is no type of event`,
	} {
		if got := w.Problems(); i >= len(got) || !strings.HasPrefix(got[i].Error(), want) {
			t.Errorf("problem %d of %v, want %s", i, got, want)
		}
	}
}
