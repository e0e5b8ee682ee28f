// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/netip"
	"strings"
	"testing"
)

func TestIgnored(t *testing.T) {
	label := func(value string) func(*Service) {
		return func(s *Service) { s.HasProxyName, s.ProxyName = true, value }
	}
	for _, c := range []struct {
		name string
		svc  *Service
		opts Options
		want string // a part of the reason; "" = served
	}{
		{"a plain Service is served", service(), Options{}, ""},
		{"a Service of another proxy is left to it (R1)", service(label("other")), Options{}, `leaves it to the proxy "other"`},
		{"an empty proxy name is another proxy's (R1)", service(label("")), Options{}, `leaves it to the proxy ""`},
		{"a Service labelled with our name is served (R1)", service(label("fairlead")), Options{}, ""},
		{"the name of the proxy can be chosen (R1)", service(label("mine")), Options{ProxyName: "mine"}, ""},
		{"a Service with the headless label has no frontends, though it has a clusterIP (R2)", service(func(s *Service) { s.Headless = true }), Options{}, "service.kubernetes.io/headless"},
		{"a headless Service has no frontends (R2)", service(func(s *Service) { s.ClusterIPs = nil }), Options{}, "headless"},
		{"an ExternalName Service has no frontends, even with a clusterIP (R2)", service(func(s *Service) { s.Type = ServiceExternalName }), Options{}, "ExternalName"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Ignored(c.svc, &c.opts)
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("the reason is %q, want %q in it", got, c.want)
			}
			compiled := Compile(c.svc, []*EndpointSlice{slice("web-1", ready("10.0.1.1", "n1"))}, &thisNode, &c.opts)
			if zero := compiled.Sets == nil && compiled.Claims == nil; zero != (c.want != "") {
				t.Errorf("the Service compiles to %v", describe(&compiled))
			}
		})
	}
}

func TestCompileAddresses(t *testing.T) {
	two := []*EndpointSlice{slice("web-1", ready("10.0.1.1", "n1"), ready("10.0.2.1", "n2"))}
	far := []*EndpointSlice{slice("web-1", ready("10.0.2.1", "n2"))}
	const both = "forward 10.0.1.1:8080 10.0.2.1:8080"
	const elsewhere = " is Local and no endpoint on this node is usable (1 elsewhere)"
	// everywhere has an address of every type.
	everywhere := func(s *Service) {
		s.Type = ServiceLoadBalancer
		s.Ports[0].NodePort = 30080
		s.ExternalIPs = addrs("198.51.100.1")
		s.LoadBalancerIngress = vips("203.0.113.1")
	}
	externalLocal := func(s *Service) { s.ExternalTrafficPolicy = PolicyLocal }
	internalLocal := func(s *Service) { s.InternalTrafficPolicy = PolicyLocal }

	runCases(t, []compileCase{
		{
			name:   "under policy Cluster each address has one row for all traffic (R14, R23)",
			svc:    service(everywhere),
			slices: two,
			want: []string{
				"0.0.0.0:30080/TCP all NodePort " + both,
				"10.96.0.1:80/TCP all ClusterIP " + both,
				"198.51.100.1:80/TCP all ExternalIP " + both,
				"203.0.113.1:80/TCP all LoadBalancer " + both,
			},
		}, {
			name:   "externalTrafficPolicy Local binds traffic from outside only (R11, R12, R41)",
			svc:    service(everywhere, externalLocal),
			slices: two,
			want: []string{
				"0.0.0.0:30080/TCP internal NodePort " + both,
				"0.0.0.0:30080/TCP external NodePort forward 10.0.1.1:8080",
				"10.96.0.1:80/TCP all ClusterIP " + both,
				"198.51.100.1:80/TCP internal ExternalIP " + both,
				"198.51.100.1:80/TCP external ExternalIP forward 10.0.1.1:8080",
				"203.0.113.1:80/TCP internal LoadBalancer " + both,
				"203.0.113.1:80/TCP external LoadBalancer forward 10.0.1.1:8080",
			},
		}, {
			name:   "externalTrafficPolicy Local with none here drops what comes from outside (R11, R12)",
			svc:    service(everywhere, externalLocal),
			slices: far,
			want: []string{
				"0.0.0.0:30080/TCP internal NodePort forward 10.0.2.1:8080",
				"0.0.0.0:30080/TCP external NodePort drop: externalTrafficPolicy" + elsewhere,
				"10.96.0.1:80/TCP all ClusterIP forward 10.0.2.1:8080",
				"198.51.100.1:80/TCP internal ExternalIP forward 10.0.2.1:8080",
				"198.51.100.1:80/TCP external ExternalIP drop: externalTrafficPolicy" + elsewhere,
				"203.0.113.1:80/TCP internal LoadBalancer forward 10.0.2.1:8080",
				"203.0.113.1:80/TCP external LoadBalancer drop: externalTrafficPolicy" + elsewhere,
			},
		}, {
			name:   "internalTrafficPolicy Local binds the ClusterIP only (R10, R14)",
			svc:    service(internalLocal, func(s *Service) { s.Type, s.Ports[0].NodePort = ServiceNodePort, 30080 }),
			slices: far,
			want: []string{
				"0.0.0.0:30080/TCP all NodePort forward 10.0.2.1:8080",
				"10.96.0.1:80/TCP all ClusterIP drop: internalTrafficPolicy" + elsewhere,
			},
		}, {
			name:   "both policies Local: traffic from inside to an external address still takes all (R12, R14)",
			svc:    service(internalLocal, externalLocal, func(s *Service) { s.ExternalIPs = addrs("198.51.100.1") }),
			slices: far,
			want: []string{
				"10.96.0.1:80/TCP all ClusterIP drop: internalTrafficPolicy" + elsewhere,
				"198.51.100.1:80/TCP internal ExternalIP forward 10.0.2.1:8080",
				"198.51.100.1:80/TCP external ExternalIP drop: externalTrafficPolicy" + elsewhere,
			},
		}, {
			name:   "the affinity timeout stands on every row, and has the API's maximum (R18)",
			svc:    service(func(s *Service) { s.AffinitySeconds, s.ExternalIPs = 90000, addrs("198.51.100.1") }),
			slices: far,
			want: []string{
				"10.96.0.1:80/TCP all ClusterIP forward 10.0.2.1:8080 affinity 86400",
				"198.51.100.1:80/TCP all ExternalIP forward 10.0.2.1:8080 affinity 86400",
			},
		}, {
			name: "an ingress of ipMode Proxy is not programmed (R21)",
			svc: service(func(s *Service) {
				s.Type, s.LoadBalancerIngress = ServiceLoadBalancer, vips("203.0.113.1", "203.0.113.2")
				s.LoadBalancerIngress[0].Proxy = true
			}),
			slices: far,
			want: []string{
				"10.96.0.1:80/TCP all ClusterIP forward 10.0.2.1:8080",
				"203.0.113.2:80/TCP all LoadBalancer forward 10.0.2.1:8080",
			},
		}, {
			name:   "source ranges hold on VIPs, not on ClusterIP, NodePort and externalIP (R22)",
			svc:    service(everywhere, func(s *Service) { s.SourceRanges = prefixes("10.1.0.0/16", "fd01::/64") }),
			slices: far,
			want: []string{
				"0.0.0.0:30080/TCP all NodePort forward 10.0.2.1:8080",
				"10.96.0.1:80/TCP all ClusterIP forward 10.0.2.1:8080",
				"198.51.100.1:80/TCP all ExternalIP forward 10.0.2.1:8080",
				"203.0.113.1:80/TCP all LoadBalancer forward 10.0.2.1:8080 from [10.1.0.0/16]",
			},
		}, {
			name: "a /0 range opens its family, and ranges of the other family alone leave one open (R22)",
			svc: service(func(s *Service) {
				s.Type, s.ClusterIPs = ServiceLoadBalancer, addrs("10.96.0.1", "fd96::1")
				s.LoadBalancerIngress = vips("203.0.113.1", "2001:db8::1")
				s.SourceRanges = prefixes("10.1.0.0/16", "0.0.0.0/0")
			}),
			slices: far,
			want: []string{
				"10.96.0.1:80/TCP all ClusterIP forward 10.0.2.1:8080",
				"[2001:db8::1]:80/TCP all LoadBalancer reject: " + noneInSlices,
				"203.0.113.1:80/TCP all LoadBalancer forward 10.0.2.1:8080",
				"[fd96::1]:80/TCP all ClusterIP reject: " + noneInSlices,
			},
		}, {
			name:   "externalIPs can be turned off (R23)",
			svc:    service(everywhere),
			slices: far,
			opts:   Options{DisableExternalIPs: true},
			want: []string{
				"0.0.0.0:30080/TCP all NodePort forward 10.0.2.1:8080",
				"10.96.0.1:80/TCP all ClusterIP forward 10.0.2.1:8080",
				"203.0.113.1:80/TCP all LoadBalancer forward 10.0.2.1:8080",
			},
		}, {
			name:   "NodePort 0 is closed, and so is a NodePort on a Service of type ClusterIP (R25)",
			svc:    service(func(s *Service) { s.Ports = []ServicePort{{"a", TCP, 80, 0}, {"b", TCP, 81, 30081}} }),
			slices: nil,
			want: []string{
				"10.96.0.1:80/TCP all ClusterIP reject: " + noneInSlices,
				"10.96.0.1:81/TCP all ClusterIP reject: " + noneInSlices,
			},
		}, {
			name: "each family has its own rows and endpoints (R26)",
			svc: service(func(s *Service) {
				s.Type, s.Ports[0].NodePort = ServiceNodePort, 30080
				s.ClusterIPs = addrs("fd96::1", "10.96.0.1")
			}),
			slices: []*EndpointSlice{
				slice("web-4", ready("10.0.1.1", "n1")),
				with(slice("web-6", ready("fd00::1", "n1")), func(s *EndpointSlice) { s.Family = IPv6 }),
			},
			want: []string{
				"0.0.0.0:30080/TCP all NodePort forward 10.0.1.1:8080",
				"[::]:30080/TCP all NodePort forward [fd00::1]:8080",
				"10.96.0.1:80/TCP all ClusterIP forward 10.0.1.1:8080",
				"[fd96::1]:80/TCP all ClusterIP forward [fd00::1]:8080",
			},
		}, {
			name: "addresses of a family in which the Service has no ClusterIP are not programmed (R26)",
			svc: service(everywhere, func(s *Service) {
				s.ExternalIPs, s.LoadBalancerIngress = addrs("2001:db8::1"), vips("2001:db8::2")
			}),
			slices: far,
			want: []string{
				"0.0.0.0:30080/TCP all NodePort forward 10.0.2.1:8080",
				"10.96.0.1:80/TCP all ClusterIP forward 10.0.2.1:8080",
			},
		}, {
			name: "one port number serves two protocols (R27)",
			svc: service(func(s *Service) {
				s.Ports = []ServicePort{{Name: "dns", Protocol: UDP, Port: 53}, {Name: "dns-tcp", Protocol: TCP, Port: 53}}
			}),
			slices: []*EndpointSlice{with(slice("web-1", ready("10.0.1.1", "n1")), func(s *EndpointSlice) {
				s.Ports = []EndpointPort{{"dns", UDP, 5300}, {"dns-tcp", TCP, 5301}}
			})},
			want: []string{
				"10.96.0.1:53/TCP all ClusterIP forward 10.0.1.1:5301",
				"10.96.0.1:53/UDP all ClusterIP forward 10.0.1.1:5300",
			},
		}, {
			name:   "SCTP is compiled, and says that it is not served (R28)",
			svc:    service(func(s *Service) { s.Ports[0].Protocol = SCTP }),
			slices: []*EndpointSlice{with(slice("web-1", ready("10.0.1.1", "n1")), func(s *EndpointSlice) { s.Ports[0].Protocol = SCTP })},
			want:   []string{"10.96.0.1:80/SCTP all ClusterIP unsupported 10.0.1.1:8080: " + reasonUnsupported},
		}, {
			name: "two ports of one name and protocol share their endpoints",
			svc:  service(func(s *Service) { s.Ports = append(s.Ports, ServicePort{Protocol: TCP, Port: 81}) }),
			want: []string{
				"10.96.0.1:80/TCP all ClusterIP reject: " + noneInSlices,
				"10.96.0.1:81/TCP all ClusterIP reject: " + noneInSlices,
			},
		}, {
			name: "a Service without ports has no rows",
			svc:  service(func(s *Service) { s.Ports = nil }),
		},
	})
}

func TestCompileShadows(t *testing.T) {
	far := []*EndpointSlice{slice("web-1", ready("10.0.2.1", "n2"))}
	const forward = "forward 10.0.2.1:8080"
	local := func(s *Service) { s.ExternalTrafficPolicy = PolicyLocal }
	claims := func(vip, external string) *Service {
		return service(func(s *Service) {
			s.Type, s.LoadBalancerIngress, s.ExternalIPs = ServiceLoadBalancer, vips(vip), addrs(external)
		})
	}
	listening := func(addrPort string) *Node {
		n := thisNode
		n.Listening = []Listener{{netip.MustParseAddrPort(addrPort), TCP}}
		return &n
	}
	held := func(spot string) string {
		return " shadowed by this node, which listens on " + spot + "; --allow-node-address-claims lets the Service take it"
	}
	const nobody = " shadowed by nobody: an unspecified or loopback address is no Service's to claim"

	runCases(t, []compileCase{
		{
			name:   "a VIP goes before an externalIP of the same Service (R27)",
			svc:    claims("203.0.113.1", "203.0.113.1"),
			slices: far,
			want: []string{
				"10.96.0.1:80/TCP all ClusterIP " + forward,
				"203.0.113.1:80/TCP all LoadBalancer " + forward,
				"203.0.113.1:80/TCP all ExternalIP shadowed by default/web (LoadBalancer)",
			},
		}, {
			name:   "a ClusterIP goes before all else, in both scopes (R27)",
			svc:    service(local, func(s *Service) { s.ExternalIPs = addrs("10.96.0.1") }),
			slices: far,
			want: []string{
				"10.96.0.1:80/TCP all ClusterIP " + forward,
				"10.96.0.1:80/TCP internal ExternalIP shadowed by default/web (ClusterIP)",
				"10.96.0.1:80/TCP external ExternalIP shadowed by default/web (ClusterIP)",
			},
		}, {
			name:   "an externalIP that is listed twice is one row (R27)",
			svc:    service(func(s *Service) { s.ExternalIPs = addrs("198.51.100.1", "198.51.100.1") }),
			slices: far,
			want: []string{
				"10.96.0.1:80/TCP all ClusterIP " + forward,
				"198.51.100.1:80/TCP all ExternalIP " + forward,
			},
		}, {
			name:   "a port on which the node listens is not a Service's to take (R27)",
			svc:    claims("192.168.0.1", "198.51.100.1"),
			slices: far,
			node:   listening("192.168.0.1:80"),
			want: []string{
				"10.96.0.1:80/TCP all ClusterIP " + forward,
				"192.168.0.1:80/TCP all LoadBalancer" + held("192.168.0.1:80/TCP"),
				"198.51.100.1:80/TCP all ExternalIP " + forward,
			},
		}, {
			name:   "a listener on every address stands for each address of the node (R27)",
			svc:    claims("203.0.113.1", "192.168.0.1"),
			slices: far,
			node:   listening("0.0.0.0:80"),
			want: []string{
				"10.96.0.1:80/TCP all ClusterIP " + forward,
				"192.168.0.1:80/TCP all ExternalIP" + held("192.168.0.1:80/TCP"),
				"203.0.113.1:80/TCP all LoadBalancer " + forward,
			},
		}, {
			name:   "a listener on :: stands for both families (R27)",
			svc:    service(func(s *Service) { s.ExternalIPs = addrs("192.168.0.1") }),
			slices: far,
			node:   listening("[::]:80"),
			want: []string{
				"10.96.0.1:80/TCP all ClusterIP " + forward,
				"192.168.0.1:80/TCP all ExternalIP" + held("192.168.0.1:80/TCP"),
			},
		}, {
			name:   "a listener on 0.0.0.0 does not stand for IPv6 (R27)",
			svc:    service(func(s *Service) { s.ClusterIPs, s.ExternalIPs = addrs("fd96::1"), addrs("fd01::1") }),
			slices: far,
			node:   &Node{Name: "n1", Addresses: addrs("fd01::1"), Listening: []Listener{{netip.MustParseAddrPort("0.0.0.0:80"), TCP}}},
			want: []string{
				"[fd01::1]:80/TCP all ExternalIP reject: " + noneInSlices,
				"[fd96::1]:80/TCP all ClusterIP reject: " + noneInSlices,
			},
		}, {
			name:   "a node address on another port or protocol may be claimed (R27)",
			svc:    service(func(s *Service) { s.ExternalIPs = addrs("192.168.0.1") }),
			slices: far,
			node: &Node{Name: "n1", Addresses: addrs("192.168.0.1"), Listening: []Listener{
				{netip.MustParseAddrPort("0.0.0.0:22"), TCP}, {netip.MustParseAddrPort("0.0.0.0:80"), UDP}, {netip.MustParseAddrPort("127.0.0.1:80"), TCP}}},
			want: []string{
				"10.96.0.1:80/TCP all ClusterIP " + forward,
				"192.168.0.1:80/TCP all ExternalIP " + forward,
			},
		}, {
			name:   "the operator may let Services take what the node listens on (R27)",
			svc:    service(func(s *Service) { s.ExternalIPs = addrs("192.168.0.1") }),
			slices: far,
			node:   listening("0.0.0.0:80"),
			opts:   Options{AllowNodeAddressClaims: true},
			want: []string{
				"10.96.0.1:80/TCP all ClusterIP " + forward,
				"192.168.0.1:80/TCP all ExternalIP " + forward,
			},
		}, {
			name: "a refused claim shadows nothing, not even a NodePort of the same Service (R27)",
			svc: service(func(s *Service) {
				s.Type, s.ExternalIPs, s.Ports[0].Port, s.Ports[0].NodePort = ServiceNodePort, addrs("0.0.0.0"), 30080, 30080
			}),
			slices: far,
			want: []string{
				"0.0.0.0:30080/TCP all ExternalIP" + nobody,
				"0.0.0.0:30080/TCP all NodePort " + forward,
				"10.96.0.1:30080/TCP all ClusterIP " + forward,
			},
		}, {
			name:   "no Service takes loopback, or the wildcard of NodePorts (R24, R27)",
			svc:    claims("127.0.0.1", "0.0.0.0"),
			slices: far,
			opts:   Options{AllowNodeAddressClaims: true},
			want: []string{
				"0.0.0.0:80/TCP all ExternalIP" + nobody,
				"10.96.0.1:80/TCP all ClusterIP " + forward,
				"127.0.0.1:80/TCP all LoadBalancer" + nobody,
			},
		},
	})
}
