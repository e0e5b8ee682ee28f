// SPDX-License-Identifier: Apache-2.0

package tables

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
)

// reconciled reports on everything there is now, as a reconciler does.
func (w *world) reconciled(at time.Duration, failed map[model.FrontendKey]error, names ...model.Name) {
	r := Report{Revision: w.revision(), Time: start.Add(at), Tried: names}
	if len(failed) > 0 {
		r.Failed = map[model.Name]map[model.FrontendKey]error{names[0]: failed}
	}
	w.tables.Report(r)
}

func (w *world) revision() uint64 { return w.tables.services.Revision(w.tables.db.ReadTxn()) }

// statusOf writes a status as one line: "Error since 4s: no room".
func statusOf(t *testing.T, s Snapshot, name model.Name, port uint16) string {
	t.Helper()
	row, ok := s.Service(name)
	if !ok {
		t.Fatalf("%s has no row", name)
	}
	for _, c := range row.Compiled.Claims {
		if c.Key.Port != port {
			continue
		}
		state, message, since := s.Status(row, c.Key)
		text := fmt.Sprintf("%s since %v", state, since.Sub(start))
		if message != "" {
			text += ": " + message
		}
		return text
	}
	t.Fatalf("%s has no frontend with port %d", name, port)
	return ""
}

func key(port uint16) model.FrontendKey {
	return model.FrontendKey{Address: service(web).ClusterIPs[0], Port: port, Protocol: model.TCP}
}

func TestStatus(t *testing.T) {
	w := newWorld(t)
	twoPorts := func(s *model.Service) {
		s.Ports = append(s.Ports, model.ServicePort{Name: "admin", Protocol: model.TCP, Port: 81})
	}
	noRoom := map[model.FrontendKey]error{key(80): errors.New("no room")}
	for _, step := range []struct {
		name   string
		do     func()
		want80 string
		want81 string
	}{
		{
			"a row that the reconciler has not reached is pending since it changed",
			func() { w.put(service(web, twoPorts)) },
			"Pending since 1s", "Pending since 1s",
		},
		{
			"once it is reached it is done, since it changed",
			func() { w.reconciled(2*time.Second, nil, web) },
			"Done since 1s", "Done since 1s",
		},
		{
			"a touch that changes nothing does not make it younger",
			func() { w.put(service(web, twoPorts)); w.reconciled(3*time.Second, nil, web) },
			"Done since 1s", "Done since 1s",
		},
		{
			"a frontend that could not be written says why, since it was first tried; its neighbour is done",
			func() {
				w.put(slice(ready("10.0.0.1")))
				w.reconciled(4*time.Second, noRoom, web)
			},
			"Error since 4s: no room", "Done since 3s",
		},
		{
			"one more failure does not make it younger, and tells the last error",
			func() {
				w.reconciled(5*time.Second, map[model.FrontendKey]error{key(80): errors.New("still no room")}, web)
			},
			"Error since 4s: still no room", "Done since 3s",
		},
		{
			"the error stays on a row that changed until the row is tried",
			func() { w.put(slice(ready("10.0.0.2"))) },
			"Error since 4s: still no room", "Pending since 4s",
		},
		{
			"once written it is done, since it healed",
			func() { w.reconciled(9*time.Second, nil, web) },
			"Done since 9s", "Done since 9s",
		},
		{
			"reports of others leave it alone",
			func() { w.reconciled(10*time.Second, nil, model.Name{Namespace: "default", Name: "other"}) },
			"Done since 9s", "Done since 9s",
		},
		{
			"a change after that makes it pending again",
			func() { w.version = 19; w.put(slice(ready("10.0.0.3"))) },
			"Pending since 20s", "Pending since 20s",
		},
		{
			"and done since the change, not since it healed",
			func() { w.reconciled(21*time.Second, nil, web) },
			"Done since 20s", "Done since 20s",
		},
	} {
		t.Run(step.name, func(t *testing.T) {
			step.do()
			s := w.tables.Snapshot()
			if got := statusOf(t, s, web, 80); got != step.want80 {
				t.Errorf("port 80: %s, want %s", got, step.want80)
			}
			if got := statusOf(t, s, web, 81); got != step.want81 {
				t.Errorf("port 81: %s, want %s", got, step.want81)
			}
		})
	}
}

func TestStatusOfAServiceThatIsGone(t *testing.T) {
	w := newWorld(t)
	failed := map[model.FrontendKey]error{key(80): errors.New("no room")}
	w.put(service(web))
	w.reconciled(1, failed, web)
	w.remove(reflector.KindService, web)

	t.Run("is forgotten with it, and one of the same name starts anew", func(t *testing.T) {
		w.put(service(web))
		if got := statusOf(t, w.tables.Snapshot(), web, 80); got != api.StatusPending+" since 3s" {
			t.Error(got)
		}
		w.remove(reflector.KindService, web)
	})
	t.Run("is forgotten even if a failure was reported while it was being deleted", func(t *testing.T) {
		w.reconciled(4, failed, web)
		w.reconciled(5, nil, web)
		if n := len(w.tables.status.exceptions); n != 0 {
			t.Errorf("%d Services are still remembered", n)
		}
	})
}

func TestSnapshotDoesNotChange(t *testing.T) {
	w := newWorld(t)
	w.put(serviceAndSlice()...)
	w.reconciled(0, nil, web)
	snapshot := w.tables.Snapshot()
	before, row := statusOf(t, snapshot, web, 80), w.row(t, web)

	w.reconciled(time.Minute, map[model.FrontendKey]error{key(80): errors.New("no room")}, web)
	w.put(service(model.Name{Namespace: "default", Name: "other"}))
	w.remove(reflector.KindService, web)

	if got := statusOf(t, snapshot, web, 80); got != before {
		t.Errorf("the status became %s, was %s", got, before)
	}
	if now, ok := snapshot.Service(web); !ok || now != row || snapshot.Len() != 1 {
		t.Errorf("the row became %v of %d", now, snapshot.Len())
	}
	if !snapshot.LastWrite().Equal(start) || !w.tables.Snapshot().LastWrite().Equal(start.Add(time.Minute)) {
		t.Errorf("last write %v, now %v", snapshot.LastWrite(), w.tables.Snapshot().LastWrite())
	}
}

func TestWait(t *testing.T) {
	w := newWorld(t)
	version, err := w.tables.Wait(t.Context(), 0)
	if err != nil || version == 0 {
		t.Fatalf("version %d, %v", version, err)
	}
	wake := func(name string, do func()) {
		t.Run(name, func(t *testing.T) {
			woken := make(chan uint64)
			go func() {
				v, _ := w.tables.Wait(t.Context(), version)
				woken <- v
			}()
			do()
			v := <-woken
			if v <= version {
				t.Errorf("version %d after %d", v, version)
			}
			version = v
		})
	}
	wake("returns when a row was written", func() { w.put(service(web)) })
	wake("returns when a batch was reported", func() { w.reconciled(0, nil, web) })
	t.Run("returns at once if the version is an old one", func(t *testing.T) {
		if v, err := w.tables.Wait(t.Context(), version-1); v != version || err != nil {
			t.Errorf("version %d, %v", v, err)
		}
	})
	t.Run("returns the known version when the caller gives up", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if v, err := w.tables.Wait(ctx, version); v != version || !errors.Is(err, context.Canceled) {
			t.Errorf("version %d, %v", v, err)
		}
	})
	t.Run("is not woken by a round in which nothing was to do", func(t *testing.T) {
		w.Flush()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if v, _ := w.tables.Wait(ctx, version); v != version {
			t.Errorf("version %d after %d", v, version)
		}
	})
}

// Under the race detector: the writer, the reconciler's reports and readers.
func TestReadersSeeWholeRowsBesideWriterAndReports(t *testing.T) {
	const rounds = 300
	tables, err := New()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := tables.Start(ctx); err != nil {
		t.Fatal(err)
	}
	w := NewWriter(tables, thisNode, model.Options{})
	for k := reflector.KindService; k <= reflector.KindNode; k++ {
		w.Listed(k)
	}
	changes, err := tables.Follow()
	if err != nil {
		t.Fatal(err)
	}
	var busy sync.WaitGroup
	busy.Go(func() { w.Run(ctx) })
	busy.Go(func() { reportAll(ctx, tables, changes) })
	for range 2 {
		busy.Go(func() { readAll(ctx, t, tables, w) })
	}
	for i := range rounds {
		version := fmt.Sprint(i)
		s := slice(ready(fmt.Sprintf("10.0.0.%d", i%3+1)))
		events := []reflector.Event{{Kind: reflector.KindEndpointSlice, Name: s.Name, ResourceVersion: version, Slice: s}}
		for _, name := range []model.Name{web, {Namespace: "default", Name: "other"}} {
			svc := service(name)
			svc.ResourceVersion = version
			events = append(events, reflector.Event{Kind: reflector.KindService, Name: name, ResourceVersion: version, Service: svc})
		}
		if i%7 == 0 {
			events = append(events, reflector.Event{Kind: reflector.KindService, Name: web})
		}
		w.Events(events)
		if i%11 == 0 {
			w.SetNode(model.Node{Name: "n1", Zone: version})
		}
	}
	waitUntilDone(ctx, t, tables, fmt.Sprint(rounds-1))
	cancel()
	busy.Wait()
}

// reportAll fails every second batch.
func reportAll(ctx context.Context, tables *Tables, changes *Changes) {
	for batch := 0; ; batch++ {
		rows, revision, _, more := changes.Next()
		r := Report{Revision: revision, Time: start, Failed: map[model.Name]map[model.FrontendKey]error{}}
		for _, c := range rows {
			r.Tried = append(r.Tried, c.Row.Name)
			if batch%2 == 0 && !c.Deleted {
				r.Failed[c.Row.Name] = map[model.FrontendKey]error{key(80): errors.New("no room")}
			}
		}
		tables.Report(r)
		select {
		case <-ctx.Done():
			return
		case <-more:
		}
	}
}

func readAll(ctx context.Context, t *testing.T, tables *Tables, w *Writer) {
	for version := uint64(0); ; {
		s := tables.Snapshot()
		for row := range s.Services() {
			for _, c := range row.Compiled.Claims {
				state, message, _ := s.Status(row, c.Key)
				if (state == api.StatusError) != (message != "") {
					t.Errorf("status %s with message %q", state, message)
				}
			}
		}
		w.Sources()
		var err error
		if version, err = tables.Wait(ctx, version); err != nil {
			return
		}
	}
}

// waitUntilDone waits for the version of default/other to be reported on.
func waitUntilDone(ctx context.Context, t *testing.T, tables *Tables, resourceVersion string) {
	for version := uint64(0); ; {
		s := tables.Snapshot()
		if row, ok := s.Service(model.Name{Namespace: "default", Name: "other"}); ok && row.Object.ResourceVersion == resourceVersion {
			if state, _, _ := s.Status(row, key(80)); state != api.StatusPending {
				return
			}
		}
		var err error
		if version, err = tables.Wait(ctx, version); err != nil {
			t.Error(err)
			return
		}
	}
}
