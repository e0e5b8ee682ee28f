// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/adapter"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
)

// against is what the objects at the end of a story ask for.
func (s story) against(t testing.TB) *Expected {
	t.Helper()
	var convert reflector.Converter
	all, endpoints := map[model.Name]*model.Service{}, map[model.Name]*model.EndpointSlice{}
	for _, e := range s {
		var object any = &corev1.Service{}
		if e.Kind.Resource == "endpointslices" {
			object = &discoveryv1.EndpointSlice{}
		}
		if err := json.Unmarshal(e.Content, object); err != nil {
			t.Fatal(err)
		}
		event, problems := convert.Event(object)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		if event.Service != nil {
			all[event.Name] = event.Service
		}
		if event.Slice != nil {
			endpoints[event.Name] = event.Slice
		}
	}
	var services []*model.Service
	for _, s := range all {
		services = append(services, s)
	}
	var sliced []*model.EndpointSlice
	for _, s := range endpoints {
		sliced = append(sliced, s)
	}
	return Against(services, sliced, &model.Node{Name: "n1"}, &model.Options{})
}

// lines are differences as text.
func lines(all []Difference) string {
	var b strings.Builder
	for _, d := range all {
		fmt.Fprintf(&b, "%s %s %s: %s\n", d.Service, kindNames[d.Kind], d.At, list(texts(d.Backends), fewBackends))
	}
	return b.String()
}

var kindNames = [...]string{"missing", "empty", "foreign", "stale", "incomplete", "unchosen", "extra"}

func TestAgainst(t *testing.T) {
	var s story
	s.service(0, "web", "10.96.0.1", nil)
	s.slice(0, "web", "10.244.1.1", "10.244.1.2")
	s.service(0, "db", "10.96.0.2", fields{"internalTrafficPolicy": "Local"})
	s.slice(0, "db", "10.244.1.3", "far 10.244.2.3")
	x := s.against(t)
	const right = "-A -t 10.96.0.1:80 -s rr\n-a -t 10.96.0.1:80 -r 10.244.1.1:8080 -m -w 1\n-a -t 10.96.0.1:80 -r 10.244.1.2:8080 -m -w 1\n" +
		"-A -t 10.96.0.2:80 -s rr\n-a -t 10.96.0.2:80 -r 10.244.1.3:8080 -m -w 1\n"
	tests := []struct{ name, text, want string }{
		{"what is as it should be does not differ", right, ""},
		{"an address that is not served", strings.Join(strings.SplitAfter(right, "\n")[3:], ""), "shop/web missing 10.96.0.1:80/TCP: 10.244.1.1:8080, 10.244.1.2:8080\n"},
		{"a frontend without backends", strings.Replace(right, "-a -t 10.96.0.2:80 -r 10.244.1.3:8080 -m -w 1\n", "", 1), "shop/db empty 10.96.0.2:80/TCP: 10.244.1.3:8080\n"},
		{"a backend of another Service", right + "-a -t 10.96.0.2:80 -r 10.244.1.1:8080 -m -w 1\n", "shop/db foreign 10.96.0.2:80/TCP: 10.244.1.1:8080\n"},
		{"a backend that nobody has", right + "-a -t 10.96.0.2:80 -r 10.244.9.9:8080 -m -w 1\n", "shop/db stale 10.96.0.2:80/TCP: 10.244.9.9:8080\n"},
		{"an endpoint of another node behind a policy Local (R10)", right + "-a -t 10.96.0.2:80 -r 10.244.2.3:8080 -m -w 1\n", "shop/db unchosen 10.96.0.2:80/TCP: 10.244.2.3:8080\n"},
		{"one backend less", strings.Replace(right, "-a -t 10.96.0.1:80 -r 10.244.1.2:8080 -m -w 1\n", "", 1), "shop/web incomplete 10.96.0.1:80/TCP: 10.244.1.2:8080\n"},
		{"an address of nobody", right + "-A -t 10.96.0.7:80 -s rr\n-a -t 10.96.0.7:80 -r 10.244.1.1:8080 -m -w 1\n", "/ extra 10.96.0.7:80/TCP: 10.244.1.1:8080\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d := save(test.text)
			found, _ := x.Differences(&d)
			if diff := cmp.Diff(test.want, lines(found)); diff != "" {
				t.Errorf("(-want +have):\n%s", diff)
			}
		})
	}
}

// TestWhoOnlyKeepsConnectionsIsNobody tells a proxy that gives new connections
// to endpoints that end, where there is nobody else (R7), from one that says of
// them that they only keep theirs.
func TestWhoOnlyKeepsConnectionsIsNobody(t *testing.T) {
	var s story
	s.service(0, "web", "10.96.0.1", nil)
	s.slice(0, "web", "10.244.1.1")
	x := s.against(t)
	for state, want := range map[adapter.State]string{
		adapter.Draining:    "shop/web empty 10.96.0.1:80/TCP: 10.244.1.1:8080\n",
		adapter.Unusable:    "shop/web empty 10.96.0.1:80/TCP: 10.244.1.1:8080\n",
		adapter.Terminating: "shop/web stale 10.96.0.1:80/TCP: 10.244.1.9:8080\nshop/web incomplete 10.96.0.1:80/TCP: 10.244.1.1:8080\n",
	} {
		d := save("-A -t 10.96.0.1:80 -s rr\n-a -t 10.96.0.1:80 -r 10.244.1.9:8080 -m -w 1\n")
		d.Frontends[0].Backends[0].State = state
		found, _ := x.Differences(&d)
		if diff := cmp.Diff(want, lines(found)); diff != "" {
			t.Errorf("state %d (-want +have):\n%s", state, diff)
		}
	}
}

func TestBetween(t *testing.T) {
	earlier := frontends("10.96.0.1:80/TCP|ClusterIP|shop/web|http|10.244.1.1:8080/TCP, 10.244.1.2:8080/TCP\n10.96.0.2:80/TCP|ClusterIP|shop/db|http|10.244.1.3:8080/TCP\n10.96.0.3:80/TCP|ClusterIP|shop/none|http|\n")
	const head = "SERVICE ADDRESS   BACKEND ADDRESS (REVNAT_ID) (SLOT)\n"
	const right = "10.96.0.1:80/TCP (1)   10.244.1.1:8080/TCP (1) (1)\n10.96.0.1:80/TCP (2)   10.244.1.2:8080/TCP (1) (2)\n10.96.0.2:80/TCP (1)   10.244.1.3:8080/TCP (2) (1)\n" +
		"10.96.0.1:80/TCP (0)   0.0.0.0:0 (1) (0) [ClusterIP]\n10.96.0.2:80/TCP (0)   0.0.0.0:0 (2) (0) [ClusterIP]\n"
	tests := []struct{ name, text, want string }{
		{"a kernel that holds what the agent does", right, ""},
		{"a frontend that the kernel has not", strings.ReplaceAll(right, "10.96.0.2:80", "10.96.0.8:80"), "shop/db missing 10.96.0.2:80/TCP: 10.244.1.3:8080\n"},
		{"a frontend that leads nowhere in the kernel", strings.ReplaceAll(right, "10.96.0.2:80/TCP (1)   10.244.1.3:8080/TCP (2) (1)\n", ""), "shop/db empty 10.96.0.2:80/TCP: 10.244.1.3:8080\n"},
		{"another backend than the agent's", strings.ReplaceAll(right, "10.244.1.3", "10.244.1.9"), "shop/db incomplete 10.96.0.2:80/TCP: 10.244.1.3:8080\nshop/db stale 10.96.0.2:80/TCP: 10.244.1.9:8080\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			later := lbList(head + test.text)
			found := Between(&earlier, &later)
			if diff := cmp.Diff(test.want, lines(found)); diff != "" {
				t.Errorf("(-want +have):\n%s", diff)
			}
		})
	}
	t.Run("a table of backends that lacks what a frontend leads to", func(t *testing.T) {
		pools := backends("shop/web|10.244.1.1:8080/TCP|k8s|active|http\n")
		want := "shop/db empty its table of backends: 10.244.1.3:8080\nshop/web incomplete its table of backends: 10.244.1.2:8080\n"
		if diff := cmp.Diff(want, lines(Between(&pools, &earlier))); diff != "" {
			t.Errorf("(-want +have):\n%s", diff)
		}
	})
}

// TestAReplayAndOneMomentFindTheSame compares a dump that lacks one backend at a
// time long after the last change with the objects of that moment alone.
func TestAReplayAndOneMomentFindTheSame(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := drawStory(r)
		var changed adapter.Dump
		found := compared(r, s, 20, func(d adapter.Dump) adapter.Dump {
			at := rapid.IntRange(0, len(d.Frontends)-1).Draw(r, "frontend")
			d.Frontends[at].Backends = slices.Clone(d.Frontends[at].Backends)
			if n := len(d.Frontends[at].Backends); n > 0 {
				d.Frontends[at].Backends = d.Frontends[at].Backends[:n-1]
			}
			changed = d
			return d
		})
		differences, _ := s.against(t).Differences(&changed)
		subjects := map[string]bool{}
		for _, d := range differences {
			subjects[fmt.Sprint(d.Service, d.Kind)] = true
		}
		if len(subjects) != len(found) {
			r.Fatalf("a replay finds %+v, and the objects alone show\n%s", found, lines(differences))
		}
	})
}
