// SPDX-License-Identifier: Apache-2.0

package tables

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
)

func TestHistorySaysInWordsWhatChanged(t *testing.T) {
	older := model.Name{Namespace: "default", Name: "older"}
	takeAddress := func(s *model.Service) { s.CreationTimestamp = start.Add(-time.Hour) }
	nodePort := func(s *model.Service) { s.Type, s.Ports[0].NodePort = model.ServiceNodePort, 30080 }
	unnamed := func(s *model.Service) { s.Ports[0].Name = "" }
	vip := func(s *model.Service) {
		s.Type = model.ServiceLoadBalancer
		s.LoadBalancerIngress = []model.LoadBalancerIngress{{Address: netip.MustParseAddr("192.0.2.1")}}
	}
	for _, tc := range []struct {
		name   string
		before func(*world)
		then   func(*world)
		want   []string
	}{
		{
			name: "a Service is first seen",
			then: func(w *world) { w.put(service(web)) },
			want: []string{"the Service was first seen"},
		},
		{
			name:   "the first backend appears, and what was rejected is forwarded (R13)",
			before: func(w *world) { w.put(service(web)) },
			then:   func(w *world) { w.put(slice(ready("10.0.0.1"))) },
			want: []string{
				"port http (cluster-ip, IPv4): reject → forward to 1 backend",
				"port http: backend 10.0.0.1:8080 appeared (active)",
			},
		},
		{
			name:   "the last backend goes (R13)",
			before: func(w *world) { w.put(service(web), slice(ready("10.0.0.1"))) },
			then:   func(w *world) { w.put(slice()) },
			want: []string{
				"port http (cluster-ip, IPv4): forward → reject (no EndpointSlice holds an endpoint for this port)",
				"port http: backend 10.0.0.1:8080 went (was active)",
			},
		},
		{
			name:   "one backend of two goes, and another comes",
			before: func(w *world) { w.put(service(web), slice(ready("10.0.0.1"), ready("10.0.0.2"))) },
			then:   func(w *world) { w.put(slice(ready("10.0.0.2"), ready("10.0.0.3"))) },
			want: []string{
				"port http: backend 10.0.0.1:8080 went (was active)",
				"port http: backend 10.0.0.3:8080 appeared (active)",
			},
		},
		{
			name:   "the only backend terminates and serves on (R7)",
			before: func(w *world) { w.put(service(web), slice(ready("10.0.0.1"))) },
			then:   func(w *world) { w.put(slice(terminating("10.0.0.1"))) },
			want:   []string{"port http: backend 10.0.0.1:8080: active → terminating"},
		},
		{
			name:   "one of two backends terminates and drains (R9)",
			before: func(w *world) { w.put(service(web), slice(ready("10.0.0.1"), ready("10.0.0.2"))) },
			then:   func(w *world) { w.put(slice(terminating("10.0.0.1"), ready("10.0.0.2"))) },
			want:   []string{"port http: backend 10.0.0.1:8080: active → draining"},
		},
		{
			name:   "a draining backend goes (R9)",
			before: func(w *world) { w.put(service(web), slice(terminating("10.0.0.1"), ready("10.0.0.2"))) },
			then:   func(w *world) { w.put(slice(ready("10.0.0.2"))) },
			want:   []string{"port http: backend 10.0.0.1:8080 went (was draining)"},
		},
		{
			name: "the port of a Service has no name",
			before: func(w *world) {
				w.put(service(web, unnamed))
			},
			then: func(w *world) {
				s := slice(ready("10.0.0.1"))
				s.Ports[0].Name = ""
				w.put(s)
			},
			want: []string{
				"port TCP (cluster-ip, IPv4): reject → forward to 1 backend",
				"port TCP: backend 10.0.0.1:8080 appeared (active)",
			},
		},
		{
			name:   "the only backend is on another node, and the policy becomes Local (R10)",
			before: func(w *world) { w.put(service(web), slice(onNode(ready("10.0.0.1"), "n2"))) },
			then: func(w *world) {
				w.put(service(web, func(s *model.Service) { s.InternalTrafficPolicy = model.PolicyLocal }))
			},
			want: []string{
				"port http (cluster-ip, IPv4): forward → drop (internalTrafficPolicy is Local and no endpoint on this node is usable (1 elsewhere))",
				"port http: backend 10.0.0.1:8080 went (was active)",
			},
		},
		{
			name: "the action stays and its reason changes",
			before: func(w *world) {
				w.put(service(web))
			},
			then: func(w *world) {
				e := ready("10.0.0.1")
				e.Ready, e.Serving = false, false
				w.put(slice(e))
			},
			want: []string{"port http (cluster-ip, IPv4): still reject, now because no endpoint is ready, and none still serves while it terminates (1 known)"},
		},
		{
			name:   "a NodePort appears and forwards",
			before: func(w *world) { w.put(service(web), slice(ready("10.0.0.1"), ready("10.0.0.2"))) },
			then:   func(w *world) { w.put(service(web, nodePort)) },
			want:   []string{"frontend 0.0.0.0:30080/TCP (NodePort, port http) appeared: forward to 2 backends"},
		},
		{
			name:   "a NodePort appears and rejects",
			before: func(w *world) { w.put(service(web)) },
			then:   func(w *world) { w.put(service(web, nodePort)) },
			want:   []string{"frontend 0.0.0.0:30080/TCP (NodePort, port http) appeared: reject (no EndpointSlice holds an endpoint for this port)"},
		},
		{
			name:   "a NodePort goes",
			before: func(w *world) { w.put(service(web, nodePort)) },
			then:   func(w *world) { w.put(service(web)) },
			want:   []string{"frontend 0.0.0.0:30080/TCP (NodePort, port http) went"},
		},
		{
			name:   "externalTrafficPolicy Local parts a NodePort in two (R11, R12)",
			before: func(w *world) { w.put(service(web, nodePort), slice(ready("10.0.0.1"))) },
			then: func(w *world) {
				w.put(service(web, nodePort, func(s *model.Service) { s.ExternalTrafficPolicy = model.PolicyLocal }))
			},
			want: []string{
				"frontend 0.0.0.0:30080/TCP (NodePort, port http) went",
				"frontend 0.0.0.0:30080/TCP (NodePort, port http, internal) appeared: forward to 1 backend",
				"frontend 0.0.0.0:30080/TCP (NodePort, port http, external) appeared: forward to 1 backend",
			},
		},
		{
			name:   "a port is renamed, and its endpoints are not",
			before: func(w *world) { w.put(service(web), slice(ready("10.0.0.1"))) },
			then:   func(w *world) { w.put(service(web, func(s *model.Service) { s.Ports[0].Name = "www" })) },
			want: []string{
				"frontend 10.96.0.1:80/TCP (ClusterIP, port http) went",
				"frontend 10.96.0.1:80/TCP (ClusterIP, port www) appeared: reject (no EndpointSlice holds an endpoint for this port)",
			},
		},
		{
			name:   "an older Service takes the address (R27)",
			before: func(w *world) { w.put(service(web)) },
			then:   func(w *world) { w.put(service(older, takeAddress)) },
			want:   []string{"frontend 10.96.0.1:80/TCP (ClusterIP, port http) is shadowed: held by default/older"},
		},
		{
			name:   "the older Service goes and gives the address back (R27)",
			before: func(w *world) { w.put(service(web), service(older, takeAddress)) },
			then:   func(w *world) { w.remove(reflector.KindService, older) },
			want:   []string{"frontend 10.96.0.1:80/TCP (ClusterIP, port http) is held by this Service again: reject (no EndpointSlice holds an endpoint for this port)"},
		},
		{
			name:   "a third Service takes the address from the one that held it (R27)",
			before: func(w *world) { w.put(service(older, takeAddress), service(web)) },
			then: func(w *world) {
				w.put(service(model.Name{Namespace: "default", Name: "oldest"}, takeAddress, takeOldest))
			},
			want: []string{"frontend 10.96.0.1:80/TCP (ClusterIP, port http) is shadowed: held by default/oldest"},
		},
		{
			name:   "the older Service was deleted and created again, and so is the younger now (R27)",
			before: func(w *world) { w.put(service(web), service(older, takeAddress)) },
			then: func(w *world) {
				w.put(service(older, func(s *model.Service) { s.CreationTimestamp = start.Add(time.Hour) }))
			},
			want: []string{"frontend 10.96.0.1:80/TCP (ClusterIP, port http) is held by this Service again: reject (no EndpointSlice holds an endpoint for this port)"},
		},
		{
			name:   "a new address is held by another from the start (R27)",
			before: func(w *world) { w.put(service(older, takeAddress, vip), service(web)) },
			then:   func(w *world) { w.put(service(web, vip)) },
			want:   []string{"frontend 192.0.2.1:80/TCP (LoadBalancer, port http) appeared, shadowed: held by default/older"},
		},
		{
			name:   "session affinity is switched on (R19)",
			before: func(w *world) { w.put(service(web)) },
			then:   func(w *world) { w.put(service(web, func(s *model.Service) { s.AffinitySeconds = 10800 })) },
			want:   []string{"port http: session affinity none → 10800 s"},
		},
		{
			name:   "Maglev is asked for",
			before: func(w *world) { w.put(service(web)) },
			then: func(w *world) {
				w.put(service(web, func(s *model.Service) { s.Selection, s.HasSelection = model.SelectionMaglev, true }))
			},
			want: []string{"port http: selection random → maglev"},
		},
		{
			name:   "source ranges close a VIP (R22)",
			before: func(w *world) { w.put(service(web, vip)) },
			then: func(w *world) {
				w.put(service(web, vip, func(s *model.Service) {
					s.SourceRanges = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("198.51.100.0/24")}
				}))
			},
			want: []string{"port http: source ranges none, open to all → 10.0.0.0/8, 198.51.100.0/24"},
		},
		{
			name:   "the Service is left to another proxy (R1)",
			before: func(w *world) { w.put(service(web)) },
			then: func(w *world) {
				w.put(service(web, func(s *model.Service) { s.HasProxyName, s.ProxyName = true, "other" }))
			},
			want: []string{
				`the Service is not served: label service.kubernetes.io/service-proxy-name leaves it to the proxy "other"`,
				"frontend 10.96.0.1:80/TCP (ClusterIP, port http) went",
			},
		},
		{
			name:   "a headless Service gets a ClusterIP (R2)",
			before: func(w *world) { w.put(service(web, func(s *model.Service) { s.ClusterIPs = nil })) },
			then:   func(w *world) { w.put(service(web)) },
			want: []string{
				"the Service is served from now on",
				"frontend 10.96.0.1:80/TCP (ClusterIP, port http) appeared: reject (no EndpointSlice holds an endpoint for this port)",
			},
		},
		{
			name: "the node moves to another zone (R15, R17)",
			before: func(w *world) {
				w.put(service(web), slice(inZone(ready("10.0.0.1"), "a"), inZone(ready("10.0.0.2"), "b")))
			},
			then: func(w *world) {
				w.SetNode(model.Node{Name: "n1", Zone: "b"})
				w.Flush()
			},
			want: []string{
				"port http: backend 10.0.0.1:8080 went (was active)",
				"port http: backend 10.0.0.2:8080 appeared (active)",
			},
		},
		{
			name:   "an endpoint is said to be on another node (R42)",
			before: func(w *world) { w.put(service(web), slice(ready("10.0.0.1"))) },
			then:   func(w *world) { w.put(slice(onNode(ready("10.0.0.1"), ""))) },
			want:   []string{"port http: backend 10.0.0.1:8080 is on no node now, was on node n1"},
		},
		{
			name:   "an endpoint moves between slices (R4)",
			before: func(w *world) { w.put(service(web), slice(ready("10.0.0.1"))) },
			then:   func(w *world) { w.put(slice(), named(slice(ready("10.0.0.1")), "web-s2")) },
			want:   []string{"port http: backend 10.0.0.1:8080 stands in EndpointSlice default/web-s2 now, was in default/web-s1"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			if tc.before != nil {
				tc.before(w)
			}
			tc.then(w)
			history := w.row(t, web).History
			if diff := cmp.Diff(tc.want, history[len(history)-1].Changes); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
		})
	}
}

func takeOldest(s *model.Service) { s.CreationTimestamp = s.CreationTimestamp.Add(-time.Hour) }

func TestHistoryNamesTheCauses(t *testing.T) {
	sliceName, older := slice().Name, model.Name{Namespace: "default", Name: "older"}
	for _, tc := range []struct {
		name string
		then func(*world)
		want []Cause
	}{
		{
			name: "a slice that changed, at its version",
			then: func(w *world) { w.put(slice(ready("10.0.0.2"))) },
			want: []Cause{{reflector.KindEndpointSlice, sliceName, "3", false, ""}},
		},
		{
			name: "a slice that was deleted",
			then: func(w *world) { w.remove(reflector.KindEndpointSlice, sliceName) },
			want: []Cause{{reflector.KindEndpointSlice, sliceName, "3", true, ""}},
		},
		{
			name: "a slice that was given to another Service was not deleted (R3)",
			then: func(w *world) {
				s := slice(ready("10.0.0.1"))
				s.Service = "other"
				w.put(s)
			},
			want: []Cause{{reflector.KindEndpointSlice, sliceName, "3", false, ""}},
		},
		{
			name: "all objects of a batch, each once and as it was last, Services first",
			then: func(w *world) {
				one, two := slice(), slice(ready("10.0.0.2"))
				one.ResourceVersion, two.ResourceVersion = "3", "4"
				changed := service(web, func(s *model.Service) { s.AffinitySeconds, s.ResourceVersion = 60, "5" })
				w.Events([]reflector.Event{
					{Kind: reflector.KindEndpointSlice, Name: sliceName, ResourceVersion: "3", Slice: one},
					{Kind: reflector.KindEndpointSlice, Name: sliceName, ResourceVersion: "4", Slice: two},
					{Kind: reflector.KindService, Name: web, ResourceVersion: "5", Service: changed},
				})
				w.Flush()
			},
			want: []Cause{{reflector.KindService, web, "5", false, ""}, {reflector.KindEndpointSlice, sliceName, "4", false, ""}},
		},
		{
			name: "the other Service that took an address (R27)",
			then: func(w *world) { w.put(service(older, takeOldest)) },
			want: []Cause{{reflector.KindService, older, "3", false, ""}},
		},
		{
			name: "the node, of which no version is known (R17)",
			then: func(w *world) {
				w.put(slice(inZone(ready("10.0.0.1"), "a"), inZone(ready("10.0.0.2"), "b")))
				w.SetNode(model.Node{Name: "n1", Zone: "b"})
				w.Flush()
			},
			want: []Cause{{reflector.KindNode, model.Name{Name: "n1"}, "", false, ""}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.put(service(web), slice(ready("10.0.0.1")))
			tc.then(w)
			history := w.row(t, web).History
			if diff := cmp.Diff(tc.want, history[len(history)-1].Causes); diff != "" {
				t.Errorf("causes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestATouchThatChangesNothing(t *testing.T) {
	w := newWorld(t)
	w.put(service(web), slice(ready("10.0.0.1")))
	before := w.row(t, web)
	w.put(service(web), slice(ready("10.0.0.1")))
	after := w.row(t, web)

	t.Run("brings the row to the objects' new versions", func(t *testing.T) {
		if after.Object.ResourceVersion != "3" || after.Slices[0].ResourceVersion != "4" {
			t.Errorf("the row is of versions %s and %s", after.Object.ResourceVersion, after.Slices[0].ResourceVersion)
		}
	})
	t.Run("adds no transition, and the row is as old as before", func(t *testing.T) {
		if len(after.History) != 1 || !after.Changed.Equal(before.Changed) {
			t.Errorf("%d transitions, changed at %v, before at %v", len(after.History), after.Changed, before.Changed)
		}
	})
	t.Run("leaves the very same Compiled, so that nothing is written", func(t *testing.T) {
		if !sameCompiled(before, after) {
			t.Error("Compiled is another")
		}
		if !sameSlice(before.Own.Claims, after.Own.Claims) || !sameSlice(before.Own.Sets, after.Own.Sets) {
			t.Error("Own is another, which is kept in memory twice")
		}
	})
	t.Run("leaves what was handed out before as it was", func(t *testing.T) {
		if before.Object.ResourceVersion != "1" || before.Slices[0].ResourceVersion != "2" {
			t.Errorf("the old row is of versions %s and %s", before.Object.ResourceVersion, before.Slices[0].ResourceVersion)
		}
	})
}

func TestHistoryIsBounded(t *testing.T) {
	t.Run("to the last 16 transitions, oldest first", func(t *testing.T) {
		w := newWorld(t)
		w.put(service(web))
		for i := range 40 {
			w.put(slice(ready(fmt.Sprintf("10.0.0.%d", i+1))))
		}
		history := w.row(t, web).History
		if len(history) != 16 {
			t.Fatalf("%d transitions", len(history))
		}
		for i, transition := range history {
			if want := start.Add(time.Duration(26+i) * time.Second); !transition.Time.Equal(want) {
				t.Errorf("transition %d is of %v, want %v", i, transition.Time, want)
			}
		}
	})
	t.Run("to 20 facts per transition, of which the last counts the rest", func(t *testing.T) {
		w := newWorld(t)
		w.put(service(web), slice(ready("10.0.1.1")))
		many := []model.Endpoint{ready("10.0.1.1")}
		for i := range 100 {
			many = append(many, ready(fmt.Sprintf("10.0.0.%d", i+1)))
		}
		w.put(slice(many...))
		history := w.row(t, web).History
		changes := history[len(history)-1].Changes
		if len(changes) != 20 || changes[18] != "port http: backend 10.0.0.19:8080 appeared (active)" || changes[19] != "and 81 more changes" {
			t.Errorf("%d facts: %q", len(changes), changes)
		}
	})
	t.Run("and 20 facts are told in full", func(t *testing.T) {
		w := newWorld(t)
		w.put(service(web), slice(ready("10.0.1.1")))
		some := []model.Endpoint{ready("10.0.1.1")}
		for i := range 20 {
			some = append(some, ready(fmt.Sprintf("10.0.0.%d", i+1)))
		}
		w.put(slice(some...))
		history := w.row(t, web).History
		changes := history[len(history)-1].Changes
		if len(changes) != 20 || changes[19] != "port http: backend 10.0.0.20:8080 appeared (active)" {
			t.Errorf("%d facts: %q", len(changes), changes)
		}
	})
}
