// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-io/fairlead/internal/datapath"
	"github.com/fairlead-io/fairlead/internal/model"
)

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
		w.fails("Compare")
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
		expect(t, "calls", w.calls, "Compare", "Publish")
	})
	t.Run("runs at intervals", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := begin(t)
			defer running(w)()
			w.change(func() { w.calls = nil })
			pass(3*time.Minute + time.Second)
			compared := 0
			for _, c := range w.calls {
				if c == "Compare" {
					compared++
				}
			}
			if compared != 3 {
				t.Errorf("%d times in three intervals", compared)
			}
		})
	})
}
