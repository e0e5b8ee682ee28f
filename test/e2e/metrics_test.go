// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/rig"
)

// metricsPage is what users read.
const metricsPage = "../../docs/metrics.md"

// unsaid are metrics that say nothing where there is no API server, and those
// that do while all is well.
var unsaid = regexp.MustCompile(`^fairlead_(apiserver_(endpoints|current|last)|retained_|retention_since|source_stale_since)`)

// triggered says of every slice that it comes from a change at a time.
func triggered(manifest string, at time.Time) string {
	annotation := fmt.Sprintf("annotations: {endpoints.kubernetes.io/last-change-trigger-time: %q}, labels: ", at.UTC().Format(time.RFC3339Nano))
	return strings.ReplaceAll(manifest, "labels: ", annotation)
}

func TestMetrics(t *testing.T) {
	n := startNode(t, "--compare-interval", "1s")
	pod, _ := n.client(t, "client")
	web := rig.Service{Name: "web", VIP: n.vip(), NodePort: 30080, Spec: "type: LoadBalancer, internalTrafficPolicy: Local, externalTrafficPolicy: Local, healthCheckNodePort: 32000"}

	t.Run("Service ports without local endpoints are counted by policy (R10, R11, R32)", func(t *testing.T) {
		n.Serve(t, web, rig.Ready(there))
		for _, policy := range []string{"internal", "external"} {
			for _, family := range []string{"IPv4", "IPv6"} {
				// TCP and UDP are a Service port each.
				n.wantMetric(t, fmt.Sprintf("fairlead_no_local_endpoints{ip_family=%q,traffic_policy=%q}", family, policy), "2")
			}
		}
		n.Serve(t, web, rig.AllReady(here, there)...)
		n.wantMetric(t, `fairlead_no_local_endpoints{ip_family="IPv4",traffic_policy="external"}`, "0")
	})

	t.Run("how long a change took to get here is measured, once for each (R32)", func(t *testing.T) {
		n.Write(t, "web.yaml", triggered(web.YAML(rig.AllReady(here)), time.Now()))
		const series = `fairlead_network_programming_duration_seconds_%s{ip_family="IPv4"}`
		n.wantMetric(t, fmt.Sprintf(series, "count"), "1")
		if took := n.metric(t, fmt.Sprintf(series, "sum")); strings.HasPrefix(took, "-") || took == "0" {
			t.Errorf("it took %s s", took)
		}
		// The time stays in the object, and another change says nothing of it.
		n.Write(t, "web.yaml", strings.Replace(triggered(web.YAML(rig.AllReady(here)), time.Now().Add(-time.Hour)), "30080", "30081", 1))
		n.Settle(t)
		n.wantMetric(t, fmt.Sprintf(series, "count"), "1")
	})

	t.Run("a refused connection is counted by its reason", func(t *testing.T) {
		n.Serve(t, web, rig.Ready(there))
		rig.ExpectError(t, pod, ways[0], web.VIP, rig.ServicePort, dropped)
		n.wantMetric(t, `fairlead_refused_connections_total{reason="the traffic policy is Local and no endpoint on this node is usable"}`, "1")
	})

	t.Run("when all is quiet nothing is pending, failed or stale (R31, R32)", func(t *testing.T) {
		n.Settle(t)
		for name, want := range map[string]string{
			`fairlead_changes_pending{kind="Service"}`: "0", `fairlead_changes_pending{kind="EndpointSlice"}`: "0",
			`fairlead_source_stale{kind="Service",reason="",resource="",verb=""}`: "0", `fairlead_source_synced{kind="Service"}`: "1",
			`fairlead_source_objects{kind="Service"}`: "1", `fairlead_source_objects{kind="EndpointSlice"}`: "2",
			`fairlead_frontends{status="Error"}`: "0", `fairlead_frontends{status="Pending"}`: "0",
			`fairlead_services`: "1", `fairlead_unreadable_objects`: "0", `fairlead_sync_failures_total`: "0",
		} {
			n.wantMetric(t, name, want)
		}
	})

	t.Run("what cannot be read is counted", func(t *testing.T) {
		n.Write(t, "broken.yaml", "kind: [")
		n.wantMetric(t, "fairlead_unreadable_objects", "1")
	})

	t.Run("an agent that is well has every metric of the page that does not need an API server", func(t *testing.T) {
		get(t, n.NS, "http://127.0.0.1:10256/healthz")
		page, err := os.ReadFile(metricsPage)
		if err != nil {
			t.Fatal(err)
		}
		names := regexp.MustCompile("(?m)^\\| `(fairlead_\\w+)`").FindAllStringSubmatch(string(page), -1)
		if len(names) < 20 {
			t.Fatalf("%d metrics on the page", len(names))
		}
		rig.Eventually(t, func() error {
			served := get(t, n.NS, "http://127.0.0.1:10249/metrics")
			for _, name := range names {
				if !unsaid.MatchString(name[1]) && !strings.Contains(served, "# HELP "+name[1]+" ") {
					return fmt.Errorf("%s is not served", name[1])
				}
			}
			return nil
		})
	})

	t.Run("they are for this node alone unless told otherwise", func(t *testing.T) {
		for _, from := range []*lab.NetNS{n.other, n.NS} {
			if got := get(t, from, "http://192.0.2.1:10249/metrics"); got != "ECONNREFUSED" {
				t.Errorf("from %s: %.100s", from, got)
			}
		}
		if got := get(t, n.NS, "http://127.0.0.1:10249/"); !strings.HasPrefix(got, "404 ") {
			t.Errorf("besides /metrics: %.100s", got)
		}
	})
}
