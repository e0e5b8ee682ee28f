// SPDX-License-Identifier: Apache-2.0

package reconciler_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/fairlead-io/fairlead/internal/datapath"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reconciler"
	"github.com/fairlead-io/fairlead/internal/reflector"
	"github.com/fairlead-io/fairlead/internal/tables"
	"github.com/fairlead-io/fairlead/test/lab"
)

// world makes n ClusterIP Services with as many endpoints each as asked for,
// as events that a reflector would deliver.
type world struct {
	services []*model.Service
	slices   []*model.EndpointSlice
}

func newWorld(services, endpoints int) world {
	var w world
	for i := range services {
		name := model.Name{Namespace: "ns-" + strconv.Itoa(i%100), Name: "service-" + strconv.Itoa(i)}
		w.services = append(w.services, &model.Service{
			Name: name, ResourceVersion: strconv.Itoa(i),
			ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96 + byte(i>>16), byte(i >> 8), byte(i)})},
			Ports:      []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}},
		})
		w.slices = append(w.slices, slice(name, i, endpoints))
	}
	return w
}

func slice(service model.Name, i, endpoints int) *model.EndpointSlice {
	s := &model.EndpointSlice{
		Name: model.Name{Namespace: service.Namespace, Name: service.Name + "-x7k2p"}, ResourceVersion: strconv.Itoa(i),
		Service: service.Name, Family: model.IPv4,
		Ports: []model.EndpointPort{{Name: "http", Protocol: model.TCP, Port: 8080}},
	}
	for e := range endpoints {
		at := i*endpoints + e
		s.Endpoints = append(s.Endpoints, model.Endpoint{
			Addresses: []netip.Addr{endpointAddress(at)},
			NodeName:  "n" + strconv.Itoa(at%100), Ready: true, Serving: true,
		})
	}
	return s
}

func (w world) events() []reflector.Event {
	now := time.Now()
	events := make([]reflector.Event, 0, len(w.services)+len(w.slices))
	for _, s := range w.services {
		events = append(events, reflector.Event{Kind: reflector.KindService, Name: s.Name, ResourceVersion: s.ResourceVersion, Received: now, Service: s})
	}
	for _, s := range w.slices {
		events = append(events, reflector.Event{Kind: reflector.KindEndpointSlice, Name: s.Name, ResourceVersion: s.ResourceVersion, Received: now, Slice: s})
	}
	return events
}

// pipeline is the agent between the reflector and the kernel, on real maps.
type pipeline struct {
	writer   *tables.Writer
	tables   *tables.Tables
	datapath *datapath.Datapath
	filled   chan struct{}
	stop     func()
}

func newPipeline(b testing.TB, pinPath string) *pipeline {
	p := &pipeline{filled: make(chan struct{})}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	var err error
	p.datapath, err = datapath.Open(datapath.Config{PinPath: pinPath, SocketMode: datapath.SocketOff, Sizes: datapath.DefaultSizes()}, log)
	if err != nil {
		b.Fatal(err)
	}
	if p.tables, err = tables.New(); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := p.tables.Start(ctx); err != nil {
		b.Fatal(err)
	}
	p.writer = tables.NewWriter(p.tables, model.Node{Name: "n1"}, model.Options{ProxyName: "fairlead"})
	r, err := reconciler.New(reconciler.Config{
		Tables: p.tables, Datapath: p.datapath, Log: log, CompareInterval: time.Hour,
		Filled: func() error { close(p.filled); return nil },
	})
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan struct{}, 2)
	go func() { p.writer.Run(ctx); done <- struct{}{} }()
	go func() { r.Run(ctx); done <- struct{}{} }()
	p.stop = func() {
		cancel()
		<-done
		<-done
		p.datapath.Close()
	}
	return p
}

func (p *pipeline) fill(events []reflector.Event) {
	p.writer.Events(events)
	p.writer.Listed(reflector.KindNode)
	p.writer.Listed(reflector.KindService)
	p.writer.Listed(reflector.KindEndpointSlice)
	<-p.filled
}

// Clock: from the reflector handing over decoded objects, all in one list, to
// the last one being in the kernel's maps. Budgets on two cores, at the Go
// runtime's default GOGC of 100:
//
//	services=50000/endpoints=1    300 ms
//	services=10000/endpoints=1     65 ms
//	services=10000/endpoints=10   150 ms, RSS under 200 MB
func BenchmarkFill(b *testing.B) {
	for _, size := range []struct{ services, endpoints int }{{10000, 1}, {50000, 1}, {10000, 10}} {
		b.Run(fmt.Sprintf("services=%d/endpoints=%d", size.services, size.endpoints), func(b *testing.B) {
			w := newWorld(size.services, size.endpoints)
			events := w.events()
			bpffs := lab.NewBPFFS(b)
			var total, mapped int
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				p := newPipeline(b, filepath.Join(bpffs, strconv.Itoa(i)))
				debug.FreeOSMemory()
				b.StartTimer()
				p.fill(events)
				b.StopTimer()
				total, mapped = rss(b)
				p.stop()
				b.StartTimer()
			}
			b.ReportMetric(float64(total)/1e6, "RSS-MB")
			b.ReportMetric(float64(mapped)/1e6, "of-it-shared-MB")
		})
	}
}

// rss is the process's resident memory, and what of it is shared: that is
// where mapped maps are counted.
func rss(b *testing.B) (total, shared int) {
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(statm))
	total, _ = strconv.Atoi(fields[1])
	shared, _ = strconv.Atoi(fields[2])
	return total * os.Getpagesize(), shared * os.Getpagesize()
}

// rolled is the slice of a Service in which one of the endpoints has another
// address than in the world before, as client-go hands it to the reflector. One
// object serves for all, since the converter copies what it needs.
type rolled struct{ object discoveryv1.EndpointSlice }

func newRolled(endpoints int) *rolled {
	name, port, protocol, yes, no := "http", int32(8080), corev1.ProtocolTCP, true, false
	r := &rolled{}
	r.object.AddressType = discoveryv1.AddressTypeIPv4
	r.object.Ports = []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}}
	for range endpoints {
		node := ""
		r.object.Endpoints = append(r.object.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{""}, NodeName: &node,
			Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no},
		})
	}
	return r
}

// of makes it the slice of the i-th Service at a version.
func (r *rolled) of(service model.Name, i, version int) *discoveryv1.EndpointSlice {
	o := &r.object
	o.Namespace, o.Name, o.ResourceVersion = service.Namespace, service.Name+"-x7k2p", strconv.Itoa(version)
	o.Labels = map[string]string{discoveryv1.LabelServiceName: service.Name}
	for e := range o.Endpoints {
		at := i*len(o.Endpoints) + e
		o.Endpoints[e].Addresses[0] = endpointAddress(at).String()
		*o.Endpoints[e].NodeName = "n" + strconv.Itoa(at%100)
	}
	o.Endpoints[0].Addresses[0] = netip.AddrFrom4([4]byte{192, 168, byte(version >> 8), byte(version)}).String()
	return o
}

func endpointAddress(at int) netip.Addr {
	return netip.AddrFrom4([4]byte{172, 16 + byte(at>>16), byte(at >> 8), byte(at)})
}

// Clock: from the moment at which a decoded object is due at the reflector,
// through its conversion to the stored word: the counter of stores is raised
// right after it. Rate: 1 000 changes a second of random Services, evenly
// spaced, each a pod that another one replaces; a change that waits for the one
// before it is late from when it was due. GOGC 100, one processor more than
// cores, as in the agent. Budget: p99 under 1 ms.
func BenchmarkChangeAt10000Services(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	datapath.SpareProcessor()
	const services = 10000
	w := newWorld(services, 10)
	p := newPipeline(b, filepath.Join(lab.NewBPFFS(b), "fairlead"))
	defer p.stop()
	p.fill(w.events())
	var convert reflector.Converter
	changed := newRolled(10)
	var latencies []time.Duration
	next := time.Now()
	var version uint64
	var err error
	changes := 0
	for b.Loop() {
		changes++
		i := rand.IntN(services)
		object := changed.of(w.services[i].Name, i, changes)
		next = next.Add(time.Millisecond)
		start := next
		if wait := time.Until(next); wait > 0 {
			time.Sleep(wait)
			start = time.Now() // the clock's own delay is not the pipeline's
		}
		before := p.datapath.Stores()
		event, problems := convert.Event(object)
		if len(problems) > 0 {
			b.Fatal(problems)
		}
		p.writer.Events([]reflector.Event{event})
		// To spin would take a core away: the report that follows the store
		// wakes, a little later.
		for p.datapath.Stores() == before {
			if version, err = p.tables.Wait(b.Context(), version); err != nil {
				b.Fatal(err)
			}
		}
		latencies = append(latencies, time.Since(start))
	}
	slices.Sort(latencies)
	at := func(q float64) float64 { return float64(latencies[int(q*float64(len(latencies)-1))].Microseconds()) }
	b.ReportMetric(at(0.5), "p50-µs")
	b.ReportMetric(at(0.99), "p99-µs")
	b.ReportMetric(at(1), "max-µs")
}
