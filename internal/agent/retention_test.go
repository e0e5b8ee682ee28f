// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/explain"
	"github.com/fairlead-io/fairlead/internal/metrics"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reconciler"
	"github.com/fairlead-io/fairlead/internal/reflector"
	"github.com/fairlead-io/fairlead/internal/tables"
	"github.com/fairlead-io/fairlead/test/lab"
)

// retainingAgent is an agent whose Service default/web was emptied, and goes on
// with the backend it had.
func retainingAgent(t *testing.T) *Agent {
	t.Helper()
	a, _ := followingAgent(t)
	a.cfg.PinPath, a.reconciler = lab.NewBPFFS(t)+"/fairlead", &reconciler.Reconciler{}
	a.log, a.refusals = slog.New(slog.DiscardHandler), newBroadcast()
	a.metrics = metrics.New("", func() (metrics.Facts, error) { return metrics.Facts{Retained: a.retained()}, nil })
	a.writer.OnRetention(a.retention)
	a.writer.Events([]reflector.Event{{Kind: reflector.KindEndpointSlice, Name: model.Name{Namespace: "default", Name: "web-1"}}})
	a.writer.Flush()
	if kept := a.retained(); len(kept) != 1 || kept[0].Service != "default/web" {
		t.Fatalf("%+v is retained", kept)
	}
	return a
}

// works runs the agent's writer until the test ends.
func (a *Agent) works(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); a.writer.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

// listening collects what those who watch are told.
func (a *Agent) listening(t *testing.T) <-chan api.Event {
	t.Helper()
	events := make(chan api.Event, 16)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Events(ctx, func(e api.Event) error { events <- e; return nil }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		a.refusals.mu.Lock()
		listeners := len(a.refusals.listeners)
		a.refusals.mu.Unlock()
		if listeners > 0 {
			return events
		}
		if time.Now().After(end) {
			t.Fatal("nobody listens")
		}
	}
}

func next(t *testing.T, events <-chan api.Event) api.Event {
	t.Helper()
	select {
	case e := <-events:
		return e
	case <-time.After(patience):
		t.Fatal("there is no event")
		return api.Event{}
	}
}

func TestWhatIsRetainedIsSeenEverywhere(t *testing.T) {
	a := retainingAgent(t)
	services, err := a.Services(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	web := services.Services[slices.IndexFunc(services.Services, func(s api.Service) bool { return s.Service == "default/web" })]
	if web.Backends != 1 || web.Retained != 1 {
		t.Errorf("get services: %d backends, %d of them retained; want 1 and 1", web.Backends, web.Retained)
	}
	backends, err := a.Backends(t.Context())
	if err != nil || len(backends.Backends) != 1 || backends.Backends[0].State != "unverified" {
		t.Errorf("get backends: %+v, %v; want one that is unverified", backends.Backends, err)
	}
	x, err := a.Explain(t.Context(), "default/web")
	if err != nil {
		t.Fatal(err)
	}
	if len(x.Retained) != 1 || len(x.Frontends) != 1 || !strings.Contains(x.Frontends[0].Verdict, "; the Service has no endpoint in the API since ") {
		t.Errorf("explain: %+v", x)
	}
	other, err := a.Explain(t.Context(), "default/other")
	if err != nil || other.Retained == nil || len(other.Retained) != 0 || strings.Contains(other.Frontends[0].Verdict, "API") {
		t.Errorf("explain of another Service: %+v, %v", other, err)
	}
	if text := a.scrape(); !strings.Contains(text, `fairlead_retained_backends{service="default/web",state="unverified"} 1`) ||
		!strings.Contains(text, `fairlead_retention_events_total{what="retained"} 1`) {
		t.Errorf("metrics:\n%s", text)
	}
}

func TestEachStepOfARetentionIsTold(t *testing.T) {
	a := retainingAgent(t)
	events := a.listening(t)
	a.writer.Judge(map[netip.AddrPort]tables.Verdict{netip.MustParseAddrPort("10.0.1.1:8080"): tables.VerdictAnswers})
	a.writer.Flush()
	e := next(t, events)
	if e.Time.IsZero() || e.Reason == "" {
		t.Errorf("%+v says neither when nor why", e)
	}
	e.Time, e.Reason = time.Time{}, ""
	want := api.Event{Event: api.EventVerified, Refusal: api.Refusal{SchemaVersion: api.SchemaVersion, Service: "default/web", Protocol: "TCP"}, Family: "IPv4", Role: "cluster-ip"}
	if diff := cmp.Diff(want, e); diff != "" {
		t.Error(diff)
	}
	if kept := a.retained(); len(kept) != 1 || kept[0].Backends[0].State != "retained" {
		t.Errorf("after a heartbeat %+v is retained", kept)
	}
}

func TestAReleaseReturnsWhenNothingIsRetained(t *testing.T) {
	a := retainingAgent(t)
	a.works(t)
	was := a.retained()
	released, err := a.Release(t.Context(), "default/web")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(api.Released{SchemaVersion: api.SchemaVersion, Service: "default/web", Retained: was}, released); diff != "" {
		t.Error(diff)
	}
	if now := a.retained(); len(now) != 0 {
		t.Errorf("%+v is still retained", now)
	}
	rows, err := a.Frontends(t.Context())
	if err != nil || slices.ContainsFunc(rows, func(f api.Frontend) bool { return f.Action == "forward" }) {
		t.Errorf("rows after the release: %+v, %v", rows, err)
	}
	for _, name := range []string{"default/web", "default/absent", "web", ""} {
		_, err := a.Release(t.Context(), name)
		known, is := errors.AsType[*api.Error](err)
		if !is || known.Status != http.StatusNotFound || !strings.Contains(known.Message, "nothing is retained for ") {
			t.Errorf("release of %q: %v; want that nothing is retained", name, err)
		}
	}
}

func TestAReleaseThatIsNotDoneSaysSo(t *testing.T) {
	a := retainingAgent(t) // whose writer does not work
	ctx, cancel := context.WithTimeout(t.Context(), 3*releaseStep)
	defer cancel()
	if _, err := a.Release(ctx, "default/web"); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "not done yet") {
		t.Errorf("got %v", err)
	}
}

func at(minute int) time.Time { return time.Date(2026, 11, 20, 10, minute, 0, 0, time.UTC) }

func keptSet(role model.Role, restored bool, until time.Time, backends ...model.Backend) tables.Retained {
	return tables.Retained{
		Key:   model.SetKey{Service: model.Name{Namespace: "default", Name: "kubernetes"}, PortName: "https", Role: role},
		Since: at(0), Until: until, Restored: restored, Backends: backends,
	}
}

func backend(address string, state model.BackendState) model.Backend {
	return model.Backend{AddrPort: netip.MustParseAddrPort(address), State: state}
}

func TestWhatIsRetainedIsAFinding(t *testing.T) {
	const ends = "; `fairlead explain default/kubernetes` shows more, `fairlead release default/kubernetes` ends it"
	one, two := backend("192.0.2.10:6443", model.StateRetained), backend("192.0.2.11:6443", model.StateRetained)
	unheard := backend("192.0.2.10:6443", model.StateUnverified)
	for _, c := range []struct {
		name string
		kept []tables.Retained
		want []string
	}{
		{"nothing is none", nil, nil},
		{"a backend that answers", []tables.Retained{keptSet(model.RoleClusterIP, false, at(10), one)},
			[]string{"default/kubernetes has no endpoint in the API since 2026-11-20T10:00:00Z and goes on with its last backend (verified by heartbeats) until 2026-11-20T10:10:00Z" + ends}},
		{"one that was not heard of", []tables.Retained{keptSet(model.RoleClusterIP, false, at(10), unheard)},
			[]string{"default/kubernetes has no endpoint in the API since 2026-11-20T10:00:00Z and goes on with its last backend (unverified: no heartbeat was answered since) until 2026-11-20T10:10:00Z" + ends}},
		{"several sets of a Service are one, from the first to the last", []tables.Retained{
			keptSet(model.RoleClusterIP, false, at(10), one), keptSet(model.RoleInternal, false, at(12), one, two)},
			[]string{"default/kubernetes has no endpoint in the API since 2026-11-20T10:00:00Z and goes on with its last 2 backends (verified by heartbeats) until 2026-11-20T10:12:00Z" + ends}},
		{"what a file remembers", []tables.Retained{keptSet(model.RoleClusterIP, true, time.Time{}, unheard, two)},
			[]string{"default/kubernetes goes on since 2026-11-20T10:00:00Z with the 2 backends that the state file remembers (1 verified by heartbeats) until the API is heard of" + ends}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, retentionTroubles(explain.Retentions(c.kept))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTheVerdictIsOfTheFrontendsOwnSet(t *testing.T) {
	kept := []tables.Retained{keptSet(model.RoleInternal, false, at(10), backend("192.0.2.10:6443", model.StateRetained))}
	forward := api.Frontend{Backends: []api.Backend{{}}}
	key := kept[0].Key
	other := key
	other.Role = model.RoleClusterIP
	for _, c := range []struct {
		name string
		row  api.Frontend
		set  model.SetKey
		want bool
	}{
		{"a set that is retained", forward, key, true},
		{"another set of the Service", forward, other, false},
		{"a row that is not served", api.Frontend{}, key, false},
	} {
		if got := explain.KeptVerdict("it is fine", c.row, explain.Retentions(kept), c.set); strings.HasPrefix(got, "it is fine; the Service has no endpoint") != c.want {
			t.Errorf("%s: %s", c.name, got)
		}
	}
}
