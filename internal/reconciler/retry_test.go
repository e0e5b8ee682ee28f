// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

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

// pass lets time pass, and what is due then happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// triesOf makes a kind of call fail, and notes when it is made.
func triesOf(w *world, method string) *[]time.Duration {
	began, tries := time.Now(), &[]time.Duration{}
	w.change(func() {
		w.fault = func(m string) error {
			if m != method {
				return nil
			}
			*tries = append(*tries, time.Since(began))
			return errFault
		}
	})
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
			pass(3 * time.Minute)
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
			w.change(func() { w.fault = nil })
			for i := range byte(20) {
				pass(20 * time.Millisecond)
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
			pass(time.Minute)
			w.change(func() { w.fault = nil })
			w.put(service("a", 1, nodePort)) // a change heals it before its time comes
			synctest.Wait()
			expectAllDone(t, w)
			tries := triesOf(w, "Publish")
			w.put(endpoints("a", 1))
			pass(150 * time.Millisecond)
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
			w.change(func() { w.maxSlots = 1 })
			w.put(service("a", 1), endpoints("a", 1))
			pass(time.Minute)
			w.change(func() { w.maxSlots = 2 })
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
			w.change(func() { w.calls = nil })
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
			pass(time.Hour)
			if len(*tries) != 1 {
				t.Errorf("tries at %v", *tries)
			}
		})
	})
}
