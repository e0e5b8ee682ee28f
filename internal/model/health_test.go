// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// balanced is a Service that asks for a health check.
func balanced(changes ...func(*Service)) *Service {
	return service(append([]func(*Service){func(s *Service) {
		s.Type, s.ExternalTrafficPolicy, s.HealthCheckNodePort = ServiceLoadBalancer, PolicyLocal, 32000
	}}, changes...)...)
}

func TestWhichServicesAskForAHealthCheck(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Service)
		asks   bool
	}{
		{"a load balancer with externalTrafficPolicy Local does (R29)", func(*Service) {}, true},
		{"with policy Cluster every node serves, and none is asked (R29)", func(s *Service) { s.ExternalTrafficPolicy = PolicyCluster }, false},
		{"a NodePort Service has no load balancer (R29)", func(s *Service) { s.Type = ServiceNodePort }, false},
		{"without a port nobody can ask (R29)", func(s *Service) { s.HealthCheckNodePort = 0 }, false},
		{"one of another proxy is answered there (R1, R29)", func(s *Service) { s.HasProxyName, s.ProxyName = true, "other" }, false},
		{"one without a clusterIP is not served (R2, R29)", func(s *Service) { s.ClusterIPs = nil }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			check, asks := HealthCheckOf(balanced(c.change), nil, &thisNode, &Options{})
			if asks != c.asks || asks && check.Port != 32000 {
				t.Errorf("got %+v, %v; want %v", check, asks, c.asks)
			}
		})
	}
}

func TestLocalEndpointsAreCountedAsKubeProxyDoes(t *testing.T) {
	dual := func(s *Service) { s.ClusterIPs = addrs("10.96.0.1", "fd00::1") }
	six := func(s *EndpointSlice) { s.Family = IPv6 }
	for _, c := range []struct {
		name   string
		change func(*Service)
		slices []*EndpointSlice
		want   int
	}{
		{"a ready endpoint on this node counts (R29)", nil,
			[]*EndpointSlice{slice("a", ready("10.0.1.1", "n1"))}, 1},
		{"one on another node, or on none, does not (R29, R42)", nil,
			[]*EndpointSlice{slice("a", ready("10.0.1.1", "n2"), ready("10.0.1.2", ""))}, 0},
		{"one that only serves while it terminates does not (R29)", nil,
			[]*EndpointSlice{slice("a", endpointAt("10.0.1.1", "n1", "serving", "terminating"))}, 0},
		{"one that is ready although it terminates does, as publishNotReadyAddresses has it (R8)", nil,
			[]*EndpointSlice{slice("a", endpointAt("10.0.1.1", "n1", "ready", "serving", "terminating"))}, 1},
		{"hints do not matter here (R15)", nil,
			[]*EndpointSlice{slice("a", ready("10.0.1.1", "n1", "zone=b", "node=n2"))}, 1},
		{"one in two slices counts once (R4)", nil,
			[]*EndpointSlice{slice("a", ready("10.0.1.1", "n1")), slice("b", ready("10.0.1.1", "n1"))}, 1},
		{"one that is ready on some port counts, and once (R5)", nil,
			[]*EndpointSlice{
				slice("a", endpointAt("10.0.1.1", "n1")),
				with(slice("b", ready("10.0.1.1", "n1")), func(s *EndpointSlice) {
					s.Ports = []EndpointPort{{Name: "a", Protocol: TCP, Port: 1}, {Name: "b", Protocol: UDP, Port: 2}}
				}),
			}, 1},
		{"a slice without ports has nothing that could serve", nil,
			[]*EndpointSlice{with(slice("a", ready("10.0.1.1", "n1")), func(s *EndpointSlice) { s.Ports = nil })}, 0},
		{"slices of other Services do not count (R3)", nil,
			[]*EndpointSlice{
				with(slice("a", ready("10.0.1.1", "n1")), func(s *EndpointSlice) { s.Service = "web-2" }),
				with(slice("a", ready("10.0.1.2", "n1")), func(s *EndpointSlice) { s.Namespace = "other" }),
			}, 0},
		{"a pod of two families is one endpoint (R26)", dual,
			[]*EndpointSlice{
				slice("a", ready("10.0.1.1", "n1"), ready("10.0.1.2", "n1")),
				with(slice("b", ready("fd00::1:1", "n1")), six),
			}, 2},
		{"a family that the Service does not have does not count (R26)", nil,
			[]*EndpointSlice{with(slice("b", ready("fd00::1:1", "n1")), six)}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			svc := balanced()
			if c.change != nil {
				c.change(svc)
			}
			check, asks := HealthCheckOf(svc, c.slices, &thisNode, &Options{})
			if !asks || check.LocalEndpoints != c.want {
				t.Errorf("got %+v, %v; want %d", check, asks, c.want)
			}
		})
	}
}

func TestANodeWithoutANameHasNoLocalEndpoints(t *testing.T) {
	check, _ := HealthCheckOf(balanced(), []*EndpointSlice{slice("a", ready("10.0.1.1", ""))}, &Node{}, &Options{})
	if check.LocalEndpoints != 0 {
		t.Errorf("%d local endpoints (R42)", check.LocalEndpoints)
	}
}

// However endpoints are spread over slices, the count is that of the distinct
// addresses that stand there ready and local.
func TestTheCountIsThatOfDistinctAddresses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		counted := map[netip.Addr]bool{}
		var all []*EndpointSlice
		for i := range rapid.IntRange(0, 4).Draw(t, "slices") {
			s := slice(fmt.Sprint(i))
			for range rapid.IntRange(0, 6).Draw(t, "endpoints") {
				e := endpointAt(fmt.Sprintf("10.0.1.%d", rapid.IntRange(1, 5).Draw(t, "address")), rapid.SampledFrom([]string{"n1", "n2", ""}).Draw(t, "node"))
				e.Ready, e.Serving = rapid.Bool().Draw(t, "ready"), rapid.Bool().Draw(t, "serving")
				e.Terminating = rapid.Bool().Draw(t, "terminating")
				s.Endpoints = append(s.Endpoints, e)
				if e.Ready && e.NodeName == thisNode.Name {
					counted[e.Addresses[0]] = true
				}
			}
			all = append(all, s)
		}
		check, _ := HealthCheckOf(balanced(), rapid.Permutation(all).Draw(t, "order"), &thisNode, &Options{})
		if check.LocalEndpoints != len(counted) {
			t.Errorf("%d local endpoints, want %d", check.LocalEndpoints, len(counted))
		}
	})
}

func TestServicePortsWithoutLocalEndpoints(t *testing.T) {
	elsewhere := []*EndpointSlice{
		slice("a", ready("10.0.2.1", "n2")),
		with(slice("b", ready("fd00::2:1", "n2")), func(s *EndpointSlice) { s.Family = IPv6 }),
	}
	balancer := func(s *Service) {
		s.ClusterIPs = addrs("10.96.0.1", "fd00:96::1")
		s.LoadBalancerIngress = vips("198.18.0.1")
		s.Ports[0].NodePort = 30080
	}
	for _, c := range []struct {
		name   string
		change func(*Service)
		slices []*EndpointSlice
		want   string
	}{
		{"a port counts once, whatever addresses it has (R11, R32)", func(*Service) {}, elsewhere, "external IPv4, external IPv6"},
		{"both policies count apart (R14, R32)", func(s *Service) { s.InternalTrafficPolicy = PolicyLocal }, elsewhere,
			"internal IPv4, external IPv4, internal IPv6, external IPv6"},
		{"policy Cluster is never short of local ones (R32)", func(s *Service) { s.ExternalTrafficPolicy = PolicyCluster }, elsewhere, ""},
		{"with none anywhere it is no matter of the policy (R13, R32)", func(*Service) {}, nil, ""},
		{"a local one is enough (R32)", func(*Service) {}, append(elsewhere, slice("c", ready("10.0.1.1", "n1"))), "external IPv6"},
		{"two ports are two (R32)", func(s *Service) {
			s.ClusterIPs = s.ClusterIPs[:1]
			s.Ports = []ServicePort{{Name: "a", Protocol: TCP, Port: 80, NodePort: 30080}, {Name: "b", Protocol: TCP, Port: 81, NodePort: 30081}}
		}, []*EndpointSlice{with(elsewhere[0], func(s *EndpointSlice) {
			s.Ports = []EndpointPort{{Name: "a", Protocol: TCP, Port: 1}, {Name: "b", Protocol: TCP, Port: 2}}
		})}, "external IPv4, external IPv4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			compiled := Compile(balanced(balancer, c.change), c.slices, &thisNode, &Options{})
			var counted []string
			compiled.NoLocalEndpoints(func(external bool, family Family) {
				traffic := "internal"
				if external {
					traffic = "external"
				}
				counted = append(counted, fmt.Sprint(traffic, " ", family))
			})
			if got := strings.Join(counted, ", "); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
