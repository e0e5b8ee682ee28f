// SPDX-License-Identifier: Apache-2.0

package healthcheck

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestHealth(t *testing.T) {
	now := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for _, c := range []struct {
		name          string
		signs         Signs
		healthy, live bool
	}{
		{"all is in force (R30)", Signs{Filled: true, Listed: ago(time.Hour)}, true, true},
		{"a change that waits is none too late yet (R30)", Signs{Filled: true, Pending: ago(PendingLimit - time.Nanosecond)}, true, true},
		{"a change that waits too long (R30)", Signs{Filled: true, Pending: ago(PendingLimit)}, false, false},
		{"the API is not heard, and what it said last is in force (R31)", Signs{Filled: true, Stale: []Stale{{Kind: "Service"}}}, true, true},
		{"before the first lists nothing is promised, and a restart would not help (R33)", Signs{}, false, true},
		{"the first lists are being written (R33)", Signs{Listed: ago(time.Second)}, false, true},
		{"the first lists do not get in force (R30)", Signs{Listed: ago(PendingLimit)}, false, false},
		{"whether the node is eligible is another matter (R30)", Signs{Filled: true, NodeEligible: false}, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if healthy, live := c.signs.Healthy(now), c.signs.Live(now); healthy != c.healthy || live != c.live {
				t.Errorf("healthy %v, live %v; want %v, %v", healthy, live, c.healthy, c.live)
			}
		})
	}
}

// The time of a bubble begins at midnight.
const (
	current = "2000-01-01T01:00:00Z"
	written = "2000-01-01T00:30:00Z"
)

func TestHealthzAndLivez(t *testing.T) {
	well := func(s *Signs) {}
	for _, c := range []struct {
		name   string
		path   string
		change func(*Signs)
		status int
		body   map[string]any
	}{
		{"healthz of a proxy that is well (R30)", "/healthz", well, 200,
			map[string]any{"lastUpdated": current, "currentTime": current, "healthy": true, "nodeEligible": true}},
		{"livez does not speak of the node (R30)", "/livez", well, 200,
			map[string]any{"lastUpdated": current, "currentTime": current, "healthy": true}},
		{"healthz of a node that leaves is 503 and says that the proxy is well (R30)", "/healthz",
			func(s *Signs) { s.NodeEligible = false }, 503,
			map[string]any{"lastUpdated": written, "currentTime": current, "healthy": true, "nodeEligible": false}},
		{"livez of a node that leaves is 200 (R30)", "/livez", func(s *Signs) { s.NodeEligible = false }, 200,
			map[string]any{"lastUpdated": current, "currentTime": current, "healthy": true}},
		{"healthz of a proxy that is stuck says when it wrote last (R30)", "/healthz",
			func(s *Signs) { s.Pending, _ = time.Parse(time.RFC3339, written) }, 503,
			map[string]any{"lastUpdated": written, "currentTime": current, "healthy": false, "nodeEligible": true}},
		{"livez of a proxy that is stuck (R30)", "/livez",
			func(s *Signs) { s.Pending, _ = time.Parse(time.RFC3339, written) }, 503,
			map[string]any{"lastUpdated": written, "currentTime": current, "healthy": false}},
		{"healthz before the first lists (R33)", "/healthz", func(s *Signs) { *s = Signs{NodeEligible: true} }, 503,
			map[string]any{"lastUpdated": "0001-01-01T00:00:00Z", "currentTime": current, "healthy": false, "nodeEligible": true}},
		{"what is not followed any more is named, with since when, why, and the missing permission (R31)", "/healthz",
			func(s *Signs) {
				since, _ := time.Parse(time.RFC3339, written)
				s.Stale = []Stale{{Kind: "Service", Since: since}, {Kind: "EndpointSlice", Since: since, Reason: "Forbidden", Missing: "list endpointslices.discovery.k8s.io"}}
			}, 200,
			map[string]any{"lastUpdated": current, "currentTime": current, "healthy": true, "nodeEligible": true, "stale": []any{
				map[string]any{"kind": "Service", "since": written},
				map[string]any{"kind": "EndpointSlice", "since": written, "reason": "Forbidden", "missing": "list endpointslices.discovery.k8s.io"},
			}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Hour)
				signs := Signs{Filled: true, NodeEligible: true}
				signs.LastUpdated, _ = time.Parse(time.RFC3339, written)
				c.change(&signs)
				counted := map[string]int{}
				handler := NewHandler(func() Signs { return signs }, func(path string, status int) { counted[fmt.Sprint(path, " ", status)]++ })
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, c.path, nil))
				var body map[string]any
				if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
					t.Fatal(err)
				}
				if w.Code != c.status || fmt.Sprint(body) != fmt.Sprint(c.body) {
					t.Errorf("got %d %v\nwant %d %v", w.Code, body, c.status, c.body)
				}
				if keys := slices.Collect(maps.Keys(counted)); len(keys) != 1 || keys[0] != fmt.Sprint(c.path, " ", c.status) {
					t.Errorf("counted %v", counted)
				}
				if h := w.Header(); h.Get("Content-Type") != "application/json" || h.Get("X-Content-Type-Options") != "nosniff" {
					t.Errorf("headers %v", h)
				}
			})
		})
	}
}

func TestNothingElseIsServed(t *testing.T) {
	handler := NewHandler(func() Signs { return Signs{} }, func(string, int) {})
	for _, path := range []string{"/", "/healthz/", "/metrics"} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}
