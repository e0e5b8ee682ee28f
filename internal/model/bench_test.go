// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
)

func nthAddr(base string, n int) netip.Addr {
	a := netip.MustParseAddr(base).As4()
	a[1] += byte(n >> 16)
	a[2] += byte(n >> 8)
	a[3] += byte(n)
	return netip.AddrFrom4(a)
}

// BenchmarkCompileSmall has a budget of 1.5 µs, and of 4 allocations, which
// TestAllocations keeps.
func BenchmarkCompileSmall(b *testing.B) {
	svc, in, opts := service(), []*EndpointSlice{slice("web-1", ready("10.0.1.1", "n1"))}, &Options{}
	b.ReportAllocs()
	for b.Loop() {
		Compile(svc, in, &thisNode, opts)
	}
}

func TestAllocations(t *testing.T) {
	svc, in, opts := service(), []*EndpointSlice{slice("web-1", ready("10.0.1.1", "n1"))}, &Options{}
	one, two := Compile(svc, in, &thisNode, opts), Compile(svc, in, &thisNode, opts)
	for _, c := range []struct {
		name string
		want float64
		run  func()
	}{
		{"compiling a small Service allocates its claims, sets, backends and slice names", 4, func() { Compile(svc, in, &thisNode, opts) }},
		{"comparing allocates nothing", 0, func() { one.Equal(&two) }},
		{"shadows that do not fall allocate nothing", 0, func() { one.WithShadows(func(Spot) (Name, bool) { return svc.Name, true }, svc.Name) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := testing.AllocsPerRun(100, c.run); got != c.want {
				t.Errorf("%v allocations, want %v", got, c.want)
			}
		})
	}
}

// BenchmarkCompileWorld has a budget of 75 ms: 50 000 Services of one endpoint.
func BenchmarkCompileWorld(b *testing.B) {
	const n = 50_000
	services, in := make([]*Service, n), make([][]*EndpointSlice, n)
	for i := range n {
		name := fmt.Sprintf("web-%d", i)
		services[i] = service(func(s *Service) { s.Name.Name, s.ClusterIPs = name, []netip.Addr{nthAddr("10.96.0.0", i)} })
		in[i] = []*EndpointSlice{with(slice(name+"-1", ready(nthAddr("10.0.0.0", i).String(), "n1")), func(s *EndpointSlice) { s.Service = name })}
	}
	compiled := make([]Compiled, n)
	b.ReportAllocs()
	for b.Loop() {
		for i := range n {
			compiled[i] = Compile(services[i], in[i], &thisNode, &Options{})
		}
	}
}

func largeService(n int) (*Service, []*EndpointSlice) {
	svc := service(func(s *Service) {
		s.Type, s.LoadBalancerIngress, s.ExternalTrafficPolicy = ServiceLoadBalancer, vips("203.0.113.1"), PolicyLocal
		s.Ports[0].NodePort = 30080
	})
	order := rand.New(rand.NewPCG(1, 2)).Perm(n)
	var in []*EndpointSlice
	for first := 0; first < n; first += 100 {
		s := slice(fmt.Sprintf("web-%d", first))
		for _, i := range order[first:min(n, first+100)] {
			s.Endpoints = append(s.Endpoints, ready(nthAddr("10.0.0.0", i).String(), fmt.Sprintf("n%d", i%100)))
		}
		in = append(in, s)
	}
	return svc, in
}

// BenchmarkCompileLarge has a budget of 15 ms: 10 000 endpoints in 100 slices,
// in no order, behind all types of address.
func BenchmarkCompileLarge(b *testing.B) {
	svc, in := largeService(10_000)
	b.ReportAllocs()
	for b.Loop() {
		Compile(svc, in, &thisNode, &Options{})
	}
}

// BenchmarkEqualLarge has a budget of 3 ms and no allocation: two compilations
// of 10 000 endpoints, which share no memory.
func BenchmarkEqualLarge(b *testing.B) {
	svc, in := largeService(10_000)
	one, two := Compile(svc, in, &thisNode, &Options{}), Compile(svc, in, &thisNode, &Options{})
	b.ReportAllocs()
	for b.Loop() {
		if !one.Equal(&two) {
			b.Fatal("equal compilations differ")
		}
	}
}

// BenchmarkResolve has a budget of 50 ms: 50 000 Services with one spot each.
func BenchmarkResolve(b *testing.B) {
	world := make([]Candidate, 50_000)
	for i := range world {
		svc := service(func(s *Service) {
			s.Name.Name, s.ClusterIPs = fmt.Sprintf("web-%d", i), []netip.Addr{nthAddr("10.96.0.0", i)}
		})
		world[i] = Candidate{Contender{Service: svc.Name}, Compile(svc, nil, &thisNode, &Options{})}
	}
	b.ReportAllocs()
	for b.Loop() {
		Resolve(world)
	}
}

// BenchmarkHealthCheckOf counts the local endpoints among 1000, of which a node
// has ten. Its budget is 20 µs: it runs for each change of such a Service.
func BenchmarkHealthCheckOf(b *testing.B) {
	svc, opts := balanced(), &Options{}
	in := slice("web-1")
	for i := range 1000 {
		in.Endpoints = append(in.Endpoints, ready(nthAddr("10.0.0.1", i).String(), fmt.Sprintf("n%d", i%100)))
	}
	b.ReportAllocs()
	for b.Loop() {
		if check, _ := HealthCheckOf(svc, []*EndpointSlice{in}, &thisNode, opts); check.LocalEndpoints != 10 {
			b.Fatal(check)
		}
	}
}
