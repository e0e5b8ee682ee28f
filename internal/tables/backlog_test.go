// SPDX-License-Identifier: Apache-2.0

package tables

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
)

// wantBacklog compares what is pending; since is zero for nothing.
func wantBacklog(t *testing.T, w *Writer, services, slices uint64, since time.Duration) {
	t.Helper()
	b := w.Backlog()
	if b.Pending[reflector.KindService] != services || b.Pending[reflector.KindEndpointSlice] != slices {
		t.Errorf("pending: %v, want %d Services and %d EndpointSlices", b.Pending, services, slices)
	}
	want := time.Time{}
	if since > 0 {
		want = start.Add(since)
	}
	if !b.Since.Equal(want) {
		t.Errorf("pending since %s, want %s", b.Since, want)
	}
}

func TestBacklog(t *testing.T) {
	w := newWorld(t)
	w.reconciled(0, nil)
	wantBacklog(t, w.Writer, 0, 0, 0)

	event := reflector.Event{Kind: reflector.KindService, Name: web, Service: service(web)}
	queue := func() { w.version++; w.Events([]reflector.Event{event}) }

	queue()
	t.Run("what is queued is pending since it came", func(t *testing.T) { wantBacklog(t, w.Writer, 1, 0, time.Second) })
	queue()
	t.Run("what comes later does not make it younger", func(t *testing.T) { wantBacklog(t, w.Writer, 2, 0, time.Second) })
	w.Flush()
	t.Run("a row is pending until it was tried", func(t *testing.T) { wantBacklog(t, w.Writer, 2, 0, time.Second) })
	w.put(slice(ready("10.0.0.1")))
	t.Run("more of it joins", func(t *testing.T) { wantBacklog(t, w.Writer, 2, 1, time.Second) })

	first := w.revision()
	w.put(slice(ready("10.0.0.2")))
	w.tables.Report(Report{Revision: first, Time: start.Add(7 * time.Second), Tried: []model.Name{web}})
	t.Run("a reconciler that works on leaves what came meanwhile, and that is younger", func(t *testing.T) { wantBacklog(t, w.Writer, 2, 2, 7*time.Second) })

	w.reconciled(8*time.Second, nil, web)
	t.Run("what was tried is not pending", func(t *testing.T) { wantBacklog(t, w.Writer, 0, 0, 0) })

	w.put(slice(ready("10.0.0.3")))
	w.reconciled(9*time.Second, map[model.FrontendKey]error{key(80): errors.New("no room")}, web)
	t.Run("nor is what was tried in vain: other Services are served", func(t *testing.T) { wantBacklog(t, w.Writer, 0, 0, 0) })

	w.SetNode(thisNode)
	w.Flush()
	t.Run("an event that changes no row leaves nothing behind", func(t *testing.T) { wantBacklog(t, w.Writer, 0, 0, 0) })

	w.remove(reflector.KindService, web)
	t.Run("a row that goes is pending, too", func(t *testing.T) { wantBacklog(t, w.Writer, 1, 0, time.Duration(w.version)*time.Second) })
	w.reconciled(10*time.Second, nil, web)
	wantBacklog(t, w.Writer, 0, 0, 0)

	if b := w.Backlog(); b.Received != (Counts{3, 3, 0}) || !b.LastReceived.Equal(start.Add(time.Duration(w.version)*time.Second)) {
		t.Errorf("received %v, the last at %s", b.Received, b.LastReceived)
	}
}

func TestWaitingForTheFirstListsIsNoBacklog(t *testing.T) {
	made, err := New()
	if err != nil {
		t.Fatal(err)
	}
	now := start
	w := NewWriter(made, thisNode, model.Options{})
	w.now = func() time.Time { return now }
	w.Events([]reflector.Event{{Kind: reflector.KindService, Name: web, Service: service(web)}})
	now = now.Add(time.Hour)
	wantBacklog(t, w, 1, 0, 0)
	for _, kind := range []reflector.Kind{reflector.KindService, reflector.KindEndpointSlice, reflector.KindNode} {
		w.Listed(kind)
	}
	wantBacklog(t, w, 1, 0, time.Hour)
	w.Flush()
	wantBacklog(t, w, 1, 0, time.Hour)
}

func TestTriggers(t *testing.T) {
	w := newWorld(t)
	w.started = start
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	triggered := func(name string, seconds int) *model.EndpointSlice {
		s := named(slice(ready("10.0.0.1")), name)
		s.Triggered = at(seconds)
		return s
	}
	seen := uint64(0)
	for _, step := range []struct {
		name string
		do   func()
		want []Trigger
	}{
		{"what changed before the start says nothing (R32)", func() { w.put(service(web), triggered("old", -5)) }, nil},
		{"each version of a slice brings a trigger (R32)",
			func() { w.put(triggered("a", 1)); w.put(triggered("a", 2), triggered("b", 3)) },
			[]Trigger{{at(1), model.IPv4}, {at(2), model.IPv4}, {at(3), model.IPv4}}},
		{"a relist brings none (R32)", func() { w.put(triggered("a", 2), triggered("b", 3)) }, nil},
		{"nor does a slice that goes (R32)",
			func() { w.remove(reflector.KindEndpointSlice, model.Name{Namespace: "default", Name: "b"}) }, nil},
		{"a slice without a time has none (R32)", func() { w.put(named(slice(), "c")) }, nil},
		{"a slice that moves between Services is no news by itself (R3, R32)", func() {
			moved := triggered("a", 2)
			moved.Service = "other"
			w.put(moved)
			w.put(triggered("a", 2))
		}, nil},
	} {
		t.Run(step.name, func(t *testing.T) {
			step.do()
			row := w.row(t, web)
			if diff := cmp.Diff(step.want, row.Triggers.After(seen)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			seen = row.Triggers.Count
		})
	}
	t.Run("of a flood the last ones are kept", func(t *testing.T) {
		for i := range 3 * triggersKept {
			w.put(triggered("a", 10+i))
		}
		got := w.row(t, web).Triggers.After(seen)
		if len(got) != triggersKept || !got[triggersKept-1].Time.Equal(at(9+3*triggersKept)) {
			t.Errorf("%d triggers, the last %v", len(got), got)
		}
	})
}
