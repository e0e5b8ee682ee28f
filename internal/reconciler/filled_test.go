// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-io/fairlead/internal/model"
)

func TestFilled(t *testing.T) {
	t.Run("waits for the first lists, and is called once (R33)", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, newKernel(t))
			defer running(w)()
			w.put(service("a", 1))
			pass(time.Minute)
			if w.filled != 0 || w.pruned || len(w.elements) != 0 {
				t.Errorf("before: filled %d times, pruned %v, %v", w.filled, w.pruned, w.text())
			}
			w.list()
			w.writer.Flush()
			synctest.Wait()
			w.put(service("b", 2))
			pass(time.Hour)
			if w.filled != 1 || !w.pruned || !w.reconciler.Stats.Filled.Load() {
				t.Errorf("after: filled %d times, pruned %v", w.filled, w.pruned)
			}
		})
	})
	t.Run("comes for an empty cluster too", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, newKernel(t))
			w.list()
			w.writer.Flush()
			running(w)()
			if w.filled != 1 {
				t.Errorf("filled %d times", w.filled)
			}
		})
	})
	t.Run("does not wait for rows that cannot be written", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, newKernel(t))
			w.list()
			w.fails("Publish")
			w.put(service("a", 1))
			running(w)()
			if w.filled != 1 {
				t.Errorf("filled %d times", w.filled)
			}
		})
	})
	t.Run("is tried again when it fails, later each time, and Prune is not", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, newKernel(t))
			w.change(func() { w.fillError = errors.New("not yet") })
			w.list()
			w.put(service("a", 1))
			defer running(w)()
			pass(time.Second)
			if w.filled != 4 || w.reconciler.Stats.Filled.Load() {
				t.Errorf("filled %d times in a second", w.filled)
			}
			w.change(func() { w.fillError = nil })
			pass(time.Minute)
			if w.filled != 5 || !w.reconciler.Stats.Filled.Load() {
				t.Errorf("filled %d times", w.filled)
			}
		})
	})
	t.Run("waits for Prune, which is tried again when it fails", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, newKernel(t))
			w.fails("Prune")
			w.list()
			w.put(service("a", 1))
			defer running(w)()
			pass(time.Second)
			if w.filled != 0 {
				t.Error("Filled was called although Prune failed")
			}
			w.change(func() { w.fault = nil })
			pass(time.Minute)
			if w.filled != 1 || !w.pruned {
				t.Errorf("filled %d times, pruned %v", w.filled, w.pruned)
			}
		})
	})
}

func TestNewMapsWithoutRoom(t *testing.T) {
	for _, c := range []struct {
		name   string
		old    []byte // last bytes of the ClusterIPs that the old maps serve
		filled int
	}{
		{"do not take over while a frontend is not in them that is served now", []byte{1, 2}, 0},
		{"take over though a frontend is not in them that never was served", []byte{1}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, newKernel(t))
				w.maxFrontends, w.old = 1, map[model.FrontendKey]bool{}
				for _, n := range c.old {
					w.old[model.FrontendKey{
						Address: netip.AddrFrom4([4]byte{10, 96, 0, n}), Port: 80, Protocol: model.TCP, Scope: model.ScopeInternal,
					}] = true
				}
				w.list()
				w.put(service("a", 1), service("b", 2))
				defer running(w)()
				pass(time.Minute)
				if w.filled != c.filled {
					t.Errorf("filled %d times, want %d", w.filled, c.filled)
				}
				w.remove("a")
				pass(time.Minute)
				if w.filled != 1 {
					t.Errorf("filled %d times once there is room", w.filled)
				}
			})
		})
	}
}

func TestANewAgentThatCannotPublish(t *testing.T) {
	w := newWorld(t, newKernel(t))
	w.list()
	w.put(service("a", 1), endpoints("a", 1))
	w.reconciler.Step()
	// While no agent runs, the endpoint changes and a Service is born.
	w = w.successor(t)
	w.put(service("a", 1), endpoints("a", 2))
	w.put(service("b", 2), endpoints("b", 3))
	w.fails("Publish")
	w.reconciler.Step()
	expect(t, "the kernel holds what the predecessor wrote", w.text(), "10.96.0.1:80/TCP internal default/a: forward 10.0.0.1:8080")
	w.fault = nil
	w.reconciler.tryAgain()
	expect(t, "the kernel holds what is wanted", w.text(),
		"10.96.0.1:80/TCP internal default/a: forward 10.0.0.2:8080", "10.96.0.2:80/TCP internal default/b: forward 10.0.0.3:8080")
	expectAllDone(t, w)
}
