// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"strings"
	"testing"
)

func TestWhatDoesNotFitIsAnErrorOnExactlyItsRows(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before func(*world)
		limit  func(*kernel)
		then   func(*world)
		// keep are the frontends that must be there all the time.
		keep   []string
		kernel []string
		status []string
		// room is what makes room, and healed what is held then.
		room   func(*world)
		healed []string
	}{
		{
			name:   "no slots for a new Service's backends",
			before: func(w *world) { w.put(service("a", 1), endpoints("a", 1)) },
			limit:  func(k *kernel) { k.maxSlots = 3 },
			then:   func(w *world) { w.put(service("b", 2), endpoints("b", 2), service("c", 3)) },
			keep:   []string{"10.96.0.1:80"},
			kernel: []string{
				"10.96.0.1:80/TCP internal default/a: forward 10.0.0.1:8080",
				"10.96.0.3:80/TCP internal default/c: reject",
			},
			status: []string{
				"a 10.96.0.1:80/TCP Done",
				"b 10.96.0.2:80/TCP Error: no room for the backends of default/b:http/TCP/IPv4/cluster-ip",
				"c 10.96.0.3:80/TCP Done",
			},
			room: func(w *world) { w.remove("a") },
			healed: []string{
				"10.96.0.2:80/TCP internal default/b: forward 10.0.0.2:8080",
				"10.96.0.3:80/TCP internal default/c: reject",
			},
		},
		{
			name:   "no slots for a change: the backends of before stay in force",
			before: func(w *world) { w.put(service("a", 1), endpoints("a", 1), service("b", 2), endpoints("b", 2)) },
			limit:  func(k *kernel) { k.maxSlots = 6 },
			then:   func(w *world) { w.put(endpoints("b", 2, 3)) },
			keep:   []string{"10.96.0.1:80", "10.96.0.2:80"},
			kernel: []string{
				"10.96.0.1:80/TCP internal default/a: forward 10.0.0.1:8080",
				"10.96.0.2:80/TCP internal default/b: forward 10.0.0.2:8080",
			},
			status: []string{
				"a 10.96.0.1:80/TCP Done",
				"b 10.96.0.2:80/TCP Error: no room for the backends of default/b:http/TCP/IPv4/cluster-ip",
			},
			room: func(w *world) { w.put(endpoints("a")) },
			healed: []string{
				"10.96.0.1:80/TCP internal default/a: reject",
				"10.96.0.2:80/TCP internal default/b: forward 10.0.0.2:8080 10.0.0.3:8080",
			},
		},
		{
			name:   "no set for a second role: the first is served",
			before: func(w *world) { w.put(service("a", 1), service("b", 2)) },
			limit:  func(k *kernel) { k.maxSets = 2 },
			then:   func(w *world) { w.put(service("b", 2, nodePort)) },
			keep:   []string{"10.96.0.1:80", "10.96.0.2:80"},
			kernel: []string{
				"10.96.0.1:80/TCP internal default/a: reject",
				"10.96.0.2:80/TCP internal default/b: reject",
			},
			status: []string{
				"a 10.96.0.1:80/TCP Done",
				"b 0.0.0.0:30080/TCP Error: no room for set default/b:http/TCP/IPv4/internal",
				"b 10.96.0.2:80/TCP Done",
			},
			room: func(w *world) { w.remove("a") },
			healed: []string{
				"0.0.0.0:30080/TCP internal default/b: reject",
				"10.96.0.2:80/TCP internal default/b: reject",
			},
		},
		{
			name:   "no element for a second address: the first is served",
			before: func(w *world) { w.put(service("a", 1), service("b", 2)) },
			limit:  func(k *kernel) { k.maxFrontends = 3 },
			then:   func(w *world) { w.put(service("b", 2, externalIP(1), externalIP(2))) },
			keep:   []string{"10.96.0.1:80", "10.96.0.2:80"},
			kernel: []string{
				"10.96.0.1:80/TCP internal default/a: reject",
				"10.96.0.2:80/TCP internal default/b: reject",
				"192.0.2.1:80/TCP internal default/b: reject",
			},
			status: []string{
				"a 10.96.0.1:80/TCP Done",
				"b 10.96.0.2:80/TCP Done",
				"b 192.0.2.1:80/TCP Done",
				"b 192.0.2.2:80/TCP Error: no room for frontend 192.0.2.2:80/TCP",
			},
			room: func(w *world) { w.remove("a") },
			healed: []string{
				"10.96.0.2:80/TCP internal default/b: reject",
				"192.0.2.1:80/TCP internal default/b: reject",
				"192.0.2.2:80/TCP internal default/b: reject",
			},
		},
		{
			name:   "a full map lets an address change hands (R27)",
			before: func(w *world) { w.put(service("b", 1), service("c", 2)) },
			limit:  func(k *kernel) { k.maxFrontends = 2 },
			then:   func(w *world) { w.put(service("a", 1)) },
			keep:   []string{"10.96.0.1:80", "10.96.0.2:80"},
			kernel: []string{
				"10.96.0.1:80/TCP internal default/a: reject",
				"10.96.0.2:80/TCP internal default/c: reject",
			},
			status: []string{"a 10.96.0.1:80/TCP Done", "b 10.96.0.1:80/TCP Done", "c 10.96.0.2:80/TCP Done"},
			room:   func(w *world) { w.remove("a") },
			healed: []string{
				"10.96.0.1:80/TCP internal default/b: reject",
				"10.96.0.2:80/TCP internal default/c: reject",
			},
		},
		{
			name:   "a full map lets one Service go and another come in one batch",
			before: func(w *world) { w.put(service("a", 1), service("b", 2)) },
			limit:  func(k *kernel) { k.maxFrontends = 2 },
			then:   func(w *world) { w.remove("a"); w.put(service("c", 3)) },
			keep:   []string{"10.96.0.2:80"},
			kernel: []string{
				"10.96.0.2:80/TCP internal default/b: reject",
				"10.96.0.3:80/TCP internal default/c: reject",
			},
			status: []string{"b 10.96.0.2:80/TCP Done", "c 10.96.0.3:80/TCP Done"},
			room:   func(w *world) { w.remove("c") },
			healed: []string{"10.96.0.2:80/TCP internal default/b: reject"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, newKernel(t))
			w.list()
			tc.before(w)
			w.reconciler.Step()
			tc.limit(w.kernel)
			w.keep = keysOf(w.kernel, tc.keep)
			tc.then(w)
			w.reconciler.Step()
			expect(t, "the kernel holds", w.text(), tc.kernel...)
			expect(t, "statuses", w.statuses(), tc.status...)

			w.keep = nil
			tc.room(w)
			w.reconciler.Step()
			w.reclaim()
			w.reconciler.tryAgain()
			expect(t, "after there is room the kernel holds", w.text(), tc.healed...)
			expectAllDone(t, w)
			expectSetsOfRows(t, w)
		})
	}
}

func TestEveryCallMayFailAndIsTriedAgain(t *testing.T) {
	full := []string{
		"0.0.0.0:30080/TCP internal default/b: forward 10.0.0.2:8080",
		"10.96.0.2:80/TCP internal default/b: forward 10.0.0.2:8080",
	}
	for _, method := range []string{"CreateSet", "Publish", "insert", "delete"} {
		t.Run(method, func(t *testing.T) {
			w := newWorld(t, newKernel(t))
			w.list()
			w.put(service("a", 1), endpoints("a", 1))
			w.reconciler.Step()

			w.fails(method)
			w.remove("a")
			w.put(service("b", 2, nodePort), endpoints("b", 2))
			w.reconciler.Step()
			if !w.reconciler.unfinished() {
				t.Error("nothing is left to be tried again")
			}
			for _, line := range w.statuses() {
				if failed := strings.HasSuffix(line, "Error: injected fault"); failed != (method != "delete") {
					t.Errorf("status: %s", line)
				}
			}
			w.fault = nil
			w.reconciler.tryAgain()
			expect(t, "the kernel holds", w.text(), full...)
			expectAllDone(t, w)
			expectSetsOfRows(t, w)
			if w.reconciler.unfinished() {
				t.Error("something is still to be tried again")
			}
		})
	}
	t.Run("ReleaseSet, which leaves no set behind even so", func(t *testing.T) {
		w := newWorld(t, newKernel(t))
		w.list()
		w.put(service("a", 1))
		w.reconciler.Step()
		w.fails("ReleaseSet")
		w.remove("a")
		w.reconciler.Step()
		expectSetsOfRows(t, w)
	})
}

func TestFrontendsThatCouldNotBeDeleted(t *testing.T) {
	begin := func(t *testing.T) *world {
		w := newWorld(t, newKernel(t))
		w.list()
		w.put(service("a", 1, externalIP(1), externalIP(2)), endpoints("a", 1))
		w.reconciler.Step()
		w.fails("delete")
		w.put(service("a", 1, externalIP(2)))
		w.reconciler.Step()
		return w
	}
	t.Run("are deleted later", func(t *testing.T) {
		w := begin(t)
		w.fault = nil
		w.reconciler.tryAgain()
		expect(t, "the kernel holds", w.text(),
			"10.96.0.1:80/TCP internal default/a: forward 10.0.0.1:8080",
			"192.0.2.2:80/TCP internal default/a: forward 10.0.0.1:8080")
	})
	t.Run("are left alone if they are wanted again by then", func(t *testing.T) {
		w := begin(t)
		w.fault = nil
		w.keep = keysOf(w.kernel, []string{"192.0.2.1:80", "192.0.2.2:80"})
		w.put(service("a", 1, externalIP(1), externalIP(2)))
		w.reconciler.Step()
		w.reconciler.tryAgain()
		expectAllDone(t, w)
	})
	t.Run("are left to the Service that has taken them by then", func(t *testing.T) {
		w := begin(t)
		w.fault = nil
		w.keep = keysOf(w.kernel, []string{"192.0.2.1:80"})
		w.put(service("b", 2, externalIP(1)))
		w.reconciler.Step()
		w.reconciler.tryAgain()
		expect(t, "the kernel holds", w.text(),
			"10.96.0.1:80/TCP internal default/a: forward 10.0.0.1:8080",
			"10.96.0.2:80/TCP internal default/b: reject",
			"192.0.2.1:80/TCP internal default/b: reject",
			"192.0.2.2:80/TCP internal default/a: forward 10.0.0.1:8080")
		expectSetsOfRows(t, w)
	})
	t.Run("of a Service that is gone keep its sets until they are deleted", func(t *testing.T) {
		w := begin(t)
		w.remove("a")
		w.reconciler.Step()
		if len(w.sets) != 2 {
			t.Errorf("%d sets", len(w.sets))
		}
		w.fault = nil
		w.reconciler.tryAgain()
		expect(t, "the kernel holds", w.text())
		expectSetsOfRows(t, w)
	})
	t.Run("of a Service that is gone and came again go to its new sets", func(t *testing.T) {
		w := begin(t)
		w.remove("a")
		w.reconciler.Step()
		w.fault = nil
		w.keep = keysOf(w.kernel, []string{"10.96.0.1:80"})
		w.put(service("a", 1))
		w.reconciler.Step()
		w.reconciler.tryAgain()
		expect(t, "the kernel holds", w.text(), "10.96.0.1:80/TCP internal default/a: forward 10.0.0.1:8080")
		expectSetsOfRows(t, w)
	})
}
