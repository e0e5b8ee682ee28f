// SPDX-License-Identifier: Apache-2.0

package model

import (
	"bytes"
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// reporter is what testing.T and rapid.T share.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
}

// checkShape checks all that types.go promises of a Compiled.
func checkShape(t reporter, c *Compiled) {
	t.Helper()
	used := make([]bool, len(c.Sets))
	for i, claim := range c.Claims {
		set := c.Sets[claim.Set]
		used[claim.Set] = true
		if i > 0 && claimOrder(c.Claims[i-1], claim) >= 0 {
			t.Errorf("claim %d is out of order or repeated: %v", i, claim)
		}
		if set.Key.PortName != claim.PortName || set.Key.Protocol != claim.Key.Protocol || set.Key.Family != FamilyOf(claim.Key.Address) {
			t.Errorf("claim %v points to a set of another port: %v", claim, set.Key)
		}
		if want := roleOf(claim); set.Key.Role != want {
			t.Errorf("claim %v has role %v, want %v", claim, set.Key.Role, want)
		}
	}
	if i := slices.Index(used, false); i >= 0 {
		t.Errorf("no claim uses set %v", c.Sets[i].Key)
	}
	for i := range c.Sets {
		checkSet(t, &c.Sets[i])
		if i > 0 && setOrder(c.Sets[i-1].Key, c.Sets[i].Key) >= 0 {
			t.Errorf("set %v does not come after %v", c.Sets[i].Key, c.Sets[i-1].Key)
		}
	}
}

func claimOrder(a, b Claim) int {
	return cmp.Or(a.Key.Compare(b.Key), cmp.Compare(a.Type, b.Type), cmp.Compare(a.PortName, b.PortName))
}

func setOrder(a, b SetKey) int {
	return cmp.Or(cmp.Compare(a.PortName, b.PortName), cmp.Compare(a.Protocol, b.Protocol),
		cmp.Compare(a.Family, b.Family), cmp.Compare(a.Role, b.Role))
}

func roleOf(c Claim) Role {
	external := c.Key.Scope == ScopeExternal
	switch {
	case c.Type == TypeClusterIP:
		return RoleClusterIP
	case c.Type == TypeLoadBalancer && external:
		return RoleVIPExternal
	case c.Type == TypeLoadBalancer:
		return RoleVIPInternal
	case external:
		return RoleExternal
	}
	return RoleInternal
}

func checkSet(t reporter, s *Set) {
	t.Helper()
	forwards := s.Action == ActionForward
	if unsupported := s.Action == ActionUnsupported; unsupported != (s.Key.Protocol == SCTP) {
		t.Errorf("%v: action %v", s.Key, s.Action)
	} else if !unsupported && forwards != (len(s.Backends) > 0) {
		t.Errorf("%v: action %v with %d backends", s.Key, s.Action, len(s.Backends))
	}
	if forwards != (s.Reason == "") {
		t.Errorf("%v: action %v for the reason %q", s.Key, s.Action, s.Reason)
	}
	if vip := s.Key.Role == RoleVIPExternal || s.Key.Role == RoleVIPInternal; !vip && len(s.SourceRanges) > 0 {
		t.Errorf("%v has source ranges", s.Key)
	}
	seen := map[netip.AddrPort]bool{}
	for _, list := range [][]Backend{s.Backends, s.Draining} {
		for i, b := range list {
			if seen[b.AddrPort] {
				t.Errorf("%v: %v stands twice", s.Key, b.AddrPort)
			}
			seen[b.AddrPort] = true
			if FamilyOf(b.AddrPort.Addr()) != s.Key.Family {
				t.Errorf("%v: %v is of another family", s.Key, b.AddrPort)
			}
			if i > 0 && CompareAddrPort(list[i-1].AddrPort, b.AddrPort) >= 0 {
				t.Errorf("%v: %v is out of order", s.Key, b.AddrPort)
			}
			if len(b.Slices) == 0 || !slices.IsSortedFunc(b.Slices, Name.Compare) || len(slices.Compact(slices.Clone(b.Slices))) != len(b.Slices) {
				t.Errorf("%v: %v is held by %v", s.Key, b.AddrPort, b.Slices)
			}
		}
	}
}

// The generators draw from few values, so that things collide.

func genAddr(prefix4, prefix6 string) *rapid.Generator[netip.Addr] {
	return rapid.Custom(func(t *rapid.T) netip.Addr {
		prefix := rapid.SampledFrom([]string{prefix4, prefix6}).Draw(t, "family")
		return netip.MustParseAddr(prefix + rapid.SampledFrom([]string{"1", "2", "3", "4"}).Draw(t, "host"))
	})
}

var (
	genWords    = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b"}), 0, 2, rapid.ID[string])
	genProtocol = rapid.SampledFrom([]Protocol{TCP, UDP, SCTP})
	genPortName = rapid.SampledFrom([]string{"", "p", "q"})
	genPolicy   = rapid.SampledFrom([]TrafficPolicy{PolicyCluster, PolicyLocal})
	genNumber   = rapid.Uint16Range(1, 3)
)

var genEndpoint = rapid.Custom(func(t *rapid.T) Endpoint {
	return Endpoint{
		Addresses:   []netip.Addr{genAddr("10.0.0.", "fd00::").Draw(t, "address")},
		NodeName:    rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "node"),
		Ready:       rapid.Bool().Draw(t, "ready"),
		Serving:     rapid.Bool().Draw(t, "serving"),
		Terminating: rapid.Bool().Draw(t, "terminating"),
		ZoneHints:   genWords.Draw(t, "zone hints"),
		NodeHints:   genWords.Draw(t, "node hints"),
	}
})

func genSlices(service Name) *rapid.Generator[[]*EndpointSlice] {
	one := rapid.Custom(func(t *rapid.T) *EndpointSlice {
		s := &EndpointSlice{
			Name:    Name{service.Namespace, rapid.SampledFrom([]string{"s1", "s2", "s3", "s4"}).Draw(t, "slice")},
			Service: rapid.SampledFrom([]string{service.Name, service.Name, service.Name, "other"}).Draw(t, "service"),
			Family:  rapid.SampledFrom([]Family{IPv4, IPv6}).Draw(t, "slice family"),
		}
		s.Endpoints = rapid.SliceOfN(genEndpoint, 0, 8).Draw(t, "endpoints")
		s.Ports = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) EndpointPort {
			return EndpointPort{genPortName.Draw(t, "port name"), genProtocol.Draw(t, "protocol"), genNumber.Draw(t, "port")}
		}), 1, 3).Draw(t, "ports")
		return s
	})
	return rapid.SliceOfNDistinct(one, 0, 4, func(s *EndpointSlice) Name { return s.Name })
}

func genService(name Name) *rapid.Generator[*Service] {
	return rapid.Custom(func(t *rapid.T) *Service {
		s := &Service{
			Name:                  name,
			Type:                  rapid.SampledFrom([]ServiceType{ServiceClusterIP, ServiceNodePort, ServiceLoadBalancer}).Draw(t, "type"),
			ClusterIPs:            rapid.SliceOfN(genAddr("10.96.0.", "fd96::"), 1, 2).Draw(t, "cluster IPs"),
			ExternalIPs:           rapid.SliceOfN(genAddr("10.96.0.", "fd96::"), 0, 3).Draw(t, "external IPs"),
			InternalTrafficPolicy: genPolicy.Draw(t, "internal policy"),
			ExternalTrafficPolicy: genPolicy.Draw(t, "external policy"),
			AffinitySeconds:       rapid.SampledFrom([]uint32{0, 10}).Draw(t, "affinity"),
			Selection:             rapid.SampledFrom([]Selection{SelectionRandom, SelectionMaglev}).Draw(t, "selection"),
			HasSelection:          rapid.Bool().Draw(t, "has a selection"),
			SourceRanges:          rapid.SliceOfN(rapid.SampledFrom(prefixes("10.0.0.0/8", "0.0.0.0/0", "fd00::/8")), 0, 2).Draw(t, "ranges"),
		}
		s.CreationTimestamp = rapid.SampledFrom([]time.Time{{}, time.Unix(1, 0), time.Unix(2, 0)}).Draw(t, "created")
		for _, a := range rapid.SliceOfN(genAddr("10.96.0.", "fd96::"), 0, 2).Draw(t, "VIPs") {
			s.LoadBalancerIngress = append(s.LoadBalancerIngress, LoadBalancerIngress{a, rapid.Bool().Draw(t, "proxy")})
		}
		s.Ports = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) ServicePort {
			return ServicePort{genPortName.Draw(t, "port name"), genProtocol.Draw(t, "protocol"),
				genNumber.Draw(t, "port"), rapid.Uint16Range(0, 2).Draw(t, "node port")}
		}), 0, 4).Draw(t, "ports")
		return s
	})
}

// genNode draws node a in zone a, which may own and listen on what Services claim.
var genNode = rapid.Custom(func(t *rapid.T) *Node {
	n := &Node{Name: "a", Zone: "a", Addresses: addrs("10.96.0.1", "fd96::1")}
	if rapid.Bool().Draw(t, "listening") {
		at := rapid.SampledFrom(addrs("10.96.0.1", "0.0.0.0", "::")).Draw(t, "at")
		n.Listening = []Listener{{netip.AddrPortFrom(at, genNumber.Draw(t, "port")), genProtocol.Draw(t, "protocol")}}
	}
	return n
})

func shuffled[T any](t *rapid.T, list []T) []T {
	return rapid.Permutation(slices.Clone(list)).Draw(t, "order")
}

func TestCompileProperties(t *testing.T) {
	web := Name{"default", "web"}

	t.Run("what Compile returns has the promised shape", rapid.MakeCheck(func(t *rapid.T) {
		c := Compile(genService(web).Draw(t, "service"), genSlices(web).Draw(t, "slices"), genNode.Draw(t, "node"), &Options{})
		checkShape(t, &c)
	}))

	t.Run("a Service that a change of the node does not affect compiles alike on both (R17, R27)", rapid.MakeCheck(func(t *rapid.T) {
		svc, in, was := genService(web).Draw(t, "service"), genSlices(web).Draw(t, "slices"), genNode.Draw(t, "node before")
		is := *genNode.Draw(t, "node after")
		is.Name = rapid.SampledFrom([]string{"a", "a", "a", "b"}).Draw(t, "name after")
		is.Zone = rapid.SampledFrom([]string{"a", "a", "a", "b"}).Draw(t, "zone after")
		is.Addresses = rapid.SampledFrom([][]netip.Addr{was.Addresses, addrs("10.96.0.2"), nil}).Draw(t, "addresses after")
		if svc.AffectedBy(was, was) {
			t.Error("a node that did not change affects the Service")
		}
		if svc.AffectedBy(was, &is) {
			return
		}
		before, after := Compile(svc, in, was, &Options{}), Compile(svc, in, &is, &Options{})
		if !before.Equal(&after) {
			t.Errorf("not affected, and yet\n%v\nbecame\n%v", describe(&before), describe(&after))
		}
	}))

	t.Run("the order of slices, endpoints, ports and addresses does not matter", rapid.MakeCheck(func(t *rapid.T) {
		svc, in, node := genService(web).Draw(t, "service"), genSlices(web).Draw(t, "slices"), genNode.Draw(t, "node")
		c := Compile(svc, in, node, &Options{})

		other := *svc
		other.Ports, other.ClusterIPs = shuffled(t, svc.Ports), shuffled(t, svc.ClusterIPs)
		other.ExternalIPs, other.LoadBalancerIngress = shuffled(t, svc.ExternalIPs), shuffled(t, svc.LoadBalancerIngress)
		var others []*EndpointSlice
		for _, s := range shuffled(t, in) {
			o := *s
			o.Endpoints, o.Ports = shuffled(t, s.Endpoints), shuffled(t, s.Ports)
			others = append(others, &o)
		}
		if o := Compile(&other, others, node, &Options{}); !c.Equal(&o) || !o.Equal(&c) {
			t.Errorf("another order gives\n%v\nnot\n%v", describe(&o), describe(&c))
		}
	}))

	t.Run("every backend comes from a slice of the Service, and says which (R3, R4)", rapid.MakeCheck(func(t *rapid.T) {
		in := genSlices(web).Draw(t, "slices")
		c := Compile(genService(web).Draw(t, "service"), in, genNode.Draw(t, "node"), &Options{})
		for _, set := range c.Sets {
			for _, b := range slices.Concat(set.Backends, set.Draining) {
				want := holdersOf(in, web, set.Key, b.AddrPort)
				if !slices.Equal(b.Slices, want) {
					t.Errorf("%v: %v names %v, but %v hold it", set.Key, b.AddrPort, b.Slices, want)
				}
			}
		}
	}))

	t.Run("the proxy uses what kube-proxy's categories contain (R7, R10, R11, R15)", rapid.MakeCheck(func(t *rapid.T) {
		svc, in, node := genService(web).Draw(t, "service"), genSlices(web).Draw(t, "slices"), genNode.Draw(t, "node")
		c := Compile(svc, in, node, &Options{})
		for _, set := range c.Sets {
			policy := PolicyCluster
			switch set.Key.Role {
			case RoleClusterIP:
				policy = svc.InternalTrafficPolicy
			case RoleExternal, RoleVIPExternal:
				policy = svc.ExternalTrafficPolicy
			}
			checkSelection(t, &set, bestCopies(in, web, set.Key, node), policy, node)
		}
	}))
}

// holdersOf is the plain reading of R3 and R4: look through everything.
func holdersOf(in []*EndpointSlice, service Name, k SetKey, want netip.AddrPort) []Name {
	var names []Name
	for _, s := range in {
		if s.ServiceName() != service || s.Family != k.Family {
			continue
		}
		for _, p := range s.Ports {
			for _, e := range s.Endpoints {
				if p.Name == k.PortName && p.Protocol == k.Protocol && netip.AddrPortFrom(e.Addresses[0], p.Port) == want {
					names = append(names, s.Name)
				}
			}
		}
	}
	slices.SortFunc(names, Name.Compare)
	return slices.Compact(names)
}

// bestCopies finds by plain search, for each address and port, a copy that no
// other beats by condition and then by locality.
func bestCopies(in []*EndpointSlice, service Name, k SetKey, node *Node) map[netip.AddrPort]Endpoint {
	grade := func(e Endpoint) int {
		conditions := []bool{e.Ready, e.Serving && e.Terminating, e.Serving, e.Terminating, true}
		g := -2 * slices.Index(conditions, true)
		if e.NodeName == node.Name {
			g++
		}
		return g
	}
	type ranked struct {
		Endpoint
		slice Name
	}
	best := map[netip.AddrPort]ranked{}
	for _, s := range in {
		if s.ServiceName() != service || s.Family != k.Family {
			continue
		}
		for _, p := range s.Ports {
			for _, e := range s.Endpoints {
				if p.Name != k.PortName || p.Protocol != k.Protocol || FamilyOf(e.Addresses[0]) != k.Family {
					continue
				}
				at := netip.AddrPortFrom(e.Addresses[0], p.Port)
				old, known := best[at]
				order := cmp.Or(cmp.Compare(grade(e), grade(old.Endpoint)), old.slice.Compare(s.Name),
					falseLast(old.Terminating, e.Terminating), cmp.Compare(old.NodeName, e.NodeName), slices.Compare(old.NodeHints, e.NodeHints), slices.Compare(old.ZoneHints, e.ZoneHints))
				if !known || order > 0 {
					best[at] = ranked{e, s.Name}
				}
			}
		}
	}
	result := map[netip.AddrPort]Endpoint{}
	for at, r := range best {
		result[at] = r.Endpoint
	}
	return result
}

// checkSelection holds a set against kube-proxy's rule, written as filters.
func checkSelection(t reporter, set *Set, all map[netip.AddrPort]Endpoint, policy TrafficPolicy, node *Node) {
	t.Helper()
	filter := func(keep func(Endpoint) bool) map[netip.AddrPort]bool {
		kept := map[netip.AddrPort]bool{}
		for at, e := range all {
			if (policy == PolicyCluster || e.NodeName == node.Name) && keep(e) {
				kept[at] = true
			}
		}
		return kept
	}
	every := func(hints func(Endpoint) []string) bool {
		for _, e := range all {
			if e.Ready && len(hints(e)) == 0 {
				return false
			}
		}
		return true
	}
	ready := filter(func(e Endpoint) bool { return e.Ready })
	if policy == PolicyCluster {
		for _, topology := range []struct {
			hints func(Endpoint) []string
			here  string
		}{{func(e Endpoint) []string { return e.NodeHints }, node.Name}, {func(e Endpoint) []string { return e.ZoneHints }, node.Zone}} {
			near := filter(func(e Endpoint) bool { return e.Ready && slices.Contains(topology.hints(e), topology.here) })
			if every(topology.hints) && len(near) > 0 {
				ready = near
				break
			}
		}
	}
	want := ready
	if len(want) == 0 {
		want = filter(func(e Endpoint) bool { return e.Serving && e.Terminating })
	}
	draining := filter(func(e Endpoint) bool { return e.Terminating })
	maps.DeleteFunc(draining, func(at netip.AddrPort, _ bool) bool { return want[at] })

	for _, side := range []struct {
		name string
		got  []Backend
		want map[netip.AddrPort]bool
	}{{"backends", set.Backends, want}, {"draining", set.Draining, draining}} {
		got := map[netip.AddrPort]bool{}
		for _, b := range side.got {
			got[b.AddrPort] = true
		}
		if !maps.Equal(got, side.want) {
			t.Errorf("%v: %s are %v, want %v", set.Key, side.name, got, side.want)
		}
	}
}

func TestCompareAddr(t *testing.T) {
	gen := rapid.Custom(func(t *rapid.T) netip.Addr {
		sizes := rapid.SampledFrom([]int{4, 16}).Draw(t, "size")
		raw := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 10, 255}), sizes, sizes).Draw(t, "bytes")
		a, _ := netip.AddrFromSlice(raw)
		return a
	})
	t.Run("addresses are ordered as their bytes are", rapid.MakeCheck(func(t *rapid.T) {
		a, b := gen.Draw(t, "a"), gen.Draw(t, "b")
		if got, want := CompareAddr(a, b), bytes.Compare(a.AsSlice(), b.AsSlice()); got != want {
			t.Errorf("CompareAddr(%v, %v) is %d, want %d", a, b, got, want)
		}
	}))
	t.Run("0.0.0.0 comes before ::, and :: before 10.0.0.1", func(t *testing.T) {
		want := addrs("0.0.0.0", "::", "::1", "10.0.0.1", "fd00::1")
		got := slices.Clone(want)
		slices.Reverse(got)
		slices.SortFunc(got, CompareAddr)
		if !slices.Equal(got, want) {
			t.Errorf("got %v", got)
		}
	})
	t.Run("it allocates nothing", func(t *testing.T) {
		list := addrs("10.0.0.1", "fd00::1")
		if n := testing.AllocsPerRun(100, func() { CompareAddr(list[0], list[1]) }); n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}
