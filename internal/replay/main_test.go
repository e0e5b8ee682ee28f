// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
	"github.com/fairlead-io/fairlead/internal/tables"
)

var (
	services       = kinds[reflector.KindService]
	endpointSlices = kinds[reflector.KindEndpointSlice]
	nodes          = kinds[reflector.KindNode]
	began          = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	web            = model.Name{Namespace: "default", Name: "web"}
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// at is a moment some seconds after the beginning.
func at(seconds float64) time.Time { return began.Add(time.Duration(seconds * float64(time.Second))) }

// event is one of an object in the namespace default.
func event(seconds float64, t journal.Type, kind journal.Kind, name, content string) journal.Event {
	e := journal.Event{
		Time: at(seconds), Kind: kind, Namespace: "default", Name: name, UID: name, Type: t,
		ResourceVersion: fmt.Sprint(int(seconds * 10)), Manager: "tester", Content: json.RawMessage(content),
	}
	if kind == nodes {
		e.Namespace = ""
	}
	return e
}

// service has port 80/TCP at each address; the first is its ClusterIP, others
// are external. It is older the later its name comes.
func service(name string, addresses ...string) string {
	external := `[]`
	if len(addresses) > 1 {
		external = `["` + strings.Join(addresses[1:], `","`) + `"]`
	}
	year := 2026
	if len(name) > 0 {
		year -= int(name[0] - 'a')
	}
	return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"default","creationTimestamp":"%d-01-01T00:00:00Z"},
		"spec":{"clusterIP":%q,"externalIPs":%s,"ports":[{"port":80,"protocol":"TCP"}]}}`, name, year, addresses[0], external)
}

// slice is of a Service, with endpoints that are ready on port 8080.
func slice(name, owner string, endpoints ...string) string {
	var texts []string
	for _, a := range endpoints {
		texts = append(texts, fmt.Sprintf(`{"addresses":[%q],"conditions":{"ready":true}}`, a))
	}
	return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"default","labels":{"kubernetes.io/service-name":%q}},
		"addressType":"IPv4","endpoints":[%s],"ports":[{"port":8080,"protocol":"TCP"}]}`, name, owner, strings.Join(texts, ","))
}

func node(name, zone, address string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"topology.kubernetes.io/zone":%q}},"status":{"addresses":[{"type":"InternalIP","address":%q}]}}`, name, zone, address)
}

// lists are those of a world with the Service web, which has one endpoint.
func lists() []journal.Event {
	return []journal.Event{
		event(0, journal.Listed, services, "web", service("web", "10.96.0.1")),
		event(0.1, journal.Listed, endpointSlices, "web-1", slice("web-1", "web", "10.0.1.1")),
		event(0.2, journal.Listed, nodes, "n1", node("n1", "a", "192.0.2.1")),
	}
}

// recorded makes a journal of events and gaps.
func recorded(t testing.TB, events []journal.Event, gaps ...journal.Gap) *journal.Journal {
	t.Helper()
	j, err := journal.Create(filepath.Join(t.TempDir(), "j"), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	if err := j.Append(t.Context(), events); err != nil {
		t.Fatal(err)
	}
	for _, g := range gaps {
		if err := j.AppendGap(t.Context(), g); err != nil {
			t.Fatal(err)
		}
	}
	return j
}

// watched is an engine of the node n1 with what it tells.
type watched struct {
	*Engine
	told []string
}

func (w *watched) observe(s Step) {
	for _, c := range s.Changes {
		before, after := CountBackends(c.Before), CountBackends(c.After)
		w.told = append(w.told, fmt.Sprintf("%s %s %d+%d→%d+%d", s.Time.Sub(began), c.Service.Name, before.Own, before.Retained, after.Own, after.Retained))
	}
}

func newWatched(t testing.TB, limit time.Duration) *watched {
	t.Helper()
	w := &watched{}
	var err error
	w.Engine, err = New(Options{
		Node: model.Node{Name: "n1"}, NodeRecorded: true, Observe: w.observe,
		Retention: tables.Retention{Services: []model.Name{web}, Limit: limit},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

func cancelled(t testing.TB) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx, cancel
}
