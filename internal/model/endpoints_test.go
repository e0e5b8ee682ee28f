// SPDX-License-Identifier: Apache-2.0

package model

import (
	"slices"
	"testing"
)

const (
	unready      = "no endpoint is ready, and none still serves while it terminates"
	noneInSlices = "no EndpointSlice holds an endpoint for this port"
)

func TestCompileEndpoints(t *testing.T) {
	clusterIP := "10.96.0.1:80/TCP all ClusterIP "
	localOnly := func(s *Service) { s.InternalTrafficPolicy = PolicyLocal }
	a := ready("10.0.1.1", "n1")
	b := ready("10.0.2.1", "n2")

	runCases(t, []compileCase{
		{
			name: "slices join by namespace and exact name, never by prefix (R3)",
			svc:  service(),
			slices: []*EndpointSlice{
				slice("web-1", a),
				with(slice("web-2", b), func(s *EndpointSlice) { s.Service = "web-admin" }),
				with(slice("web-1", b), func(s *EndpointSlice) { s.Namespace = "other" }),
			},
			want: []string{clusterIP + "forward 10.0.1.1:8080"},
		}, {
			name: "slice ports match by name and protocol, not by one of them (R5)",
			svc:  service(func(s *Service) { s.Ports = []ServicePort{{Name: "dns", Protocol: UDP, Port: 53}} }),
			slices: []*EndpointSlice{
				with(slice("web-1", a), func(s *EndpointSlice) { s.Ports = []EndpointPort{{"dns", TCP, 5301}, {"metrics", UDP, 5302}} }),
				with(slice("web-2", b), func(s *EndpointSlice) { s.Ports = []EndpointPort{{"dns", UDP, 5303}} }),
			},
			want: []string{"10.96.0.1:53/UDP all ClusterIP forward 10.0.2.1:5303"},
		}, {
			name: "a named target port differs from endpoint to endpoint (R5)",
			svc:  service(),
			slices: []*EndpointSlice{
				slice("web-1", a),
				with(slice("web-2", b), func(s *EndpointSlice) { s.Ports[0].Port = 9090 }),
			},
			want: []string{clusterIP + "forward 10.0.1.1:8080 10.0.2.1:9090"},
		}, {
			name:   "an endpoint in several slices stands once (R4)",
			svc:    service(),
			slices: []*EndpointSlice{slice("web-2", a, b), slice("web-1", a)},
			want:   []string{clusterIP + "forward 10.0.1.1:8080 10.0.2.1:8080"},
		}, {
			name: "a ready copy speaks before a serving one, and that before a terminating one (R4)",
			svc:  service(),
			slices: []*EndpointSlice{
				slice("web-1", endpointAt("10.0.1.1", "n1", "terminating"), endpointAt("10.0.1.2", "n1", "terminating")),
				slice("web-2", endpointAt("10.0.1.1", "n1", "serving", "terminating"), endpointAt("10.0.1.2", "n1", "ready")),
			},
			want: []string{clusterIP + "forward 10.0.1.2:8080 draining 10.0.1.1:8080"},
		}, {
			name: "a local copy speaks before a remote one in the same condition (R4)",
			svc:  service(localOnly),
			slices: []*EndpointSlice{
				slice("web-1", ready("10.0.1.1", "n2")),
				slice("web-2", ready("10.0.1.1", "n1")),
			},
			want: []string{clusterIP + "forward 10.0.1.1:8080"},
		}, {
			name: "a remote ready copy speaks before a local terminating one (R4)",
			svc:  service(localOnly),
			slices: []*EndpointSlice{
				slice("web-1", endpointAt("10.0.1.1", "n1", "serving", "terminating")),
				slice("web-2", ready("10.0.1.1", "n2")),
			},
			want: []string{clusterIP + "drop: internalTrafficPolicy is Local and no endpoint on this node is usable (1 elsewhere)"},
		}, {
			name:   "an endpoint is its first address, as for kube-proxy (R4)",
			svc:    service(),
			slices: []*EndpointSlice{slice("web-1", Endpoint{Addresses: addrs("10.0.1.1", "10.0.1.2"), Ready: true}, Endpoint{Ready: true})},
			want:   []string{clusterIP + "forward 10.0.1.1:8080"},
		}, {
			name:   "an address of another family than its slice is no endpoint (R4)",
			svc:    service(),
			slices: []*EndpointSlice{slice("web-1", ready("fd00::1", "n1"), a)},
			want:   []string{clusterIP + "forward 10.0.1.1:8080"},
		}, {
			name: "terminating endpoints serve only when nothing is ready (R7)",
			svc:  service(),
			slices: []*EndpointSlice{slice("web-1", a,
				endpointAt("10.0.2.1", "n2", "serving", "terminating"), endpointAt("10.0.2.2", "n2", "terminating"))},
			want: []string{clusterIP + "forward 10.0.1.1:8080 draining 10.0.2.1:8080 10.0.2.2:8080"},
		}, {
			name: "with nothing ready, those that still serve while they terminate take over (R7)",
			svc:  service(),
			slices: []*EndpointSlice{slice("web-1",
				endpointAt("10.0.2.1", "n2", "serving", "terminating"), endpointAt("10.0.2.2", "n2", "terminating"), endpointAt("10.0.2.3", "n2"))},
			want: []string{clusterIP + "forward 10.0.2.1:8080=terminating draining 10.0.2.2:8080"},
		}, {
			name:   "an endpoint that does not serve is never used, ready or not elsewhere (R7)",
			svc:    service(),
			slices: []*EndpointSlice{slice("web-1", endpointAt("10.0.2.1", "n2"), endpointAt("10.0.2.2", "n2", "terminating"))},
			want:   []string{clusterIP + "reject draining 10.0.2.2:8080: " + unready + " (2 known)"},
		}, {
			name:   "an endpoint that serves but is neither ready nor terminating is not used (R7)",
			svc:    service(),
			slices: []*EndpointSlice{slice("web-1", endpointAt("10.0.2.1", "n2", "serving"))},
			want:   []string{clusterIP + "reject: " + unready + " (1 known)"},
		}, {
			name:   "a terminating endpoint that is published as ready is ready (R8)",
			svc:    service(),
			slices: []*EndpointSlice{slice("web-1", endpointAt("10.0.2.1", "n2", "ready", "terminating"))},
			want:   []string{clusterIP + "forward 10.0.2.1:8080"},
		}, {
			name:   "policy Local falls back to its own terminating endpoints, whatever is ready elsewhere (R7, R10)",
			svc:    service(localOnly),
			slices: []*EndpointSlice{slice("web-1", endpointAt("10.0.1.1", "n1", "serving", "terminating"), b)},
			want:   []string{clusterIP + "forward 10.0.1.1:8080=terminating"},
		}, {
			name: "policy Local drains this node's endpoints only (R9, R10)",
			svc:  service(localOnly),
			slices: []*EndpointSlice{slice("web-1", a,
				endpointAt("10.0.1.2", "n1", "terminating"), endpointAt("10.0.2.2", "n2", "terminating"))},
			want: []string{clusterIP + "forward 10.0.1.1:8080 draining 10.0.1.2:8080"},
		}, {
			name:   "none local but some elsewhere is dropped (R10)",
			svc:    service(localOnly),
			slices: []*EndpointSlice{slice("web-1", b, ready("10.0.2.2", "n2"), endpointAt("10.0.2.3", "n2", "serving", "terminating"))},
			want:   []string{clusterIP + "drop: internalTrafficPolicy is Local and no endpoint on this node is usable (2 elsewhere)"},
		}, {
			name:   "none usable anywhere is refused, under policy Local too (R10, R13)",
			svc:    service(localOnly),
			slices: []*EndpointSlice{slice("web-1", endpointAt("10.0.1.1", "n1"))},
			want:   []string{clusterIP + "reject: " + unready + " (1 known)"},
		}, {
			name: "no endpoint at all is refused (R13)",
			svc:  service(),
			want: []string{clusterIP + "reject: " + noneInSlices},
		}, {
			name:   "an endpoint without a node is not local (R42)",
			svc:    service(localOnly),
			slices: []*EndpointSlice{slice("web-1", ready("10.0.1.1", ""))},
			want:   []string{clusterIP + "drop: internalTrafficPolicy is Local and no endpoint on this node is usable (1 elsewhere)"},
		}, {
			name:   "nothing is local to a node without a name (R42)",
			svc:    service(localOnly),
			node:   &Node{},
			slices: []*EndpointSlice{slice("web-1", ready("10.0.1.1", ""))},
			want:   []string{clusterIP + "drop: internalTrafficPolicy is Local and no endpoint on this node is usable (1 elsewhere)"},
		},
	})

	t.Run("a backend names every slice that holds it, sorted (R4)", func(t *testing.T) {
		in := []*EndpointSlice{slice("web-3", a), slice("web-1", a, b, a), slice("web-2", a)}
		c := Compile(service(), in, &thisNode, &Options{})
		want := []Name{{"default", "web-1"}, {"default", "web-2"}, {"default", "web-3"}}
		if got := c.Sets[0].Backends[0].Slices; !slices.Equal(got, want) {
			t.Errorf("slices are %v, want %v", got, want)
		}
		if got := c.Sets[0].Backends[1].Slices; !slices.Equal(got, want[:1]) {
			t.Errorf("slices are %v, want %v", got, want[:1])
		}
	})

	t.Run("of copies in one condition, that of the first slice by name speaks (R4)", func(t *testing.T) {
		in := []*EndpointSlice{slice("web-2", ready("10.0.1.1", "n2")), slice("web-1", ready("10.0.1.1", "n3"))}
		c := Compile(service(), in, &thisNode, &Options{})
		if got := c.Sets[0].Backends[0].Node; got != "n3" {
			t.Errorf("the backend is on %s, want n3, as slice web-1 has it", got)
		}
	})

	t.Run("a slice that repeats an endpoint means the same in either order (R4)", func(t *testing.T) {
		one, two := ready("10.0.1.1", "n2"), ready("10.0.1.1", "n3")
		a := Compile(service(), []*EndpointSlice{slice("web-1", one, two)}, &thisNode, &Options{})
		b := Compile(service(), []*EndpointSlice{slice("web-1", two, one)}, &thisNode, &Options{})
		if !a.Equal(&b) {
			t.Errorf("%+v is not %+v", a.Sets[0].Backends, b.Sets[0].Backends)
		}
	})

	t.Run("backends of one slice share the list that names it", func(t *testing.T) {
		c := Compile(service(), []*EndpointSlice{slice("web-1", a, b)}, &thisNode, &Options{})
		backends := c.Sets[0].Backends
		if &backends[0].Slices[0] != &backends[1].Slices[0] {
			t.Error("two backends of one slice hold two lists")
		}
	})
}

func TestCompileTopology(t *testing.T) {
	forward := "10.96.0.1:80/TCP all ClusterIP forward "
	one := func(endpoints ...Endpoint) []*EndpointSlice { return []*EndpointSlice{slice("web-1", endpoints...)} }

	runCases(t, []compileCase{
		{
			name: "node hints on all, one for this node: same node only (R15, R16)",
			svc:  service(),
			slices: one(ready("10.0.1.1", "n1", "node=n1", "zone=a"), ready("10.0.1.2", "n2", "node=n2", "zone=a"),
				ready("10.0.1.3", "n3", "node=n3", "node=n1", "zone=b")),
			want: []string{forward + "10.0.1.1:8080 10.0.1.3:8080"},
		}, {
			name:   "no node hint for this node: zone hints decide (R15)",
			svc:    service(),
			slices: one(ready("10.0.1.1", "n4", "node=n4", "zone=b"), ready("10.0.1.2", "n2", "node=n2", "zone=a")),
			want:   []string{forward + "10.0.1.2:8080"},
		}, {
			name:   "one ready endpoint without node hints: zone hints decide (R15)",
			svc:    service(),
			slices: one(ready("10.0.1.1", "n1", "node=n1", "zone=b"), ready("10.0.1.2", "n2", "zone=a")),
			want:   []string{forward + "10.0.1.2:8080"},
		}, {
			name:   "one ready endpoint without zone hints: all serve (R15)",
			svc:    service(),
			slices: one(ready("10.0.1.1", "n1", "zone=b"), ready("10.0.1.2", "n2", "zone=a"), ready("10.0.1.3", "n2")),
			want:   []string{forward + "10.0.1.1:8080 10.0.1.2:8080 10.0.1.3:8080"},
		}, {
			name:   "no hint for this zone: all serve (R15)",
			svc:    service(),
			slices: one(ready("10.0.1.1", "n1", "zone=b"), ready("10.0.1.2", "n2", "zone=c")),
			want:   []string{forward + "10.0.1.1:8080 10.0.1.2:8080"},
		}, {
			name: "hints of endpoints that are not ready have no say (R15)",
			svc:  service(),
			slices: one(ready("10.0.1.1", "n1", "zone=b"), ready("10.0.1.2", "n2", "zone=a"),
				endpointAt("10.0.1.3", "n2"), endpointAt("10.0.1.4", "n2", "serving", "terminating", "zone=b")),
			want: []string{forward + "10.0.1.2:8080 draining 10.0.1.4:8080"},
		}, {
			name:   "the fallback takes terminating endpoints of every zone (R7, R15)",
			svc:    service(),
			slices: one(endpointAt("10.0.1.3", "n2", "serving", "terminating", "zone=a"), endpointAt("10.0.1.4", "n2", "serving", "terminating", "zone=b")),
			want:   []string{forward + "10.0.1.3:8080=terminating 10.0.1.4:8080=terminating"},
		}, {
			name:   "policy Local does not ask hints (R10, R15)",
			svc:    service(func(s *Service) { s.InternalTrafficPolicy = PolicyLocal }),
			slices: one(ready("10.0.1.1", "n1", "zone=b"), ready("10.0.1.2", "n2", "zone=a")),
			want:   []string{forward + "10.0.1.1:8080"},
		}, {
			name:   "another zone of the node gives another result (R17)",
			svc:    service(),
			node:   &Node{Name: "n1", Zone: "b"},
			slices: one(ready("10.0.1.1", "n1", "zone=b"), ready("10.0.1.2", "n2", "zone=a")),
			want:   []string{forward + "10.0.1.1:8080"},
		}, {
			name:   "a node without a zone uses all (R15)",
			svc:    service(),
			node:   &Node{Name: "n1"},
			slices: one(ready("10.0.1.1", "n1", "zone=b"), ready("10.0.1.2", "n2", "zone=a")),
			want:   []string{forward + "10.0.1.1:8080 10.0.1.2:8080"},
		},
	})
}
