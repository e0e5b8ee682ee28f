// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/internal/api"
)

var update = flag.Bool("update", false, "write the table in docs/metrics.md anew")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// someFacts has a value for every metric.
func someFacts() (Facts, error) {
	return Facts{
		Sources:   []Source{{Kind: "Service", Objects: 3, Synced: true, Stale: Stale{time.Unix(800, 0), "Forbidden", "list", "services"}, Received: 9, Pending: 2}},
		Problems:  1,
		Services:  3,
		Frontends: map[string]int{"Done": 5, "Error": 1},
		NoLocalEndpoints: map[Policy]int{
			{"external", "IPv4"}: 2,
		},
		LastSynced: time.Unix(1000, 500_000_000), LastQueued: time.Unix(1001, 0), LastCompared: time.Unix(900, 0),
		Repaired: 4, Maps: []Map{{"fairlead_frontends", 7, 100, 6}}, EventsLost: 8, Packets: []api.PacketCount{{What: "malformed", Count: 5}}, HealthChecks: 2, HealthChecksFailed: 1,
		APIServer: someWay, Retained: someRetained,
	}, nil
}

var someWay = &api.APIServer{
	Current: "https://192.0.2.11:6443", Since: time.Unix(800, 0), Answered: time.Unix(1002, 0),
	Endpoints: []api.APIEndpoint{{State: api.EndpointSilent}, {State: api.EndpointAnswers}, {State: api.EndpointSilent}},
}

// someRetained has a backend in two sets.
var someRetained = []api.Retention{
	{Service: "default/kubernetes", Since: time.Unix(990, 0), Role: "cluster-ip", Backends: []api.Backend{
		{Address: "192.0.2.10", Port: 6443, State: "retained"}, {Address: "192.0.2.11", Port: 6443, State: "retained"}}},
	{Service: "default/kubernetes", Since: time.Unix(980, 0), Role: "internal", Backends: []api.Backend{{Address: "192.0.2.10", Port: 6443, State: "retained"}}},
	{Service: "kube-system/api", Since: time.Unix(970, 0), Role: "cluster-ip", Backends: []api.Backend{{Address: "192.0.2.10", Port: 6443, State: "unverified"}}},
}

func filled() *Metrics {
	m := New("v1", someFacts)
	m.Synced(time.Millisecond, true)
	m.Synced(time.Millisecond, false)
	m.Programmed("IPv4", 300*time.Millisecond)
	m.Programmed("IPv4", -time.Second)
	m.Refused("no endpoint is usable")
	m.Answered("/healthz", 503)
	m.Retained("retained")
	m.Moved()
	return m
}

func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler(slog.New(slog.DiscardHandler)).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func TestMetricsSayWhatHappenedAndWhatIs(t *testing.T) {
	text := scrape(t, filled())
	for _, line := range []string{
		`fairlead_sync_duration_seconds_count 2`,
		`fairlead_sync_failures_total 1`,
		`fairlead_network_programming_duration_seconds_count{ip_family="IPv4"} 2`,
		`fairlead_network_programming_duration_seconds_sum{ip_family="IPv4"} 0.3`,
		`fairlead_network_programming_duration_seconds_bucket{ip_family="IPv4",le="0.25"} 1`,
		`fairlead_refused_connections_total{reason="no endpoint is usable"} 1`,
		`fairlead_health_answers_total{code="503",path="/healthz"} 1`,
		`fairlead_build_info{version="v1"} 1`,
		`fairlead_changes_total{kind="Service"} 9`,
		`fairlead_changes_pending{kind="Service"} 2`,
		`fairlead_source_objects{kind="Service"} 3`,
		`fairlead_source_synced{kind="Service"} 1`,
		`fairlead_source_stale{kind="Service",reason="Forbidden",resource="services",verb="list"} 1`,
		`fairlead_source_stale_since_seconds{kind="Service"} 800`,
		`fairlead_unreadable_objects 1`,
		`fairlead_services 3`,
		`fairlead_packets_total{what="malformed"} 5`,
		`fairlead_frontends{status="Done"} 5`,
		`fairlead_frontends{status="Error"} 1`,
		`fairlead_no_local_endpoints{ip_family="IPv4",traffic_policy="external"} 2`,
		`fairlead_sync_last_timestamp_seconds 1000.5`,
		`fairlead_sync_last_queued_timestamp_seconds 1001`,
		`fairlead_compared_timestamp_seconds 900`,
		`fairlead_repaired_entries_total 4`,
		`fairlead_map_entries{map="fairlead_frontends"} 7`,
		`fairlead_map_capacity{map="fairlead_frontends"} 100`,
		`fairlead_map_evictions_total{map="fairlead_frontends"} 6`,
		`fairlead_refusal_events_lost_total 8`,
		`fairlead_health_checks 2`,
		`fairlead_health_checks_failed 1`,
		`fairlead_retained_backends{service="default/kubernetes",state="retained"} 2`,
		`fairlead_retained_backends{service="kube-system/api",state="unverified"} 1`,
		`fairlead_retention_since_timestamp_seconds{service="default/kubernetes"} 980`,
		`fairlead_retention_since_timestamp_seconds{service="kube-system/api"} 970`,
		`fairlead_retention_events_total{what="retained"} 1`,
		`fairlead_retention_events_total{what="ended"} 0`,
		`fairlead_apiserver_endpoints{state="silent"} 2`,
		`fairlead_apiserver_endpoints{state="answers"} 1`,
		`fairlead_apiserver_endpoints{state="foreign"} 0`,
		`fairlead_apiserver_current_since_timestamp_seconds 800`,
		`fairlead_apiserver_last_heartbeat_timestamp_seconds 1002`,
		`fairlead_apiserver_moves_total 1`,
	} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("no line %q", line)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

func TestNothingIsSaidOfWhatNeverHappened(t *testing.T) {
	text := scrape(t, New("v1", func() (Facts, error) { return Facts{}, nil }))
	if strings.Contains(text, "\nfairlead_sync_last_timestamp_seconds") {
		t.Errorf("there is a time of the last write:\n%s", text)
	}
	// Nor of a way to the API server, where a folder of manifests is the source.
	for _, name := range []string{"fairlead_apiserver_endpoints", "fairlead_apiserver_current", "fairlead_apiserver_last", "fairlead_retained"} {
		if strings.Contains(text, "\n"+name) {
			t.Errorf("there is a %s:\n%s", name, text)
		}
	}
}

func TestWhatCannotBeReadIsLeftOut(t *testing.T) {
	m := New("v1", func() (Facts, error) { return Facts{}, errors.New("no maps") })
	m.Synced(time.Millisecond, false)
	var log strings.Builder
	w := httptest.NewRecorder()
	m.Handler(slog.New(slog.NewTextHandler(&log, nil))).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if text := w.Body.String(); w.Code != http.StatusOK || !strings.Contains(text, "fairlead_sync_duration_seconds_count 1") || strings.Contains(text, "fairlead_services") {
		t.Errorf("%d: %s", w.Code, text)
	}
	if !strings.Contains(log.String(), "no maps") {
		t.Errorf("the log does not say why: %s", log.String())
	}
}

func TestNamesAreAsPrometheusAdvises(t *testing.T) {
	problems, err := testutil.GatherAndLint(filled().registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// page is the table of metrics that users read.
const page = "../../docs/metrics.md"

const header = "| metric | labels | kube-proxy | meaning |\n| --- | --- | --- | --- |\n"

func TestThePageOfMetricsIsTrue(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, _, _ := strings.Cut(string(text), header)
	want := before + header + strings.Join(rows(t), "")
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(text) != want {
		t.Errorf("%s does not say what there is: run go test ./internal/metrics -update\nwant %s", page, want)
	}
}

var counterpart = regexp.MustCompile(`^(.*)\. kube-proxy: (.*)\.$`)

func rows(t *testing.T) []string {
	t.Helper()
	m := filled()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "fairlead_") {
			continue
		}
		found := counterpart.FindStringSubmatch(f.GetHelp())
		if found == nil {
			t.Errorf("the help of %s does not end with kube-proxy's counterpart: %q", f.GetName(), f.GetHelp())
			continue
		}
		var labels []string
		for _, label := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, label.GetName())
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s | %s |\n", f.GetName(), code(strings.Join(labels, ", ")), code(found[2]), found[1]))
	}
	if described := countDescribed(m.registry); described != len(rows) {
		t.Errorf("%d metrics are described, and %d have a value in this test", described, len(rows))
	}
	return rows
}

func countDescribed(c prometheus.Collector) int {
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		c.Describe(descs)
	}()
	n := 0
	for d := range descs {
		if strings.Contains(d.String(), `"fairlead_`) {
			n++
		}
	}
	return n
}

func code(list string) string {
	if list == "" || list == "none" {
		return ""
	}
	return "`" + strings.ReplaceAll(list, ", ", "`, `") + "`"
}
