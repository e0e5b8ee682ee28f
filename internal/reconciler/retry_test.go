// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-io/fairlead/internal/datapath"
	"github.com/fairlead-io/fairlead/internal/model"
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

// running runs the reconciler in the test's own time until stop is called.
func running(w *world) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		w.reconciler.Run(ctx)
		close(done)
	}()
	synctest.Wait()
	return func() {
		cancel()
		<-done
	}
}

// triesOf lets the time pass and notes when the first call of a kind fails.
func triesOf(w *world, method string) *[]time.Duration {
	began, tries := time.Now(), &[]time.Duration{}
	w.fault = func(m string) error {
		if m != method {
			return nil
		}
		*tries = append(*tries, time.Since(began))
		return errFault
	}
	return tries
}

func TestRetries(t *testing.T) {
	t.Run("come later each time, up to half a minute", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, newKernel(t))
			w.list()
			defer running(w)()
			tries := triesOf(w, "Publish")
			w.put(service("a", 1))
			time.Sleep(3 * time.Minute)
			want := []time.Duration{0, 100, 300, 700, 1500, 3100, 6300, 12700, 25500, 51100, 81100, 111100, 141100, 171100}
			for i := range want {
				want[i] *= time.Millisecond
			}
			if !slices.Equal(*tries, want) {
				t.Errorf("tries at %v, want %v", *tries, want)
			}
		})
	})
	t.Run("are not put off by changes of others", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, newKernel(t))
			w.list()
			defer running(w)()
			w.fails("CreateSet")
			w.put(service("a", 1))
			synctest.Wait()
			w.fault = nil
			for i := range byte(20) {
				time.Sleep(20 * time.Millisecond)
				w.put(endpoints("b", i))
				w.put(service("b", 2))
			}
			synctest.Wait()
			expectAllDone(t, w)
		})
	})
	t.Run("begin quickly again after all is well", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, newKernel(t))
			w.list()
			defer running(w)()
			w.fails("Publish")
			w.put(service("a", 1))
			time.Sleep(time.Minute)
			w.fault = nil
			w.put(service("a", 1, nodePort)) // a change heals it before its time comes
			synctest.Wait()
			expectAllDone(t, w)
			tries := triesOf(w, "Publish")
			w.put(endpoints("a", 1))
			time.Sleep(150 * time.Millisecond)
			if len(*tries) != 4 { // both sets, twice
				t.Errorf("tries at %v", *tries)
			}
		})
	})
	t.Run("come at once when room was freed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, newKernel(t))
			w.freed = make(chan struct{}, 1)
			w.list()
			defer running(w)()
			w.maxSlots = 1
			w.put(service("a", 1), endpoints("a", 1))
			time.Sleep(time.Minute)
			w.maxSlots = 2
			w.reclaim()
			synctest.Wait()
			expectAllDone(t, w)
		})
	})
	t.Run("cost nothing when room was freed and nothing waits for it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, newKernel(t))
			w.list()
			w.put(service("a", 1))
			defer running(w)()
			w.calls = nil
			w.reclaim()
			synctest.Wait()
			if len(w.calls) != 0 {
				t.Errorf("calls %v", w.calls)
			}
		})
	})
	t.Run("stop with the reconciler", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, newKernel(t))
			w.list()
			tries := triesOf(w, "CreateSet")
			w.put(service("a", 1))
			running(w)()
			time.Sleep(time.Hour)
			if len(*tries) != 1 {
				t.Errorf("tries at %v", *tries)
			}
		})
	})
}

func TestFilled(t *testing.T) {
	t.Run("waits for the first lists, and is called once (R33)", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, newKernel(t))
			defer running(w)()
			w.put(service("a", 1))
			time.Sleep(time.Minute)
			if w.filled != 0 || w.pruned || len(w.elements) != 0 {
				t.Errorf("before: filled %d times, pruned %v, %v", w.filled, w.pruned, w.text())
			}
			w.list()
			w.writer.Flush()
			synctest.Wait()
			w.put(service("b", 2))
			time.Sleep(time.Hour)
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
			w.fillError = errors.New("not yet")
			w.list()
			w.put(service("a", 1))
			defer running(w)()
			time.Sleep(time.Second)
			if w.filled != 4 || w.reconciler.Stats.Filled.Load() {
				t.Errorf("filled %d times in a second", w.filled)
			}
			w.fillError = nil
			time.Sleep(time.Minute)
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
			time.Sleep(time.Second)
			if w.filled != 0 {
				t.Error("Filled was called although Prune failed")
			}
			w.fault = nil
			time.Sleep(time.Minute)
			if w.filled != 1 || !w.pruned {
				t.Errorf("filled %d times, pruned %v", w.filled, w.pruned)
			}
		})
	})
}

func TestCompare(t *testing.T) {
	begin := func(t *testing.T) *world {
		w := newWorld(t, newKernel(t))
		w.list()
		w.put(service("a", 1), endpoints("a", 1), service("b", 2), endpoints("b", 2))
		w.reconciler.Step()
		return w
	}
	t.Run("finds nothing where nothing was changed", func(t *testing.T) {
		w := begin(t)
		w.reconciler.Compare()
		if n := w.reconciler.Stats.Repaired.Load(); n != 0 || w.reconciler.Stats.LastCompared.Load() == 0 {
			t.Errorf("%d repaired", n)
		}
	})
	t.Run("repairs and counts what a foreign hand changed", func(t *testing.T) {
		w := begin(t)
		want := w.text()
		w.elements = map[model.FrontendKey]datapath.SetID{}
		for _, s := range w.sets {
			s.content.Backends = nil
		}
		w.reconciler.Compare()
		expect(t, "the kernel holds", w.text(), want...)
		if n := w.reconciler.Stats.Repaired.Load(); n != 4 {
			t.Errorf("%d repaired, want two frontends and two sets", n)
		}
	})
	t.Run("repairs the sets though the frontends cannot be read", func(t *testing.T) {
		w := begin(t)
		want := w.text()
		w.fails("CompareFrontends")
		for _, s := range w.sets {
			s.content.Backends = nil
		}
		w.reconciler.Compare()
		expect(t, "the kernel holds", w.text(), want...)
		if n := w.reconciler.Stats.Repaired.Load(); n != 2 {
			t.Errorf("%d repaired", n)
		}
	})
	t.Run("tries again what could not be repaired", func(t *testing.T) {
		w := begin(t)
		want := w.text()
		for _, s := range w.sets {
			s.content.Backends = nil
		}
		w.fails("Publish")
		w.reconciler.Compare()
		if !w.reconciler.unfinished() {
			t.Error("nothing is left to be tried again")
		}
		w.fault = nil
		w.reconciler.tryAgain()
		expect(t, "the kernel holds", w.text(), want...)
	})
	t.Run("leaves what has failed to the retries", func(t *testing.T) {
		w := begin(t)
		w.fails("Publish")
		w.put(endpoints("a", 3))
		w.reconciler.Step()
		w.fault, w.calls = nil, nil
		w.reconciler.Compare()
		expect(t, "calls", w.calls, "CompareFrontends", "Publish")
	})
	t.Run("runs at intervals", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := begin(t)
			defer running(w)()
			w.calls = nil
			time.Sleep(3*time.Minute + time.Second)
			compared := 0
			for _, c := range w.calls {
				if c == "CompareFrontends" {
					compared++
				}
			}
			if compared != 3 {
				t.Errorf("%d times in three intervals", compared)
			}
		})
	})
}
