// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"slices"
	"testing"

	"github.com/fairlead-io/fairlead/internal/model"
)

func TestKernelFollowsTheRows(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before func(*world)
		then   func(*world)
		// keep are the frontends that must be there all the time.
		keep []string
		want []string
	}{
		{
			name: "a Service with a backend forwards",
			then: func(w *world) { w.put(service("a", 1), endpoints("a", 1)) },
			want: []string{"10.96.0.1:80/TCP internal default/a: forward 10.0.0.1:8080"},
		},
		{
			name: "a Service without an endpoint is there to reject (R13)",
			then: func(w *world) { w.put(service("a", 1)) },
			want: []string{"10.96.0.1:80/TCP internal default/a: reject"},
		},
		{
			name:   "backends change under a frontend that stays",
			before: func(w *world) { w.put(service("a", 1), endpoints("a", 1)) },
			then:   func(w *world) { w.put(endpoints("a", 2, 3)) },
			keep:   []string{"10.96.0.1:80"},
			want:   []string{"10.96.0.1:80/TCP internal default/a: forward 10.0.0.2:8080 10.0.0.3:8080"},
		},
		{
			name:   "a deleted Service takes its frontends and sets along",
			before: func(w *world) { w.put(service("a", 1, nodePort), endpoints("a", 1), service("b", 2)) },
			then:   func(w *world) { w.remove("a") },
			keep:   []string{"10.96.0.2:80"},
			want:   []string{"10.96.0.2:80/TCP internal default/b: reject"},
		},
		{
			name:   "a Service that is left to another proxy takes its frontends along (R1)",
			before: func(w *world) { w.put(service("a", 1), endpoints("a", 1)) },
			then: func(w *world) {
				w.put(service("a", 1, func(s *model.Service) { s.HasProxyName, s.ProxyName = true, "other" }))
			},
		},
		{
			name: "an SCTP port writes nothing, and its neighbour is served (R28)",
			then: func(w *world) {
				w.put(service("a", 1, func(s *model.Service) {
					s.Ports = append(s.Ports, model.ServicePort{Name: "sctp", Protocol: model.SCTP, Port: 81})
				}))
			},
			want: []string{"10.96.0.1:80/TCP internal default/a: reject"},
		},
		{
			name:   "an older Service takes an address over, which is never missing (R27)",
			before: func(w *world) { w.put(service("b", 1), endpoints("b", 2)) },
			then:   func(w *world) { w.put(service("a", 1), endpoints("a", 1)) },
			keep:   []string{"10.96.0.1:80"},
			want:   []string{"10.96.0.1:80/TCP internal default/a: forward 10.0.0.1:8080"},
		},
		{
			name:   "the loser takes the address back when the winner goes (R27)",
			before: func(w *world) { w.put(service("a", 1), endpoints("a", 1), service("b", 1), endpoints("b", 2)) },
			then:   func(w *world) { w.remove("a") },
			keep:   []string{"10.96.0.1:80"},
			want:   []string{"10.96.0.1:80/TCP internal default/b: forward 10.0.0.2:8080"},
		},
		{
			name:   "two Services exchange their addresses",
			before: func(w *world) { w.put(service("a", 1), endpoints("a", 1), service("b", 2), endpoints("b", 2)) },
			then:   func(w *world) { w.put(service("a", 2), service("b", 1)) },
			keep:   []string{"10.96.0.1:80", "10.96.0.2:80"},
			want: []string{
				"10.96.0.1:80/TCP internal default/b: forward 10.0.0.2:8080",
				"10.96.0.2:80/TCP internal default/a: forward 10.0.0.1:8080",
			},
		},
		{
			name:   "externalTrafficPolicy becomes Local: traffic from inside goes on (R11, R12)",
			before: func(w *world) { w.put(service("a", 1, nodePort), endpoints("a", 1)) },
			then:   func(w *world) { w.put(service("a", 1, nodePort, local)) },
			keep:   []string{"0.0.0.0:30080", "10.96.0.1:80"},
			want: []string{
				"0.0.0.0:30080/TCP internal default/a: forward 10.0.0.1:8080",
				"0.0.0.0:30080/TCP external default/a: forward 10.0.0.1:8080",
				"10.96.0.1:80/TCP internal default/a: forward 10.0.0.1:8080",
			},
		},
		{
			name:   "externalTrafficPolicy becomes Cluster again: one row serves both (R12)",
			before: func(w *world) { w.put(service("a", 1, nodePort, local), endpoints("a", 1)) },
			then:   func(w *world) { w.put(service("a", 1, nodePort)) },
			keep:   []string{"0.0.0.0:30080", "10.96.0.1:80"},
			want: []string{
				"0.0.0.0:30080/TCP internal default/a: forward 10.0.0.1:8080",
				"10.96.0.1:80/TCP internal default/a: forward 10.0.0.1:8080",
			},
		},
		{
			name:   "a renamed port keeps its address",
			before: func(w *world) { w.put(service("a", 1), endpoints("a", 1)) },
			then:   func(w *world) { w.put(service("a", 1, func(s *model.Service) { s.Ports[0].Name = "www" })) },
			keep:   []string{"10.96.0.1:80"},
			want:   []string{"10.96.0.1:80/TCP internal default/a: reject"},
		},
		{
			name:   "a Service that was deleted and created again within a batch never went",
			before: func(w *world) { w.put(service("a", 1), endpoints("a", 1)) },
			then: func(w *world) {
				w.remove("a")
				w.put(service("a", 1))
			},
			keep: []string{"10.96.0.1:80"},
			want: []string{"10.96.0.1:80/TCP internal default/a: forward 10.0.0.1:8080"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, newKernel(t))
			w.list()
			if tc.before != nil {
				tc.before(w)
				w.reconciler.Step()
			}
			w.keep = keysOf(w.kernel, tc.keep)
			tc.then(w)
			w.reconciler.Step()
			expect(t, "the kernel holds", w.text(), tc.want...)
			expectAllDone(t, w)
			expectSetsOfRows(t, w)
		})
	}
}

// keysOf are the keys in the kernel with these addresses and ports.
func keysOf(k *kernel, addresses []string) []model.FrontendKey {
	var keys []model.FrontendKey
	for key := range k.elements {
		spot := key.String()
		if slices.Contains(addresses, spot[:len(spot)-len("/TCP")]) && key.Scope == model.ScopeInternal {
			keys = append(keys, key)
		}
	}
	if len(keys) != len(addresses) {
		k.t.Fatalf("the kernel does not hold all of %v: %v", addresses, k.text())
	}
	return keys
}

func expectAllDone(t *testing.T, w *world) {
	t.Helper()
	for _, line := range w.statuses() {
		if line[len(line)-len("Done"):] != "Done" {
			t.Errorf("status: %s", line)
		}
	}
}

// expectSetsOfRows checks that the kernel has each set of the rows once, and
// none beside: a leaked one would never be freed. A set may be missing only if
// all claims on it are shadowed: then nobody waits for it.
func expectSetsOfRows(t reporter, w *world) {
	t.Helper()
	missing := map[model.SetKey]bool{} // true if it must be there
	for row := range w.tables.Snapshot().Services() {
		for _, c := range row.Compiled.Claims {
			k := row.Compiled.Sets[c.Set].Key
			missing[k] = missing[k] || inForce(row, &c)
		}
	}
	for id, s := range w.sets {
		if _, ok := missing[s.key]; !ok {
			t.Fatalf("set %d of %s is one too many", id, s.key)
		}
		delete(missing, s.key)
	}
	for k, must := range missing {
		if must {
			t.Fatalf("%s has no set", k)
		}
	}
}

func TestRolesOfOnePortShareTheirOwner(t *testing.T) {
	w := newWorld(t, newKernel(t))
	w.list()
	w.put(service("a", 1), service("b", 2))
	w.reconciler.Step()
	w.put(service("a", 1, nodePort, local), service("b", 2))
	w.reconciler.Step()
	owners := map[string]map[uint32]bool{}
	for _, s := range w.sets {
		name := s.key.Service.Name
		if owners[name] == nil {
			owners[name] = map[uint32]bool{}
		}
		owners[name][s.owner] = true
	}
	if len(w.sets) != 4 || len(owners["a"]) != 1 || len(owners["b"]) != 1 {
		t.Errorf("%d sets, owners %v", len(w.sets), owners)
	}
}

func TestWhatDoesNotConcernTheKernelIsNotWritten(t *testing.T) {
	w := newWorld(t, newKernel(t))
	w.list()
	w.put(service("a", 1), endpoints("a", 1))
	w.reconciler.Step()
	t.Run("a touch that changes nothing calls nothing, and the row is done (R34)", func(t *testing.T) {
		w.calls = nil
		w.put(service("a", 1), endpoints("a", 1))
		w.reconciler.Step()
		if slices.Contains(w.calls, "Publish") || slices.Contains(w.calls, "CreateSet") {
			t.Errorf("calls %v", w.calls)
		}
		expectAllDone(t, w)
	})
	t.Run("a change of one Service publishes no set of another (R34)", func(t *testing.T) {
		w.put(service("b", 2), endpoints("b", 1))
		w.reconciler.Step()
		w.calls = nil
		w.put(endpoints("b"))
		w.reconciler.Step()
		published := 0
		for _, c := range w.calls {
			if c == "Publish" {
				published++
			}
		}
		if published != 1 {
			t.Errorf("calls %v", w.calls)
		}
	})
}
