// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/netip"
	"slices"
	"testing"
)

// retained returns backends as a retention has them, on no node.
func retained(addresses ...string) []Backend {
	list := make([]Backend, len(addresses))
	for i, a := range addrs(addresses...) {
		list[i] = Backend{AddrPort: netip.AddrPortFrom(a, 8080), State: StateRetained, Slices: []Name{{"default", "s"}}}
	}
	return list
}

func TestWithKept(t *testing.T) {
	vip := func(s *Service) {
		s.LoadBalancerIngress, s.SourceRanges, s.AffinitySeconds = vips("192.0.2.9"), prefixes("192.0.2.0/24"), 60
	}
	localOnly := func(s *Service) { s.InternalTrafficPolicy = PolicyLocal }
	sctp := func(s *Service) { s.Ports[0].Protocol = SCTP }
	only := func(role Role) func(SetKey) bool { return func(k SetKey) bool { return k.Role == role } }
	all := func(SetKey) bool { return true }
	for _, c := range []struct {
		name   string
		svc    *Service
		slices []*EndpointSlice
		keep   func(SetKey) bool
		want   []string
	}{
		{"an empty set goes on with what is kept for it (R40)", service(), nil, all,
			[]string{"10.96.0.1:80/TCP all ClusterIP forward 10.0.9.1:8080=retained 10.0.9.2:8080=retained"}},
		{"source ranges and affinity stay the set's own (R18, R22)", service(vip), nil, all, []string{
			"10.96.0.1:80/TCP all ClusterIP forward 10.0.9.1:8080=retained 10.0.9.2:8080=retained affinity 60",
			"192.0.2.9:80/TCP all LoadBalancer forward 10.0.9.1:8080=retained 10.0.9.2:8080=retained from [192.0.2.0/24] affinity 60"}},
		{"each set has its own", service(vip), nil, only(RoleVIPInternal), []string{
			"10.96.0.1:80/TCP all ClusterIP reject affinity 60: no EndpointSlice holds an endpoint for this port",
			"192.0.2.9:80/TCP all LoadBalancer forward 10.0.9.1:8080=retained 10.0.9.2:8080=retained from [192.0.2.0/24] affinity 60"}},
		{"a set with a backend needs nothing", service(), []*EndpointSlice{slice("s", ready("10.0.0.1", ""))}, all,
			[]string{"10.96.0.1:80/TCP all ClusterIP forward 10.0.0.1:8080"}},
		{"a policy is no lack of endpoints (R10)", service(localOnly), []*EndpointSlice{slice("s", ready("10.0.0.1", "n2"))}, all,
			[]string{"10.96.0.1:80/TCP all ClusterIP drop: internalTrafficPolicy is Local and no endpoint on this node is usable (1 elsewhere)"}},
		{"what is not served keeps nothing (R28)", service(sctp), nil, all,
			[]string{"10.96.0.1:80/SCTP all ClusterIP unsupported: SCTP sockets do not pass the socket hooks; served once the packet path is"}},
		{"nothing stands in both lists: what drains takes connections again (R9)", service(),
			[]*EndpointSlice{slice("s", endpointAt("10.0.9.2", "", "terminating"), endpointAt("10.0.9.3", "", "terminating"))}, all,
			[]string{"10.96.0.1:80/TCP all ClusterIP forward 10.0.9.1:8080=retained 10.0.9.2:8080=retained draining 10.0.9.3:8080"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := Compile(c.svc, c.slices, &thisNode, &Options{})
			again := Compile(c.svc, c.slices, &thisNode, &Options{})
			with := before.WithKept(func(k SetKey) []Backend {
				if !c.keep(k) {
					return nil
				}
				return retained("10.0.9.1", "10.0.9.2")
			})
			if got := describe(&with); !slices.Equal(got, c.want) {
				t.Errorf("got\n\t%q\nwant\n\t%q", got, c.want)
			}
			checkShape(t, &with)
			if !before.Equal(&again) {
				t.Error("what Compile made was modified")
			}
		})
	}
}

func TestWithNothingKeptIsTheVerySame(t *testing.T) {
	c := Compile(service(), nil, &thisNode, &Options{})
	with := c.WithKept(func(SetKey) []Backend { return nil })
	if &with.Sets[0] != &c.Sets[0] || &with.Claims[0] != &c.Claims[0] {
		t.Error("it is a copy")
	}
}
