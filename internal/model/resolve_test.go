// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestBeats(t *testing.T) {
	at := func(namespace, name string, second int64) Contender {
		c := Contender{Service: Name{namespace, name}}
		if second > 0 {
			c.Created = time.Unix(second, 0)
		}
		return c
	}
	for _, c := range []struct {
		name          string
		winner, loser Contender
	}{
		{"the older Service holds the spot (R27)", at("z", "z", 1), at("a", "a", 2)},
		{"of one age, the namespace decides (R27)", at("a", "z", 1), at("b", "a", 1)},
		{"of one age and namespace, the name decides (R27)", at("a", "a", 1), at("a", "b", 1)},
		{"one without a creation time is the newest (R27)", at("z", "z", 9), at("a", "a", 0)},
		{"of two without a creation time, the name decides (R27)", at("a", "a", 0), at("a", "b", 0)},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !c.winner.Beats(c.loser) || c.loser.Beats(c.winner) {
				t.Errorf("%v should beat %v, and not the other way round", c.winner, c.loser)
			}
			if c.winner.Beats(c.winner) {
				t.Errorf("%v beats itself", c.winner)
			}
		})
	}
}

// named returns a Service of another name, created at a second of the epoch.
func named(name string, second int64, changes ...func(*Service)) *Service {
	return service(append([]func(*Service){func(s *Service) {
		s.Name.Name, s.CreationTimestamp = name, time.Unix(second, 0)
	}}, changes...)...)
}

func candidates(node *Node, services ...*Service) []Candidate {
	cs := make([]Candidate, len(services))
	for i, s := range services {
		cs[i] = Candidate{Contender{s.Name, s.CreationTimestamp}, Compile(s, nil, node, &Options{})}
	}
	return cs
}

func TestResolve(t *testing.T) {
	external := func(texts ...string) func(*Service) {
		return func(s *Service) { s.ExternalIPs = addrs(texts...) }
	}
	cluster := func(text string) func(*Service) {
		return func(s *Service) { s.ClusterIPs = addrs(text) }
	}
	local := func(s *Service) { s.ExternalTrafficPolicy = PolicyLocal }
	nodePort := func(s *Service) { s.Type, s.Ports[0].NodePort = ServiceNodePort, 30080 }
	const nothing = " reject: " + noneInSlices

	for _, c := range []struct {
		name     string
		services []*Service
		want     string
	}{
		{
			"one address, port and protocol has one holder, and the loser says who (R27)",
			[]*Service{named("new", 2, external("198.51.100.1"), cluster("10.96.0.2")), named("old", 1, external("198.51.100.1"), cluster("10.96.0.1"))},
			`default/new 10.96.0.2:80/TCP all ClusterIP` + nothing + `
default/new 198.51.100.1:80/TCP all ExternalIP shadowed by default/old
default/old 10.96.0.1:80/TCP all ClusterIP` + nothing + `
default/old 198.51.100.1:80/TCP all ExternalIP` + nothing,
		}, {
			"both scopes of a spot go to one Service, whatever the policies (R27)",
			[]*Service{named("new", 2, nodePort, local, cluster("10.96.0.2")), named("old", 1, nodePort)},
			`default/new 0.0.0.0:30080/TCP internal NodePort shadowed by default/old
default/new 0.0.0.0:30080/TCP external NodePort shadowed by default/old
default/new 10.96.0.2:80/TCP all ClusterIP` + nothing + `
default/old 0.0.0.0:30080/TCP all NodePort` + nothing + `
default/old 10.96.0.1:80/TCP all ClusterIP` + nothing,
		}, {
			"a claim that its own Service shadows does not shadow others (R27)",
			[]*Service{
				named("mid", 2, func(s *Service) { s.ExternalIPs = addrs("10.96.0.1") }),
				named("old", 1, func(s *Service) { s.ClusterIPs, s.ExternalIPs = addrs("10.96.0.9"), addrs("10.96.0.9") }),
			},
			`default/mid 10.96.0.1:80/TCP all ClusterIP` + nothing + `
default/mid 10.96.0.1:80/TCP all ExternalIP shadowed by default/mid (ClusterIP)
default/old 10.96.0.9:80/TCP all ClusterIP` + nothing + `
default/old 10.96.0.9:80/TCP all ExternalIP shadowed by default/old (ClusterIP)`,
		}, {
			"what the node keeps from the oldest goes to nobody else either (R27)",
			[]*Service{
				named("new", 2, external("192.168.0.1"), cluster("10.96.0.2")),
				named("old", 1, external("192.168.0.1"), cluster("10.96.0.1")),
			},
			`default/new 10.96.0.2:80/TCP all ClusterIP` + nothing + `
default/new 192.168.0.1:80/TCP all ExternalIP shadowed by this node, which listens on 192.168.0.1:80/TCP; --allow-node-address-claims lets the Service take it
default/old 10.96.0.1:80/TCP all ClusterIP` + nothing + `
default/old 192.168.0.1:80/TCP all ExternalIP shadowed by this node, which listens on 192.168.0.1:80/TCP; --allow-node-address-claims lets the Service take it`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			node := thisNode
			node.Listening = []Listener{{netip.MustParseAddrPort("0.0.0.0:80"), TCP}}
			if got := describeWorld(Resolve(candidates(&node, c.services...))); got != c.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, c.want)
			}
		})
	}
}

func describeWorld(cs []Candidate) string {
	var lines []string
	for _, c := range cs {
		for _, line := range describe(&c.Compiled) {
			lines = append(lines, c.Service.String()+" "+line)
		}
	}
	return strings.Join(lines, "\n")
}

var genWorld = rapid.Custom(func(t *rapid.T) []Candidate {
	node := genNode.Draw(t, "node")
	world := make([]Candidate, rapid.IntRange(1, 5).Draw(t, "services"))
	for i := range world {
		name := Name{"default", fmt.Sprintf("s%d", i)}
		svc := genService(name).Draw(t, "service")
		world[i] = Candidate{
			Contender{name, svc.CreationTimestamp},
			Compile(svc, genSlices(name).Draw(t, "slices"), node, &Options{}),
		}
	}
	return world
})

func equalWorlds(a, b []Candidate) bool {
	return slices.EqualFunc(a, b, func(x, y Candidate) bool {
		return x.Contender == y.Contender && x.Compiled.Equal(&y.Compiled)
	})
}

func copied(world []Candidate) []Candidate {
	c := slices.Clone(world)
	for i := range c {
		c[i].Compiled.Claims = slices.Clone(c[i].Compiled.Claims)
	}
	return c
}

// spotsOf is the plain reading of who contends where.
func spotsOf(c Candidate) map[Spot]bool {
	spots := map[Spot]bool{}
	for _, claim := range c.Compiled.Claims {
		if claim.Shadowed == "" {
			spots[claim.Key.Spot()] = true
		}
	}
	return spots
}

func TestResolveProperties(t *testing.T) {
	t.Run("every contended spot has exactly one holder, whom all losers name (R27)", rapid.MakeCheck(func(t *rapid.T) {
		world := genWorld.Draw(t, "world")
		resolved := Resolve(world)
		holders, keys := map[Spot]Name{}, map[FrontendKey]Name{}
		for _, c := range resolved {
			for spot := range spotsOf(c) {
				if h, taken := holders[spot]; taken {
					t.Errorf("%v is held by %v and by %v", spot, h, c.Service)
				}
				holders[spot] = c.Service
			}
			for _, claim := range c.Compiled.Claims {
				if _, taken := keys[claim.Key]; taken && claim.Shadowed == "" {
					t.Errorf("two rows hold %v %v", claim.Key, claim.Key.Scope)
				}
				if claim.Shadowed == "" {
					keys[claim.Key] = c.Service
				}
			}
		}
		for i, c := range world {
			for spot := range spotsOf(c) {
				if _, held := holders[spot]; !held {
					t.Errorf("nobody holds %v, which %v claims", spot, c.Service)
				}
			}
			for j, claim := range c.Compiled.Claims {
				after := resolved[i].Compiled.Claims[j].Shadowed
				if claim.Shadowed != "" && after != claim.Shadowed {
					t.Errorf("%v was shadowed by %s, and is by %s", claim.Key, claim.Shadowed, after)
				}
				if h := holders[claim.Key.Spot()]; claim.Shadowed == "" && h != c.Service && after != h.String() {
					t.Errorf("%v is held by %v, but says %q", claim.Key, h, after)
				}
			}
		}
	}))

	t.Run("the input is not modified, and its order does not matter", rapid.MakeCheck(func(t *rapid.T) {
		world := genWorld.Draw(t, "world")
		before := copied(world)
		resolved := Resolve(world)
		if !equalWorlds(world, before) {
			t.Errorf("the input was modified:\n%s", describeWorld(world))
		}
		other := Resolve(shuffled(t, world))
		slices.SortFunc(other, func(a, b Candidate) int { return a.Service.Compare(b.Service) })
		if !equalWorlds(resolved, other) {
			t.Errorf("another order gives\n%s\nnot\n%s", describeWorld(other), describeWorld(resolved))
		}
	}))

	t.Run("without a Service, others change only at spots that both claim (the first incident)", rapid.MakeCheck(func(t *rapid.T) {
		world := genWorld.Draw(t, "world")
		gone := rapid.IntRange(0, len(world)-1).Draw(t, "gone")
		before := slices.Delete(Resolve(world), gone, gone+1)
		after := Resolve(slices.Delete(slices.Clone(world), gone, gone+1))
		claimed := spotsOf(world[gone])
		for i := range after {
			for j := range after[i].Compiled.Sets {
				if !after[i].Compiled.Sets[j].Equal(&before[i].Compiled.Sets[j]) {
					t.Errorf("set %v changed", after[i].Compiled.Sets[j].Key)
				}
			}
			for j, claim := range after[i].Compiled.Claims {
				if claim != before[i].Compiled.Claims[j] && !claimed[claim.Key.Spot()] {
					t.Errorf("%v of %v changed, which %v did not claim", claim.Key, after[i].Service, world[gone].Service)
				}
			}
		}
	}))

	t.Run("deciding spot by spot gives what Resolve gives", rapid.MakeCheck(func(t *rapid.T) {
		world := genWorld.Draw(t, "world")
		want := Resolve(world)
		contenders := map[Spot][]Contender{}
		for _, c := range shuffled(t, world) {
			for spot := range c.Compiled.Spots() {
				contenders[spot] = append(contenders[spot], c.Contender)
			}
		}
		holder := func(s Spot) (Name, bool) {
			for _, c := range contenders[s] {
				if !slices.ContainsFunc(contenders[s], func(o Contender) bool { return o.Beats(c) }) {
					return c.Service, true
				}
			}
			return Name{}, false
		}
		got := slices.Clone(world)
		for i, c := range world {
			got[i].Compiled = c.Compiled.WithShadows(holder, c.Service)
		}
		if !equalWorlds(got, want) {
			t.Errorf("spot by spot:\n%s\nResolve:\n%s", describeWorld(got), describeWorld(want))
		}
	}))

	t.Run("Spots are ordered, distinct and those that the Service contends for", rapid.MakeCheck(func(t *rapid.T) {
		c := genWorld.Draw(t, "world")[0]
		spots := slices.Collect(c.Compiled.Spots())
		want := spotsOf(c)
		for i, s := range spots {
			if !want[s] {
				t.Errorf("%v is not contended for", s)
			}
			if i > 0 && spots[i-1].Compare(s) >= 0 {
				t.Errorf("%v does not come after %v", s, spots[i-1])
			}
		}
		if len(spots) != len(want) {
			t.Errorf("%d spots, want %d", len(spots), len(want))
		}
	}))
}

func TestEqual(t *testing.T) {
	slicesOf := func(e ...Endpoint) []*EndpointSlice { return []*EndpointSlice{slice("web-1", e...)} }
	compile := func(svc *Service, in []*EndpointSlice) Compiled { return Compile(svc, in, &thisNode, &Options{}) }
	base := func(changes ...func(*Service)) *Service {
		return service(append([]func(*Service){func(s *Service) {
			s.Type, s.LoadBalancerIngress, s.SourceRanges = ServiceLoadBalancer, vips("203.0.113.1"), prefixes("10.0.0.0/8")
		}}, changes...)...)
	}
	a, b := ready("10.0.1.1", "n1"), endpointAt("10.0.1.2", "n1", "terminating")
	one := compile(base(), slicesOf(a, b))
	for _, c := range []struct {
		name  string
		other Compiled
		want  bool
	}{
		{"what is compiled twice is equal", compile(base(), slicesOf(b, a)), true},
		{"a version of an object that changes nothing is equal", compile(base(func(s *Service) { s.ResourceVersion = "2" }), slicesOf(a, b)), true},
		{"another draining endpoint differs", compile(base(), slicesOf(a)), false},
		{"another backend differs", compile(base(), slicesOf(a, b, ready("10.0.1.3", "n1"))), false},
		{"another node of a backend differs", compile(base(), slicesOf(ready("10.0.1.1", "n2"), b)), false},
		{"another state of a backend differs (R7)", compile(base(), slicesOf(endpointAt("10.0.1.1", "n1", "serving", "terminating"), b)), false},
		{"the view of another node differs", Compile(base(), slicesOf(a, b), &Node{Name: "n2"}, &Options{}), false},
		{"another slice of a backend differs", compile(base(), append(slicesOf(a, b), slice("web-2", a))), false},
		{"another affinity differs (R19)", compile(base(func(s *Service) { s.AffinitySeconds = 1 }), slicesOf(a, b)), false},
		{"another source range differs (R22)", compile(base(func(s *Service) { s.SourceRanges = prefixes("10.0.0.0/9") }), slicesOf(a, b)), false},
		{"another claim differs", compile(base(func(s *Service) { s.ExternalIPs = addrs("198.51.100.1") }), slicesOf(a, b)), false},
		{"a shadow differs", one.WithShadows(func(Spot) (Name, bool) { return Name{"default", "other"}, true }, Name{"default", "web"}), false},
		{"nothing differs from something", Compiled{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := one.Equal(&c.other); got != c.want {
				t.Errorf("Equal is %v, want %v", got, c.want)
			}
			if got := c.other.Equal(&one); got != c.want {
				t.Errorf("the other way round, Equal is %v, want %v", got, c.want)
			}
		})
	}
}
