// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/datapath"
	"github.com/fairlead-io/fairlead/internal/healthcheck"
	"github.com/fairlead-io/fairlead/internal/metrics"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reconciler"
	"github.com/fairlead-io/fairlead/internal/reflector"
	"github.com/fairlead-io/fairlead/internal/tables"
)

func TestWhetherLoadBalancersMayUseTheNode(t *testing.T) {
	node := func(leaving bool) []reflector.Event {
		return []reflector.Event{{Kind: reflector.KindNode, Node: &reflector.Node{Name: "n1", Leaving: leaving}}}
	}
	gone := []reflector.Event{{Kind: reflector.KindNode}}
	events := func(batches ...[]reflector.Event) func(handler) {
		return func(h handler) {
			for _, batch := range batches {
				h.Events(batch)
			}
		}
	}
	for _, c := range []struct {
		name      string
		manifests string
		do        func(handler)
		want      bool
	}{
		{"a node of which nothing was heard", "", func(handler) {}, true},
		{"a node of which nothing can be heard (R31)", "", func(h handler) { h.Stale(reflector.KindNode, errors.New("forbidden")) }, true},
		{"a node like any other (R30)", "", events(node(false)), true},
		{"one that is about to go (R30)", "", events(node(true)), false},
		{"one that was about to go (R30)", "", events(node(true), node(false)), true},
		{"one that is gone (R30)", "", events(node(false), gone), false},
		{"one that came back (R30)", "", events(node(false), gone, node(false)), true},
		{"one that the API server does not have (R30)", "", func(h handler) { h.Listed(reflector.KindNode) }, false},
		{"one that the API server does not have yet (R30)", "", func(h handler) { h.Listed(reflector.KindNode); h.Events(node(false)) }, true},
		{"other kinds say nothing of it", "", func(h handler) { h.Listed(reflector.KindService) }, true},
		{"a folder may do without a Node", "manifests", func(h handler) { h.Listed(reflector.KindNode) }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := tracingAgent(t, datapath.SocketAll)
			a.cfg.ManifestDir = c.manifests
			a.writer = tables.NewWriter(a.tables, model.Node{}, model.Options{})
			a.node = newMachine(Config{}).nodeTracker
			c.do(handler{a.writer, a})
			if got := a.eligibility.eligible(); got != c.want {
				t.Errorf("eligible: %v", got)
			}
		})
	}
}

// healthyAgent is one whose first lists are in force.
func healthyAgent(t *testing.T) *Agent {
	t.Helper()
	a := tracingAgent(t, datapath.SocketAll)
	a.log = slog.New(slog.DiscardHandler)
	a.cfg.NodeName = "n1"
	a.writer = tables.NewWriter(a.tables, model.Node{}, model.Options{})
	a.reconciler = &reconciler.Reconciler{}
	a.reconciler.Stats.Filled.Store(true)
	a.buildHealth()
	a.report(t, nil)
	return a
}

func TestAServiceThatCannotBeWrittenIsUnhealthyAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := healthyAgent(t)
		clusterIP := model.FrontendKey{Address: netip.MustParseAddr("10.96.0.1"), Port: 80, Protocol: model.TCP}
		for _, step := range []struct {
			name string
			do   func()
			want bool
		}{
			{"its rows are written", func() {}, true},
			{"one could not be written just now", func() {
				a.report(t, map[model.FrontendKey]error{clusterIP: errors.New("no room")})
			}, true},
			{"for long", func() { time.Sleep(healthcheck.PendingLimit) }, false},
			{"it is written at last", func() { a.report(t, nil) }, true},
			{"the first lists are not in force", func() { a.reconciler.Stats.Filled.Store(false) }, false},
		} {
			step.do()
			if got := a.served(web); got != step.want {
				t.Errorf("%s: served %v", step.name, got)
			}
		}
		a.reconciler.Stats.Filled.Store(true)
		if a.served(model.Name{Namespace: "default", Name: "absent"}) {
			t.Error("a Service without rows is served")
		}
		if signs := a.signs(); !signs.Healthy(time.Now()) {
			t.Errorf("the proxy is not healthy: %+v", signs)
		}
	})
}

// balanced is a row of a Service that asks for a health check.
func balanced(port uint16, triggers ...time.Time) *tables.Service {
	made, err := tables.New()
	if err != nil {
		panic(err)
	}
	w := tables.NewWriter(made, model.Node{Name: "n1"}, model.Options{})
	for _, kind := range []reflector.Kind{reflector.KindService, reflector.KindEndpointSlice, reflector.KindNode} {
		w.Listed(kind)
	}
	w.Events([]reflector.Event{{Kind: reflector.KindService, Name: web, Service: &model.Service{
		Name: web, Type: model.ServiceLoadBalancer, ExternalTrafficPolicy: model.PolicyLocal, HealthCheckNodePort: port,
		ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}, Ports: []model.ServicePort{{Protocol: model.TCP, Port: 80}},
	}}})
	for _, at := range append([]time.Time{{}}, triggers...) {
		w.Events([]reflector.Event{{Kind: reflector.KindEndpointSlice, Name: web, Slice: &model.EndpointSlice{
			Name: web, Service: "web", Family: model.IPv4, Ports: []model.EndpointPort{{Protocol: model.TCP, Port: 8080}},
			Endpoints: []model.Endpoint{{Addresses: []netip.Addr{netip.MustParseAddr("10.0.1.1")}, NodeName: "n1", Ready: true, Serving: true}},
			Triggered: at,
		}}})
	}
	w.Flush()
	row, _ := made.Snapshot().Service(web)
	return row
}

// runPart runs a part of the agent in a namespace until the returned function
// is called.
func runPart(t *testing.T, in func(func()), part func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go in(func() { ended <- part(ctx) })
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func (a *Agent) scrape() string {
	w := httptest.NewRecorder()
	a.metrics.Handler(a.log).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

func TestWhatTheReconcilerTriedIsToldOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := healthyAgent(t)
		a.metrics = metrics.New("v1", func() (metrics.Facts, error) { return metrics.Facts{}, nil })
		now := time.Now()
		row := balanced(32000, now.Add(time.Second), now.Add(2*time.Second))
		time.Sleep(5 * time.Second)
		failed := map[model.Name]map[model.FrontendKey]error{web: {{}: errors.New("no room")}}
		for _, step := range []struct {
			name    string
			batch   reconciler.Batch
			port    uint16 // of the health check; 0: none
			samples int
		}{
			{"what failed is not in force yet (R32)", reconciler.Batch{Changes: []tables.Change{{Row: row}}, Failed: failed}, 32000, 0},
			{"once it is written, all that led to it has taken so long (R32)", reconciler.Batch{Changes: []tables.Change{{Row: row}}}, 32000, 2},
			{"and is told once (R32)", reconciler.Batch{Changes: []tables.Change{{Row: row}}}, 32000, 2},
			{"another port (R29)", reconciler.Batch{Changes: []tables.Change{{Row: balanced(32001)}}}, 32001, 2},
			{"a Service that asks no more (R29)", reconciler.Batch{Changes: []tables.Change{{Row: balanced(0)}}}, 0, 2},
			{"it asks again (R29)", reconciler.Batch{Changes: []tables.Change{{Row: balanced(32000)}}}, 32000, 2},
			{"a Service that is gone (R29)", reconciler.Batch{Changes: []tables.Change{{Row: row, Deleted: true}}}, 0, 2},
		} {
			a.tried(step.batch)
			states := a.checks.States()
			if (len(states) > 0) != (step.port > 0) || len(states) == 1 && (states[0].Port != step.port || states[0].LocalEndpoints != 1) {
				t.Errorf("%s: health checks %+v", step.name, states)
			}
			want := fmt.Sprintf("fairlead_network_programming_duration_seconds_count{ip_family=\"IPv4\"} %d\n", step.samples)
			if got := a.scrape(); (step.samples > 0) != strings.Contains(got, "fairlead_network_programming_duration_seconds_count") || step.samples > 0 && !strings.Contains(got, want) {
				t.Errorf("%s: want %s in\n%s", step.name, want, got)
			}
		}
		if got := a.scrape(); !strings.Contains(got, "fairlead_network_programming_duration_seconds_sum{ip_family=\"IPv4\"} 7\n") || !strings.Contains(got, "fairlead_sync_failures_total 1\n") {
			t.Errorf("4 s and 3 s were measured, and one batch failed:\n%s", got)
		}
		if len(a.triggersSeen) != 0 {
			t.Errorf("kept of Services that are gone: %v", a.triggersSeen)
		}
	})
}

func TestHealthChecksAreNoListenersOfTheNode(t *testing.T) {
	node := newNode(t, "192.0.2.1/24")
	a := healthyAgent(t)
	a.checks.Set(web, model.HealthCheck{Port: 32000})
	a.checks.ListenOn([]netip.Addr{netip.IPv4Unspecified()})
	stop := runPart(t, node.Do, a.checks.Run)
	defer stop()
	node.Do(func() {
		other, err := net.Listen("tcp4", "192.0.2.1:443")
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		deadline := time.Now().Add(patience)
		for len(a.checks.Held()) == 0 && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
		all, err := listeners(tcp6)
		if err != nil || !slices.Contains(all, listener(model.TCP, "[::]:32000")) {
			t.Fatalf("the kernel does not show the health check: %v, %v", all, err)
		}
		for request, want := range map[diagRequest][]model.Listener{tcp4: {listener(model.TCP, "192.0.2.1:443")}, tcp6: nil} {
			if got, err := a.nodesOwn(request); err != nil || !slices.Equal(got, want) {
				t.Errorf("family %d: %v, %v; want %v", request.family, got, err, want)
			}
		}
	})
}

func TestUDPOnThePortOfAHealthCheckIsTheNodes(t *testing.T) {
	node := newNode(t, "192.0.2.1/24")
	a := healthyAgent(t)
	a.checks.Set(web, model.HealthCheck{Port: 32000})
	a.checks.ListenOn([]netip.Addr{netip.IPv4Unspecified()})
	defer runPart(t, node.Do, a.checks.Run)()
	node.Do(func() {
		c, err := net.ListenPacket("udp4", "0.0.0.0:32000")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		got, err := a.nodesOwn(diagRequest{unix.AF_INET, unix.IPPROTO_UDP, stateUnconnected})
		if err != nil || !slices.Contains(got, listener(model.UDP, "0.0.0.0:32000")) {
			t.Errorf("got %v, %v", got, err)
		}
	})
}

func TestStatusSaysWhatCannotBeAnswered(t *testing.T) {
	a := healthyAgent(t)
	a.cfg.HealthzBindAddress, a.cfg.MetricsBindAddress = "192.0.2.1:10256", "192.0.2.1:10249"
	a.buildHealth()
	a.eligibility.note(nil)
	a.checks.Set(web, model.HealthCheck{Port: 32000, LocalEndpoints: 1})
	a.checks.ListenOn([]netip.Addr{netip.MustParseAddr("192.0.2.1")})
	// A node that has none of these addresses.
	node := newNode(t, "192.0.2.2/24")
	for _, part := range a.health() {
		defer runPart(t, node.Do, part)()
	}
	want := []string{
		"/healthz and /livez: listen tcp 192.0.2.1:10256: bind: cannot assign requested address (--healthz-bind-address)",
		"/metrics: listen tcp 192.0.2.1:10249: bind: cannot assign requested address (--metrics-bind-address)",
		"the health-check port of default/web cannot be listened on, load balancers take this node for unhealthy: listen tcp 192.0.2.1:32000: bind: cannot assign requested address",
	}
	var s api.Status
	var got []string
	for deadline := time.Now().Add(patience); len(got) < len(want) && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		s = api.Status{}
		got = a.addHealth(&s)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if s.Healthz.Healthz != 503 || s.Healthz.Livez != 200 || s.Healthz.Address != "" || s.MetricsAddress != "" || len(s.Findings) != 1 {
		t.Errorf("%+v, metrics on %q, findings %q", s.Healthz, s.MetricsAddress, s.Findings)
	}
	if check := s.HealthChecks[0]; check.Status != 200 || len(check.Listening) != 0 || check.Service != "default/web" {
		t.Errorf("health check %+v", check)
	}
}

func TestBindAddressesAreChecked(t *testing.T) {
	for value, fine := range map[string]bool{
		"": true, "0.0.0.0:10256": true, "[::]:10256": true, "127.0.0.1:0": true,
		"10256": false, ":10256": false, "localhost:10256": false, "0.0.0.0": false, "0.0.0.0:70000": false,
	} {
		err := checkBindAddress("--healthz-bind-address", value)
		if (err == nil) != fine || err != nil && !strings.Contains(err.Error(), fmt.Sprintf("--healthz-bind-address %q", value)) {
			t.Errorf("%q: %v", value, err)
		}
	}
}

func TestAWriterThatIsStuckIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := healthyAgent(t)
		for _, kind := range []reflector.Kind{reflector.KindService, reflector.KindEndpointSlice, reflector.KindNode} {
			a.writer.Listed(kind)
		}
		a.writer.Events([]reflector.Event{{Kind: reflector.KindService, Name: web}})
		var s api.Status
		time.Sleep(healthcheck.PendingLimit - time.Second)
		if troubles := a.addHealth(&s); len(troubles) != 0 || s.Healthz.Healthz != 200 || s.Healthz.Livez != 200 {
			t.Errorf("too early: %q, %+v", troubles, s.Healthz)
		}
		time.Sleep(time.Second)
		troubles := a.addHealth(&s)
		if len(troubles) != 1 || !strings.HasPrefix(troubles[0], "changes wait to be written since 2000-01-01T00:00:00Z: ") || s.Healthz.Healthz != 503 || s.Healthz.Livez != 503 {
			t.Errorf("got %q, %+v (R30)", troubles, s.Healthz)
		}
	})
}
