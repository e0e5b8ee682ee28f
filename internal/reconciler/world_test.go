// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
	"github.com/fairlead-io/fairlead/internal/tables"
	"github.com/fairlead-io/fairlead/test/history"
)

// world is the real tables between a test that plays the source, and a
// reconciler that writes to the kernel of the tests.
type world struct {
	*kernel
	tables     *tables.Tables
	writer     *tables.Writer
	reconciler *Reconciler
	filled     int
	fillError  error
	restored   int
	earlyError error       // of Restored
	tried      func(Batch) // hears of each batch, unless nil
}

func newWorld(t reporter, k *kernel) *world {
	t.Helper()
	tab, err := tables.New()
	if err != nil {
		t.Fatalf("%v", err)
	}
	w := &world{kernel: k, tables: tab, writer: tables.NewWriter(tab, history.NewWorld().Node, model.Options{})}
	w.reconciler, err = New(Config{
		Tables: tab, Datapath: k, Log: slog.New(slog.DiscardHandler), CompareInterval: time.Minute,
		Filled: func() error {
			k.mu.Lock()
			defer k.mu.Unlock()
			if !k.pruned {
				t.Fatalf("Filled is called before Prune")
			}
			w.filled++
			return w.fillError
		},
		Restored: func() error {
			k.mu.Lock()
			defer k.mu.Unlock()
			if k.pruned || w.filled > 0 {
				t.Fatalf("Restored is called after the first fill")
			}
			if len(k.elements) == 0 {
				t.Fatalf("Restored is called although nothing is written")
			}
			w.restored++
			return w.earlyError
		},
		Tried: func(b Batch) {
			if w.tried != nil {
				w.tried(b)
			}
		},
	})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return w
}

// list says that the source has told everything.
func (w *world) list() {
	for kind := reflector.KindService; kind <= reflector.KindNode; kind++ {
		w.writer.Listed(kind)
	}
}

// put tells that objects are there, in one batch, and makes rows of them.
func (w *world) put(objects ...any) {
	var events []reflector.Event
	for _, o := range objects {
		switch o := o.(type) {
		case *model.Service:
			events = append(events, reflector.Event{Kind: reflector.KindService, Name: o.Name, Service: o})
		case *model.EndpointSlice:
			events = append(events, reflector.Event{Kind: reflector.KindEndpointSlice, Name: o.Name, Slice: o})
		}
	}
	w.writer.Events(events)
	w.writer.Flush()
}

func (w *world) remove(names ...string) {
	var events []reflector.Event
	for _, name := range names {
		events = append(events, reflector.Event{Kind: reflector.KindService, Name: inDefault(name)})
	}
	w.writer.Events(events)
	w.writer.Flush()
}

// statuses are the status and error of each frontend, a line each.
func (w *world) statuses() []string {
	lines := []string{}
	snapshot := w.tables.Snapshot()
	for row := range snapshot.Services() {
		for _, c := range row.Compiled.Claims {
			state, message, _ := snapshot.Status(row, c.Key)
			line := fmt.Sprintf("%s %s %s", row.Name.Name, c.Key, state)
			if message != "" {
				line += ": " + message
			}
			lines = append(lines, line)
		}
	}
	return lines
}

// fails makes a kind of call fail until the fault is taken away.
func (w *world) fails(method string) {
	w.change(func() {
		w.fault = func(m string) error {
			if m == method {
				return errFault
			}
			return nil
		}
	})
}

func inDefault(name string) model.Name { return model.Name{Namespace: "default", Name: name} }

// service is a Service with one ClusterIP 10.96.0.n and port 80; the first
// letters of the alphabet name the older ones.
func service(name string, n byte, changes ...func(*model.Service)) *model.Service {
	s := &model.Service{
		Name:       inDefault(name),
		ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, n})},
		Ports:      []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}},
	}
	for _, change := range changes {
		change(s)
	}
	return s
}

// endpoints is the slice of a Service with the endpoints 10.0.0.n.
func endpoints(service string, ns ...byte) *model.EndpointSlice {
	s := &model.EndpointSlice{
		Name: inDefault(service + "-s1"), Service: service, Family: model.IPv4,
		Ports: []model.EndpointPort{{Name: "http", Protocol: model.TCP, Port: 8080}},
	}
	for _, n := range ns {
		s.Endpoints = append(s.Endpoints, model.Endpoint{
			Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, n})}, NodeName: "n1", Ready: true, Serving: true,
		})
	}
	return s
}

func nodePort(s *model.Service) {
	s.Type, s.Ports[0].NodePort = model.ServiceNodePort, 30080
}

func local(s *model.Service) { s.ExternalTrafficPolicy = model.PolicyLocal }

func externalIP(last byte) func(*model.Service) {
	return func(s *model.Service) {
		s.ExternalIPs = append(s.ExternalIPs, netip.AddrFrom4([4]byte{192, 0, 2, last}))
	}
}

// expect compares lines.
func expect(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
