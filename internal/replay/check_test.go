// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/tables"
)

// seen is a finding in a line.
func seen(f Finding) string {
	cleared := "stays"
	if !f.Cleared.IsZero() {
		cleared = f.Cleared.Sub(began).String()
	}
	return fmt.Sprintf("%s %s by %s at %s, event %d until %s", f.Invariant, f.Service, f.Object, f.Time.Sub(began), f.Event, cleared)
}

func TestCheck(t *testing.T) {
	empty := event(5, journal.Modified, endpointSlices, "web-1", slice("web-1", "web"))
	empty.Diff = []journal.Change{{Path: "/endpoints", Op: "replace", Old: []byte(`[1]`), New: []byte(`null`)}}
	full := event(8, journal.Modified, endpointSlices, "web-1", slice("web-1", "web", "10.0.1.1"))
	for _, c := range []struct {
		name   string
		events []journal.Event
		gaps   []journal.Gap
		want   []string
		text   string // in what the first finding tells
	}{
		{"a Service in front of the API server that is emptied, and filled again", []journal.Event{empty, full}, nil,
			[]string{"apiserver-empty default/web by EndpointSlice default/web-1 at 5s, event 4 until 8s"},
			"the API left the Service without backend 10.0.1.1:8080 | an agent goes on with what the Service had for 1m at most; an agent without retention refuses new connections to the API server; changed: /endpoints [1]→null"},
		{"each time that it is emptied counts", []journal.Event{empty, full,
			event(9, journal.Deleted, endpointSlices, "web-1", "")}, nil,
			[]string{"apiserver-empty default/web by EndpointSlice default/web-1 at 5s, event 4 until 8s",
				"apiserver-empty default/web by EndpointSlice default/web-1 at 9s, event 6 until stays"}, "for 1m at most"},
		{"one that is deleted", []journal.Event{event(5, journal.Deleted, services, "web", "")}, nil,
			[]string{"apiserver-empty default/web by Service default/web at 5s, event 4 until stays"}, "the Service was deleted, with backend 10.0.1.1:8080 | nothing is retained for it"},
		{"what is emptied in a gap may have come in another order", []journal.Event{empty, event(20, journal.Added, services, "api", service("api", "10.96.0.2"))},
			[]journal.Gap{{Kind: endpointSlices, Began: at(4), Ended: at(6), Reason: "410 Gone"}},
			[]string{"apiserver-empty default/web by EndpointSlice default/web-1 at 5s, event 4 until stays"},
			"it was found after nobody had watched endpointslices from 2026-11-20T10:00:04Z to 2026-11-20T10:00:06Z (410 Gone), so the order may have been another"},
		{"what is emptied while another kind is not watched", []journal.Event{empty},
			[]journal.Gap{{Kind: services, Began: at(4), Ended: at(6), Reason: "410 Gone"}},
			[]string{"apiserver-empty default/web by EndpointSlice default/web-1 at 5s, event 4 until stays"},
			"it came while nobody watched services"},
		{"another Service may be empty", []journal.Event{
			event(2, journal.Added, services, "api", service("api", "10.96.0.2")),
			event(3, journal.Added, endpointSlices, "api-1", slice("api-1", "api", "10.0.1.9")),
			event(4, journal.Deleted, endpointSlices, "api-1", ""),
		}, nil, nil, ""},
		{"the younger of two loses an address that both claim (R27)", []journal.Event{
			event(2, journal.Added, services, "new", service("new", "10.96.0.2", "192.0.2.80")),
			event(3, journal.Added, services, "older", service("older", "10.96.0.3", "192.0.2.80")),
			event(6, journal.Deleted, services, "older", ""),
		}, nil, []string{"address-contested default/new by Service default/older at 3s, event 5 until 6s"},
			"it claims 192.0.2.80:80/TCP, which default/older holds | default/older is older (2012-01-01T00:00:00Z, this one 2013-01-01T00:00:00Z): connections go there"},
		{"whoever comes later and is younger loses it, too", []journal.Event{
			event(2, journal.Added, services, "older", service("older", "10.96.0.3", "192.0.2.80")),
			event(3, journal.Added, services, "new", service("new", "10.96.0.2", "192.0.2.80")),
			event(6, journal.Modified, services, "new", service("new", "10.96.0.2")),
		}, nil, []string{"address-contested default/new by Service default/new at 3s, event 5 until 6s"}, "older"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Options{Node: model.Node{Name: "n1"}, NodeRecorded: true, Retention: tables.Retention{Services: []model.Name{web}, Limit: time.Minute}}
			report, err := Check(t.Context(), recorded(t, append(lists(), c.events...), c.gaps...), o, Moment{})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range report.Findings {
				got = append(got, seen(f))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Fatalf("(-want +got)\n%s", diff)
			}
			if len(got) == 0 {
				return
			}
			if first := report.Findings[0]; !strings.Contains(first.Text+" | "+first.Detail, c.text) {
				t.Errorf("it says %q and %q, want %q", first.Text, first.Detail, c.text)
			}
		})
	}
}

// By construction rows follow their objects. That the check would see it if they
// did not is shown with rows that are changed on their way to it.
func TestRowsThatDoNotFollowTheirObjectsAreFound(t *testing.T) {
	without := func(row *tables.Service) *tables.Service {
		other := *row
		other.Compiled.Sets = slices.Clone(other.Compiled.Sets)
		other.Compiled.Sets[0].Backends = nil
		return &other
	}
	for _, c := range []struct {
		name   string
		tamper func(before, after *tables.Service) *tables.Service
		want   bool
	}{
		{"a row that follows its objects", func(_, after *tables.Service) *tables.Service { return after }, false},
		{"a row that lost a backend", func(_, after *tables.Service) *tables.Service { return without(after) }, true},
		{"a row that has not followed yet", func(before, _ *tables.Service) *tables.Service { return before }, true},
		{"a row that is gone", func(_, _ *tables.Service) *tables.Service { return nil }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWatched(t, 0)
			check := &checker{engine: w.Engine, diff: func(int64) []journal.Change { return nil }, claimants: map[model.Spot][]model.Name{}, open: map[invariant]int{}}
			w.options.Observe = func(s Step) {
				for i := range s.Changes {
					change := &s.Changes[i]
					if change.Before != nil {
						change.After = c.tamper(change.Before, change.After)
						w.rows[change.Service] = change.After
					}
				}
				check.step(s)
			}
			events := append(lists(),
				event(3, journal.Modified, endpointSlices, "web-1", slice("web-1", "web", "10.0.1.1", "10.0.1.2")),
				event(4, journal.Added, services, "api", service("api", "10.96.0.2")))
			for i := range events {
				events[i].ID = int64(i + 1)
				w.Apply(events[i])
			}
			w.Flush()
			if found := len(check.findings) > 0; found != c.want {
				t.Fatalf("findings %v", check.findings)
			}
			for _, f := range check.findings {
				if f.Invariant != BackendsLost || f.Service != "default/web" || f.Event != 4 || !strings.Contains(f.Text, "10.0.1.2:8080") {
					t.Errorf("%+v", f)
				}
			}
		})
	}
}

func TestDurationsEndWithoutZeros(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"10m": 10 * time.Minute, "1h": time.Hour, "1h30m": 90 * time.Minute, "10s": 10 * time.Second, "0s": 0, "1m10s": 70 * time.Second, "1h0m10s": time.Hour + 10*time.Second, "20m": 20 * time.Minute,
	} {
		if got := DurationText(d); got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
}
