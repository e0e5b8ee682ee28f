// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reconciler"
	"github.com/fairlead-io/fairlead/internal/reflector"
	"github.com/fairlead-io/fairlead/internal/tables"
)

// crowded is an agent with many Services of one frontend each, all in force.
func crowded(b *testing.B, services int) *Agent {
	b.Helper()
	made, err := tables.New()
	if err != nil {
		b.Fatal(err)
	}
	a := &Agent{
		cfg: Config{NodeName: "n1"}, log: slog.New(slog.DiscardHandler), tables: made,
		writer: tables.NewWriter(made, model.Node{Name: "n1"}, model.Options{}), reconciler: &reconciler.Reconciler{},
	}
	events := make([]reflector.Event, services)
	for i := range events {
		name := model.Name{Namespace: "shop", Name: fmt.Sprintf("web-%d", i)}
		events[i] = reflector.Event{Kind: reflector.KindService, Name: name, Service: &model.Service{
			Name: name, Ports: []model.ServicePort{{Protocol: model.TCP, Port: 80}},
			ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})},
		}}
	}
	a.writer.Events(events)
	for _, kind := range []reflector.Kind{reflector.KindService, reflector.KindEndpointSlice, reflector.KindNode} {
		a.writer.Listed(kind)
	}
	a.writer.Flush()
	changes, err := made.Follow()
	if err != nil {
		b.Fatal(err)
	}
	defer changes.Close()
	_, revision, _, _ := changes.Next()
	made.Report(tables.Report{Revision: revision})
	a.reconciler.Stats.Filled.Store(true)
	a.buildHealth()
	return a
}

// BenchmarkHealthAnswer is what one question about a Service costs. Its budget
// is 20 µs, however many Services there are: load balancers ask all the time.
func BenchmarkHealthAnswer(b *testing.B) {
	a := crowded(b, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		if !a.served(model.Name{Namespace: "shop", Name: "web-77"}) {
			b.Fatal("not served")
		}
	}
}

// BenchmarkRowsOfAScrape is the part of a scrape that grows with the tables.
// Its budget is 20 ms for 10,000 Services.
func BenchmarkRowsOfAScrape(b *testing.B) {
	a := crowded(b, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		snapshot := a.tables.Snapshot()
		var s api.Status
		a.addRows(&s, snapshot)
		noLocalEndpoints(snapshot)
		if s.Frontends != 10_000 || s.Pending != 0 {
			b.Fatalf("%+v", s)
		}
	}
}
