// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/test/lab"
)

// current is the generation that the link names, "" if there is none.
func (r *rig) currentName() string {
	r.t.Helper()
	target, err := os.Readlink(filepath.Join(r.cfg.PinPath, currentLink))
	if errors.Is(err, os.ErrNotExist) {
		return ""
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return target
}

func (r *rig) hasGeneration(name string) bool {
	r.t.Helper()
	return exists(r.t, filepath.Join(r.cfg.PinPath, name))
}

// mapID identifies a pinned map of a generation.
func (r *rig) mapID(generation, name string) ebpf.MapID {
	r.t.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(r.cfg.PinPath, generation, name), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	defer m.Close()
	info, err := m.Info()
	if err != nil {
		r.t.Fatal(err)
	}
	id, ok := info.ID()
	if !ok {
		r.t.Fatalf("the kernel gives %s no id", name)
	}
	return id
}

func TestNewMapsAreFilledBesideTheOldUntilAttach(t *testing.T) {
	larger := Sizes{Frontends: 512, Sets: 128, Backends: 2048, Affinity: 64, Flows: 64, UDP: 64, Ranges: 64}
	smaller := Sizes{Frontends: 64, Sets: 16, Backends: 256, Affinity: 64, Flows: 64, UDP: 64, Ranges: 64}
	layout := func(r *rig) { r.intruder().meta.Layout = LayoutVersion + 1 }
	for name, c := range map[string]struct {
		sizes  Sizes
		before func(r *rig)
		// keeps says that owners and the state of sockets and clients go on.
		keeps bool
	}{
		"larger maps":           {larger, func(*rig) {}, true},
		"smaller maps":          {smaller, func(*rig) {}, true},
		"another layout":        {smallSizes(), layout, false},
		"larger, other layout":  {larger, layout, false},
		"a map that is missing": {smallSizes(), func(r *rig) { r.removePin(mapUDP) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, smallSizes())
			ids := r.apply(threeServices...)
			r.attach()
			want := r.entries()
			owners := map[string]uint32{}
			for name, id := range ids {
				owners[name] = r.shadows[id].owner
			}
			next := r.NewOwner()
			c.before(r)
			before := r.dump()
			r.cfg.Sizes = c.sizes
			r.reopen()
			if r.currentName() != "g1" || !r.hasGeneration("g2") {
				t.Fatalf("current is %s, and there is g2: %v", r.currentName(), r.hasGeneration("g2"))
			}
			again := r.apply(threeServices...)
			for name, id := range again {
				if got := r.shadows[id].owner; got != owners[name] && (c.keeps || got <= next) {
					t.Errorf("%s has owner %d, had %d", name, got, owners[name])
				}
			}
			if r.NewOwner() <= next {
				t.Error("an owner is given out again")
			}
			r.prune()
			expectSame(t, before, r.dump())
			peers := r.mapID("g1", mapPeers)
			affinity := r.mapID("g1", mapAffinity)

			r.attach()
			if r.currentName() != "g2" || r.hasGeneration("g1") {
				t.Errorf("current is %s, and there still is g1: %v", r.currentName(), r.hasGeneration("g1"))
			}
			r.expectEntries(want...)
			if kept := r.mapID("g2", mapPeers) == peers && r.mapID("g2", mapAffinity) == affinity; kept != c.keeps {
				t.Errorf("open connections and clients kept their peers and affinity: %v, want %v", kept, c.keeps)
			}
			after := r.dump()
			r.reopen()
			r.apply(threeServices...)
			if r.prune() != 0 || r.Stores() != 0 {
				t.Errorf("after the next restart %d words were stored", r.Stores())
			}
			r.attach()
			expectSame(t, after, r.dump())
		})
	}
}

func (r *rig) removePin(name string) {
	r.t.Helper()
	if err := os.Remove(filepath.Join(r.cfg.PinPath, r.currentName(), name)); err != nil {
		r.t.Fatal(err)
	}
}

// A new layout may change any type but that of the element which names it.
func TestMapsOfAnotherLayoutAndShapeAreReplaced(t *testing.T) {
	for _, name := range []string{mapSets, mapNames, mapBackends} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, smallSizes())
			r.apply(threeServices...)
			r.attach()
			want := r.entries()
			next := r.NewOwner()
			r.intruder().meta.Layout = LayoutVersion + 1
			r.removePin(name)
			spec := *r.spec.Maps[name]
			spec.ValueSize += 8
			spec.Value = nil
			m, err := ebpf.NewMap(&spec)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			if err := m.Pin(filepath.Join(r.cfg.PinPath, "g1", name)); err != nil {
				t.Fatal(err)
			}
			r.reopen()
			if owner := r.NewOwner(); owner <= next {
				t.Errorf("owner %d is given out again", owner)
			}
			r.apply(threeServices...)
			r.prune()
			r.attach()
			r.expectEntries(want...)
			if r.hasGeneration("g1") {
				t.Error("the maps of the other layout are still pinned")
			}
		})
	}
}

func TestAWriterThatDiesBeforeAttachLeavesTheOldMapsInForce(t *testing.T) {
	r := newRig(t, smallSizes())
	r.apply(threeServices...)
	r.attach()
	want, before := r.entries(), r.dump()
	r.cfg.Sizes.Sets *= 2
	for range 2 {
		r.reopen()
		r.apply(threeServices[:1]...)
	}
	if r.currentName() != "g1" {
		t.Errorf("current is %s", r.currentName())
	}
	expectSame(t, before, r.dump())
	// Back to the old sizes: the old maps go on, the unfinished ones go.
	r.cfg.Sizes.Sets /= 2
	r.reopen()
	r.apply(threeServices...)
	r.prune()
	r.attach()
	expectSame(t, before, r.dump())
	r.expectEntries(want...)
	if r.hasGeneration("g2") {
		t.Error("the unfinished maps are still pinned")
	}
}

func TestLostIsWhatTheOldMapsServeAndTheNewOnesDoNot(t *testing.T) {
	r := newRig(t, smallSizes())
	r.apply(threeServices...)
	r.attach()
	key := func(address string) model.FrontendKey { return at(address, 0).Key }
	all := func() (lost string) {
		for _, a := range []string{"10.96.0.0:80", "10.96.0.1:80", "10.96.0.2:80", "10.96.9.9:80"} {
			if r.Lost(key(a)) {
				lost += " " + a
			}
		}
		return strings.TrimSpace(lost)
	}
	if lost := all(); lost != "" {
		t.Errorf("lost by maps that stay are %q", lost)
	}
	r.cfg.Sizes.Frontends, r.cfg.SocketMode, r.cfg.Cgroup = 4, SocketAll, lab.NewCgroup(t).Path()
	r.reopen()
	r.apply(threeServices[:2]...)
	if lost := all(); lost != "10.96.0.2:80" {
		t.Errorf("lost are %q, want the one that was served and is not written", lost)
	}
	served := r.replaced.maps[mapFrontends]
	r.replaced.maps[mapFrontends] = nil
	if !r.Lost(key("10.96.0.2:80")) {
		t.Error("what cannot be read is taken for not served")
	}
	r.replaced.maps[mapFrontends] = served
	r.attach()
	if lost := all(); lost != "" {
		t.Errorf("lost by maps that have taken over are %q", lost)
	}
}

func TestAFirstWriterThatDiesBeforeAttachIsForgotten(t *testing.T) {
	r := newRig(t, smallSizes())
	r.apply(threeServices...)
	r.reopen()
	if r.currentName() != "" || len(r.installed) != 0 {
		t.Errorf("current is %q, %d frontends were adopted", r.currentName(), len(r.installed))
	}
	if _, err := OpenReader(r.cfg.PinPath); !errors.Is(err, ErrNotPinned) {
		t.Errorf("a reader of unfinished maps: %v", err)
	}
	r.apply(threeServices...)
	r.attach()
	if len(r.entries()) != 6 {
		t.Errorf("entries %q", r.entries())
	}
}

func TestDamagedPinsAreOneClearError(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(t *testing.T, pinPath string)
		want   string
	}{
		"current is no link": {func(t *testing.T, pinPath string) {
			must(t, os.Remove(filepath.Join(pinPath, currentLink)), os.Mkdir(filepath.Join(pinPath, currentLink), 0o700))
		}, "current"},
		"current names nonsense": {func(t *testing.T, pinPath string) {
			must(t, os.Remove(filepath.Join(pinPath, currentLink)), os.Symlink("elsewhere", filepath.Join(pinPath, currentLink)))
		}, `"elsewhere"`},
		"current names what is gone": {func(t *testing.T, pinPath string) {
			must(t, os.Remove(filepath.Join(pinPath, currentLink)), os.Symlink("g7", filepath.Join(pinPath, currentLink)))
		}, "g7"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, smallSizes())
			r.attach()
			r.close()
			c.damage(t, r.cfg.PinPath)
			_, err := Open(r.cfg, r.logger())
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("open: %v, want one line about %s", err, c.want)
			}
			if _, err := OpenReader(r.cfg.PinPath); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("read: %v, want one line about %s", err, c.want)
			}
			// The lock is free again, and so is the way out.
			if err := Cleanup(r.cfg.PinPath); err != nil {
				t.Error(err)
			}
			r.open()
		})
	}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestSizesAreValidated(t *testing.T) {
	if err := DefaultSizes().Validate(); err != nil {
		t.Error(err)
	}
	for flag, spoil := range map[string]func(*Sizes){
		"--max-frontends":     func(s *Sizes) { s.Frontends = 1 },
		"--max-sets":          func(s *Sizes) { s.Sets = 1<<24 + 1 },
		"--max-backends":      func(s *Sizes) { s.Backends = 1<<26 + 1 },
		"--max-affinity":      func(s *Sizes) { s.Affinity = 0 },
		"--max-udp-pairs":     func(s *Sizes) { s.UDP = 0 },
		"--max-source-ranges": func(s *Sizes) { s.Ranges = 1 },
	} {
		sizes := DefaultSizes()
		spoil(&sizes)
		if err := sizes.Validate(); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

func TestProgramsAreAttachedOnceAndStayWhenTheWriterEnds(t *testing.T) {
	old := lab.NewCgroup(t)
	moved := old.Child(t, "moved")
	r := newRig(t, smallSizes())
	r.cfg.Cgroup = old.Path()
	r.apply(threeServices...)
	r.expectPrograms(old, 0)
	for _, step := range []struct {
		what       string
		cgroup     *lab.Cgroup
		mode       SocketMode
		old, moved int
	}{
		{"first start", old, SocketAll, HookCount, 0},
		{"restart", old, SocketAll, HookCount, 0},
		{"for the host only", old, SocketHost, HookCount, 0},
		{"another cgroup", moved, SocketAll, 0, HookCount},
		{"off", moved, SocketOff, 0, 0},
	} {
		t.Log(step.what)
		r.cfg.Cgroup, r.cfg.SocketMode = step.cgroup.Path(), step.mode
		r.reopen()
		r.attach()
		r.expectPrograms(old, step.old)
		r.expectPrograms(moved, step.moved)
		r.close() // what is attached stays (R39)
		r.expectPrograms(old, step.old)
		r.expectPrograms(moved, step.moved)
		r.open()
	}
}

// expectPrograms waits until that many programs are on the cgroup, each on a
// hook of its own; the kernel detaches in its own time.
func (r *rig) expectPrograms(cgroup *lab.Cgroup, want int) {
	r.t.Helper()
	var got []api.Attachment
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		var err error
		if got, err = Attachments(cgroup.Path(), r.cfg.PinPath); err != nil {
			r.t.Fatal(err)
		}
		if len(got) == want {
			break
		}
	}
	hooks := map[string]bool{}
	for _, a := range got {
		if !a.Ours || hooks[a.Hook] || a.Program != "fairlead_"+a.Hook {
			r.t.Errorf("attachment %+v, want one of ours per hook", a)
		}
		hooks[a.Hook] = true
	}
	if len(got) != want {
		r.t.Errorf("%d programs on %s, want %d", len(got), cgroup.Path(), want)
	}
}

func TestAReaderOfAnotherLayoutSaysSo(t *testing.T) {
	r := newRig(t, smallSizes())
	r.attach()
	r.intruder().meta.Layout = LayoutVersion + 1
	r.removePin(mapSets)
	_, err := OpenReader(r.cfg.PinPath)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("layout %d, this program reads layout %d", LayoutVersion+1, LayoutVersion)) {
		t.Errorf("open: %v", err)
	}
}
