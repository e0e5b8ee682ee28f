// SPDX-License-Identifier: Apache-2.0

package model

import (
	"slices"
	"testing"
)

func TestSelection(t *testing.T) {
	says := func(s Selection) func(*Service) {
		return func(svc *Service) { svc.Selection, svc.HasSelection = s, true }
	}
	silent := func(*Service) {}
	pods := []*EndpointSlice{slice("web-1", ready("10.0.1.1", "n1"), ready("10.0.2.1", "n2"))}
	for _, c := range []struct {
		name     string
		service  func(*Service)
		operator Selection
		want     Selection
	}{
		{"a Service that says nothing, on a node that says nothing, is random", silent, SelectionRandom, SelectionRandom},
		{"a Service that says nothing follows the operator", silent, SelectionMaglev, SelectionMaglev},
		{"a Service asks for Maglev itself", says(SelectionMaglev), SelectionRandom, SelectionMaglev},
		{"a Service asks for random though the operator has Maglev", says(SelectionRandom), SelectionMaglev, SelectionRandom},
	} {
		t.Run(c.name, func(t *testing.T) {
			everywhere := func(s *Service) {
				s.Type, s.LoadBalancerIngress = ServiceLoadBalancer, vips("203.0.113.1")
				s.Ports[0].NodePort, s.ExternalTrafficPolicy = 30080, PolicyLocal
			}
			compiled := Compile(service(everywhere, c.service), pods, &thisNode, &Options{Selection: c.operator})
			if len(compiled.Sets) != 5 {
				t.Fatalf("%d sets, want one of each role", len(compiled.Sets))
			}
			for _, s := range compiled.Sets {
				if s.Selection != c.want {
					t.Errorf("set %s is %s, want %s", s.Key, s.Selection, c.want)
				}
			}
		})
	}

	t.Run("another selection is another set, and claims the same", func(t *testing.T) {
		one := Compile(service(), pods, &thisNode, &Options{})
		other := Compile(service(says(SelectionMaglev)), pods, &thisNode, &Options{})
		if one.Equal(&other) || other.Equal(&one) {
			t.Error("they are equal")
		}
		if !slices.Equal(one.Claims, other.Claims) {
			t.Errorf("claims %v and %v", one.Claims, other.Claims)
		}
	})
}

func TestTraceSaysHowABackendIsChosen(t *testing.T) {
	node := &Node{Name: "n1", Addresses: addrs("192.168.0.1")}
	maglev := func(s *Service) { s.Selection, s.HasSelection = SelectionMaglev, true }
	two := slice("web-1", ready("10.0.1.1", "n1"), ready("10.0.2.1", "n2"))
	one := slice("web-1", ready("10.0.1.1", "n1"))
	const source = "Service default/web, else --selection"
	for _, c := range []struct {
		name    string
		world   Candidate
		from    string
		sockets PathServed
		want    []Step
	}{
		{"at random unless said", candidate(node, service(), two), "172.16.0.9", ServedAll,
			[]Step{{"selection", "one of them is chosen at random", source}}},
		{"Maglev chooses for packets", candidate(node, service(maglev), two), "172.16.0.9", ServedAll,
			[]Step{{"selection", "the flow's addresses and ports choose one of them, the same on every node (Maglev)", source}}},
		{"Maglev chooses for pods whose sockets are not served", candidate(node, service(maglev), two), "10.0.1.7", ServedOff,
			[]Step{{"selection", "the flow's addresses and ports choose one of them, the same on every node (Maglev)", source}}},
		{"a socket chooses at random though Maglev is asked for", candidate(node, service(maglev), two), "10.0.1.7", ServedAll,
			[]Step{{"selection", "one of them is chosen at random: a socket has no source port yet when it connects, so only packets ask the Maglev table", source}}},
		{"of one backend nothing is chosen", candidate(node, service(maglev), one), "172.16.0.9", ServedAll, nil},
		{"of none nothing is chosen", candidate(node, service(maglev)), "172.16.0.9", ServedAll, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := viewOf(node, c.world)
			v.Sockets = c.sockets
			steps := Trace(v, flow(t, c.from+" > 10.96.0.1:80")).Steps
			got := slices.DeleteFunc(steps, func(s Step) bool { return s.Stage != "selection" })
			if !slices.Equal(got, c.want) {
				t.Errorf("steps %q, want %q", got, c.want)
			}
		})
	}
}

func TestSelectionIsReadAsItIsWritten(t *testing.T) {
	for _, s := range []Selection{SelectionRandom, SelectionMaglev} {
		text, err := s.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var got Selection
		if err := got.UnmarshalText(text); err != nil || got != s {
			t.Errorf("%s, written as %q, reads %s, %v", s, text, got, err)
		}
	}
	for _, text := range []string{"", "Maglev", "hash", "random "} {
		got := SelectionMaglev
		err := got.UnmarshalText([]byte(text))
		if err == nil || got != SelectionMaglev {
			t.Errorf("%q reads %s, %v", text, got, err)
		}
	}
}
