// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/tables"
)

// The rows that a file remembers are the exception to R33.
func TestRestored(t *testing.T) {
	t.Run("is called once, and nothing is pruned before the first lists (R33)", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := restoring(t)
			defer running(w)()
			pass(time.Minute)
			expect(t, "the kernel holds what is remembered", w.text(), "10.96.0.1:80/TCP internal default/a: forward 10.0.0.1:8080")
			if w.restored != 1 || w.filled != 0 || w.pruned || w.reconciler.Stats.Filled.Load() {
				t.Errorf("restored %d times, filled %d times, pruned %v", w.restored, w.filled, w.pruned)
			}
		})
	})
	t.Run("hands over to the first lists without a moment in which a frontend is missing (R33)", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := restoring(t)
			defer running(w)()
			pass(time.Second)
			w.change(func() {
				for key := range w.elements {
					w.keep = append(w.keep, key)
				}
			})
			w.put(service("a", 1), endpoints("a", 2), service("b", 2), endpoints("b", 3))
			w.list()
			w.writer.Flush()
			pass(time.Second)
			expect(t, "the kernel holds what the API says", w.text(),
				"10.96.0.1:80/TCP internal default/a: forward 10.0.0.2:8080", "10.96.0.2:80/TCP internal default/b: forward 10.0.0.3:8080")
			if w.restored != 1 || w.filled != 1 || !w.pruned {
				t.Errorf("restored %d times, filled %d times, pruned %v", w.restored, w.filled, w.pruned)
			}
		})
	})
	t.Run("leaves nothing of a Service that the first lists do not have", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := restoring(t)
			defer running(w)()
			pass(time.Second)
			w.list()
			w.writer.Flush()
			pass(time.Second)
			if len(w.elements)+len(w.sets) != 0 {
				t.Errorf("the kernel holds %q and %d sets", w.text(), len(w.sets))
			}
		})
	})
	t.Run("is tried again when it fails, later each time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := restoring(t)
			w.change(func() { w.earlyError = errors.New("not yet") })
			defer running(w)()
			pass(time.Second)
			if w.restored != 4 {
				t.Errorf("called %d times in a second", w.restored)
			}
			w.change(func() { w.earlyError = nil })
			pass(time.Minute)
			if w.restored != 5 {
				t.Errorf("called %d times", w.restored)
			}
		})
	})
	t.Run("is not called any more once everything is filled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := restoring(t)
			w.change(func() { w.earlyError = errors.New("never") })
			defer running(w)()
			pass(time.Second)
			w.put(service("a", 1), endpoints("a", 1))
			w.list()
			w.writer.Flush()
			pass(0)
			before := w.restored
			pass(time.Hour)
			if w.filled != 1 || w.restored != before {
				t.Errorf("filled %d times, and called %d times after that", w.filled, w.restored-before)
			}
		})
	})
	t.Run("waits for a row that cannot be written", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := restoring(t)
			w.fails("Publish")
			defer running(w)()
			pass(time.Second)
			if w.restored != 0 {
				t.Errorf("called %d times although nothing is in the kernel", w.restored)
			}
			w.change(func() { w.fault = nil })
			pass(time.Minute)
			if w.restored != 1 {
				t.Errorf("called %d times", w.restored)
			}
		})
	})
	t.Run("does not wait for those of a Service that cannot be, once others are", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := restoring(t, externalIP(1))
			w.maxFrontends = 1
			defer running(w)()
			pass(time.Second)
			if w.restored != 1 || len(w.elements) != 1 {
				t.Errorf("called %d times, and the kernel holds %q", w.restored, w.text())
			}
		})
	})
	t.Run("is not for a Service that has no frontend", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := restoring(t, func(s *model.Service) { s.HasProxyName, s.ProxyName = true, "other" })
			defer running(w)()
			pass(time.Second)
			if w.restored != 0 {
				t.Errorf("called %d times", w.restored)
			}
		})
	})
	t.Run("is not for a file that remembers nothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, newKernel(t))
			w.writer.Restore()
			w.writer.Flush()
			defer running(w)()
			pass(time.Second)
			if w.restored != 0 || len(w.calls) != 0 {
				t.Errorf("called %d times, after %q", w.restored, w.calls)
			}
		})
	})
}

// restoring is a world in which default/a is remembered with the backend
// 10.0.0.1, and restored, before anything is listed.
func restoring(t reporter, changes ...func(*model.Service)) *world {
	w := newWorld(t, newKernel(t))
	w.writer.Retain(tables.Retention{Services: []model.Name{inDefault("a")}, Limit: time.Hour})
	w.writer.Remember(tables.Memory{Services: []tables.RememberedService{remembered(changes...)}})
	w.writer.Restore()
	w.writer.Flush()
	return w
}

func remembered(changes ...func(*model.Service)) tables.RememberedService {
	backend := endpoints("a", 1).Endpoints[0].Addresses[0]
	return tables.RememberedService{
		Object: service("a", 1, changes...),
		Sets: []tables.RememberedSet{{
			PortName: "http", Protocol: model.TCP, Family: model.IPv4, Role: model.RoleClusterIP,
			Backends: []model.Backend{{AddrPort: netip.AddrPortFrom(backend, 8080), Node: "n2"}},
		}},
	}
}
