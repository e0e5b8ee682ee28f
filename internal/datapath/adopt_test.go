// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"unsafe"

	"github.com/fairlead-io/fairlead/internal/model"
)

var threeServices = []string{"api", "dns", "web"}

// apply writes the services as an agent does on start.
func (r *rig) apply(names ...string) map[string]SetID {
	r.t.Helper()
	ids := map[string]SetID{}
	for i, name := range names {
		k := vip(name)
		id := r.create(k)
		s := withRanges(numbered(k, 3+i), fmt.Sprintf("192.0.%d.0/24", len(name)+i))
		s.Draining = backendsOf("10.9.9.9:80")
		s.AffinitySeconds = 30
		r.publish(id, s)
		r.insert(at(fmt.Sprintf("10.96.0.%d:80", i), id), at(fmt.Sprintf("10.96.1.%d:80", i), id))
		ids[name] = id
	}
	return ids
}

func TestARestartChangesNothing(t *testing.T) {
	r := newRig(t, smallSizes())
	ids := r.apply(threeServices...)
	r.attach()
	owners := map[string]uint32{}
	for name, id := range ids {
		owners[name] = r.shadows[id].owner
	}
	before := r.dump()
	for range 3 {
		r.reopen()
		expectSame(t, before, r.dump())
		again := r.apply(threeServices...)
		for name, id := range ids {
			if again[name] != id || r.shadows[id].owner != owners[name] {
				t.Errorf("%s has set %d of owner %d, had %d of %d (R39)", name, again[name], r.shadows[id].owner, id, owners[name])
			}
		}
		if n := r.prune(); n != 0 || r.Stores() != 0 {
			t.Errorf("%d frontends were deleted and %d words stored, want none", n, r.Stores())
		}
		r.attach()
		expectSame(t, before, r.dump())
	}
}

func TestPruneRemovesExactlyWhatWasNotAskedFor(t *testing.T) {
	r := newRig(t, smallSizes())
	r.apply(threeServices...)
	r.attach()
	r.reopen()
	r.apply(threeServices[:2]...)
	if n := len(r.entries()); n != 6 {
		t.Errorf("%d frontends before pruning, want all 6 (R33)", n)
	}
	if n := r.prune(); n != 2 {
		t.Errorf("pruned %d frontends, want the 2 of web", n)
	}
	if n := r.prune(); n != 0 {
		t.Errorf("pruned %d frontends a second time", n)
	}
	r.reclaimAll(uint64(smallSizes().Backends-1)-(3+2)-(4+2), int(smallSizes().Sets)-2)
	if got := len(r.rangesInKernel()); got != 2 {
		t.Errorf("%d source ranges, want those of two Services", got)
	}
	after := r.dump()

	// It is the same as if web had never been, but for ids that were given out.
	want := newRig(t, smallSizes())
	want.apply(threeServices[:2]...)
	want.attach()
	for _, line := range want.entries() {
		if !strings.Contains(strings.Join(r.entries(), "\n"), line) {
			t.Errorf("%s is missing", line)
		}
	}
	if len(r.entries()) != len(want.entries()) || len(after[mapFrontends]) != 4 {
		t.Errorf("entries %q, want %q", r.entries(), want.entries())
	}
}

func TestOwnersAreNotReusedAfterARestart(t *testing.T) {
	r := newRig(t, smallSizes())
	given := map[uint32]bool{}
	for range 3 {
		for range 4 {
			owner := r.NewOwner()
			if given[owner] {
				t.Fatalf("owner %d was given out twice", owner)
			}
			given[owner] = true
		}
		id := r.published("web")
		given[r.shadows[id].owner] = true
		r.release(id)
		r.attach()
		r.reopen()
	}
}

func TestAWriterThatDiedBeforeItsFrontendsLeavesNothing(t *testing.T) {
	for name, die := range map[string]func(r *rig){
		"after the set was created":   func(r *rig) { r.create(service("late")) },
		"after the set was published": func(r *rig) { r.published("late") },
		"after its ranges were written": func(r *rig) {
			if err := r.addRanges(r.NewOwner(), withRanges(forward(service("late")), "10.0.0.0/8").SourceRanges); err != nil {
				r.t.Fatal(err)
			}
		},
		"after an extent was written that no word names": func(r *rig) {
			r.writeExtent(shadow{owner: 99, base: 500, length: 4}, numbered(service("late"), 3), nil, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, smallSizes())
			r.apply(threeServices...)
			r.attach()
			free, sets, want := r.room.free, len(r.freeSets), r.dump()
			die(r)
			r.reopen()
			r.apply(threeServices...)
			if n := r.prune(); n != 0 {
				t.Errorf("%d frontends were deleted", n)
			}
			r.reclaimAll(free, sets)
			got := r.dump()
			// Slots that no word names, and the counter of generations, are
			// not anybody's.
			delete(want, mapBackends)
			delete(got, mapBackends)
			unused := uint32(3)
			expectSame(t, want, got, element(mapSets, unused), element(mapMeta, 0))
			if r.current.sets[unused].Owner != 0 || r.current.sets[unused].Word != 0 {
				t.Errorf("set %d is left as %+v", unused, r.current.sets[unused])
			}
		})
	}
}

func TestASecondWriterIsToldWhoTheFirstIs(t *testing.T) {
	r := newRig(t, smallSizes())
	_, err := Open(r.cfg, slog.New(slog.DiscardHandler))
	if !errors.Is(err, ErrHeld) {
		t.Fatalf("a second writer: %v", err)
	}
	r.attach()
	_, err = Open(r.cfg, slog.New(slog.DiscardHandler))
	if !errors.Is(err, ErrHeld) || !strings.Contains(err.Error(), fmt.Sprintf("process %d, since 2", os.Getpid())) || !strings.Contains(err.Error(), r.cfg.PinPath) {
		t.Errorf("a second writer: %v, want the holder's process and the pin path", err)
	}
	if err := Cleanup(r.cfg.PinPath); !errors.Is(err, ErrHeld) {
		t.Errorf("clean up under a writer: %v", err)
	}
	r.reopen()
}

func TestAPinPathElsewhereIsRefusedWithOneLine(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{dir, dir + "/not/yet/there"} {
		_, err := Open(Config{PinPath: path, SocketMode: SocketOff, Sizes: smallSizes()}, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), "not on a bpffs") || !strings.Contains(err.Error(), "--pin-path") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("something was created: %v, %v", entries, err)
	}
}

func TestCleanupRemovesEverything(t *testing.T) {
	r := newRig(t, smallSizes())
	r.apply(threeServices...)
	r.attach()
	r.close()
	for range 2 { // what is not there is no error
		if err := Cleanup(r.cfg.PinPath); err != nil {
			t.Fatal(err)
		}
		if exists(t, r.cfg.PinPath) {
			t.Error("the pin path is still there")
		}
	}
	if _, err := OpenReader(r.cfg.PinPath); !errors.Is(err, ErrNotPinned) {
		t.Errorf("a reader: %v", err)
	}
}

// damages are done to the maps of three services while no agent runs.
func damages() map[string]func(g *generation, ids map[string]SetID) {
	word := func(g *generation, id SetID) (base, count uint32) {
		base, _, count = unpackWord(g.sets[id].Word)
		return base, count
	}
	return map[string]func(g *generation, ids map[string]SetID){
		"nothing": func(*generation, map[string]SetID) {},
		"extents that overlap": func(g *generation, ids map[string]SetID) {
			base, count := word(g, ids["api"])
			g.sets[ids["web"]].Word = packWord(base+1, 0, int(count))
			g.slots[base+1] = header{selectable: count, total: count, length: count + 1}.slot(g.sets[ids["web"]].Owner)
		},
		"two sets with one extent": func(g *generation, ids map[string]SetID) { g.sets[ids["web"]].Word = g.sets[ids["api"]].Word },
		"an extent out of range":   func(g *generation, ids map[string]SetID) { g.sets[ids["web"]].Word = packWord(1<<31, 0, 3) },
		"an extent at the very end": func(g *generation, ids map[string]SetID) {
			last := uint32(len(g.slots) - 1)
			g.sets[ids["web"]].Word = packWord(last, 0, 3)
			g.slots[last] = header{selectable: 3, total: 3, length: 4}.slot(g.sets[ids["web"]].Owner)
		},
		"an extent longer than the map": func(g *generation, ids map[string]SetID) {
			base, _ := word(g, ids["web"])
			g.slots[base] = header{selectable: 5, total: 6, length: 1<<32 - 1}.slot(g.sets[ids["web"]].Owner)
		},
		"no header": func(g *generation, ids map[string]SetID) { base, _ := word(g, ids["web"]); g.slots[base] = slot{} },
		"a header of length 0": func(g *generation, ids map[string]SetID) {
			base, _ := word(g, ids["web"])
			clear(g.slots[base].Address[12:])
		},
		"a header that is short": func(g *generation, ids map[string]SetID) {
			base, _ := word(g, ids["api"])
			g.slots[base].Address[12] = 2
		},
		"another owner's header": func(g *generation, ids map[string]SetID) { base, _ := word(g, ids["web"]); g.slots[base].Owner++ },
		"a word of zero":         func(g *generation, ids map[string]SetID) { g.sets[ids["web"]].Word = 0 },
		"a word of ones":         func(g *generation, ids map[string]SetID) { g.sets[ids["web"]].Word = 1<<64 - 1 },
		"an owner of zero":       func(g *generation, ids map[string]SetID) { g.sets[ids["web"]].Owner = 0 },
		"another owner":          func(g *generation, ids map[string]SetID) { g.sets[ids["web"]].Owner = 1000 },
		"a neighbour's owner":    func(g *generation, ids map[string]SetID) { g.sets[ids["web"]].Owner = g.sets[ids["api"]].Owner },
		"no name":                func(g *generation, ids map[string]SetID) { g.names[ids["web"]] = name{} },
		"a name of garbage":      func(g *generation, ids map[string]SetID) { g.names[ids["web"]].Text = [200]byte{0xff} },
		"a name too long":        func(g *generation, ids map[string]SetID) { g.names[ids["web"]].Length = 255 },
		"a neighbour's name":     func(g *generation, ids map[string]SetID) { g.names[ids["web"]] = g.names[ids["api"]] },
		"a neighbour's name with its own owner": func(g *generation, ids map[string]SetID) {
			owner := g.names[ids["web"]].Owner
			g.names[ids["web"]] = g.names[ids["api"]]
			g.names[ids["web"]].Owner = owner
		},
		"names swapped": func(g *generation, ids map[string]SetID) {
			g.names[ids["web"]], g.names[ids["api"]] = g.names[ids["api"]], g.names[ids["web"]]
		},
		"most sets of garbage":     func(g *generation, _ map[string]SetID) { scribble(g.sets[:48], 1) },
		"all slots of garbage":     func(g *generation, _ map[string]SetID) { scribble(g.slots, 2) },
		"all names of garbage":     func(g *generation, _ map[string]SetID) { scribble(g.names, 3) },
		"everything zero":          func(g *generation, _ map[string]SetID) { clear(g.sets); clear(g.slots); clear(g.names) },
		"owners counted from zero": func(g *generation, _ map[string]SetID) { g.meta.NextOwner = 0 },
	}
}

// scribble fills a mapping with bytes of chance, the same for each seed.
func scribble[T any](values []T, seed uint64) {
	source := rand.NewChaCha8([32]byte{byte(seed)})
	var zero T
	source.Read(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), len(values)*int(unsafe.Sizeof(zero))))
}

func TestDamagedMapsAreAdoptedAndHealed(t *testing.T) {
	for name, damage := range damages() {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, smallSizes())
			ids := r.apply(threeServices...)
			r.attach()
			want := r.entries()
			damage(r.intruder(), ids)
			r.reopen()
			r.entries() // a reader does not fall over them either

			// First one Service more than before: its room and set come from
			// what adoption took for free.
			extra := vip("extra")
			extraID := r.create(extra)
			r.publish(extraID, numbered(extra, 50))
			r.apply(threeServices...)
			r.prune()
			if _, err := r.Compare(); err != nil {
				t.Fatal(err)
			}
			r.release(extraID)
			r.expectEntries(want...)
			r.reclaimAll(uint64(smallSizes().Backends-1)-(3+2)-(4+2)-(5+2), int(smallSizes().Sets)-3)
			r.expectRangesOfThree()
		})
	}
}

// expectRangesOfThree checks that each of the three services has its one
// source range, under the owner it has now.
func (r *rig) expectRangesOfThree() {
	r.t.Helper()
	if got := r.rangesInKernel(); len(got) != 3 {
		r.t.Errorf("source ranges %q, want three", got)
	}
}

func TestASetUnderAnotherOwnerThanItsServiceIsNotKept(t *testing.T) {
	r := newRig(t, smallSizes())
	ids := []SetID{r.create(vip("web"))}
	owner := r.shadows[ids[0]].owner
	id, err := r.CreateSet(service("web"), owner)
	if err != nil {
		t.Fatal(err)
	}
	ids = append(ids, id)
	for i, k := range []model.SetKey{vip("web"), service("web")} {
		r.publish(ids[i], numbered(k, 3))
	}
	r.attach()
	for _, damaged := range ids {
		g := r.intruder()
		g.sets[damaged].Owner, g.names[damaged].Owner = 1000, 1000
		r.reopen()
		owner := uint32(0)
		for _, k := range []model.SetKey{vip("web"), service("web")} {
			id := r.create(k)
			r.publish(id, numbered(k, 3))
			if have := r.shadows[id].owner; owner != 0 && have != owner {
				t.Errorf("the sets of one Service port have owners %d and %d", owner, have)
			}
			owner = r.shadows[id].owner
		}
		r.prune()
		r.reclaimAll(uint64(smallSizes().Backends-1)-8, int(smallSizes().Sets)-2)
	}
}

func TestForeignElementsAreAdoptedByNobodyAndPruned(t *testing.T) {
	for name, foreign := range map[string]func(r *rig, id SetID) frontend{
		"of zeros":            func(*rig, SetID) frontend { return frontend{} },
		"of a set too high":   func(*rig, SetID) frontend { return frontendOf(keyOf(at("10.96.9.9:80", 0).Key), 1<<31, 1) },
		"of a set not in use": func(*rig, SetID) frontend { return frontendOf(keyOf(at("10.96.9.9:80", 0).Key), 60, 0) },
		"of another owner":    func(_ *rig, id SetID) frontend { return frontendOf(keyOf(at("10.96.9.9:80", 0).Key), uint32(id), 1000) },
		"of another key": func(r *rig, id SetID) frontend {
			return frontendOf(keyOf(at("10.96.9.8:80", 0).Key), uint32(id), r.shadows[id].owner)
		},
		"that look like ours": func(r *rig, id SetID) frontend {
			return frontendOf(keyOf(at("10.96.9.9:80", 0).Key), uint32(id), r.shadows[id].owner)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, smallSizes())
			ids := r.apply(threeServices...)
			r.attach()
			want := r.entries()
			r.putForeign("10.96.9.9:80", foreign(r, ids["web"]))
			r.reopen()
			r.apply(threeServices...)
			if n := r.prune(); n != 1 {
				t.Errorf("pruned %d, want the foreign one", n)
			}
			r.expectEntries(want...)
			if n, err := r.Compare(); n != 0 || err != nil {
				t.Errorf("compared: %d, %v", n, err)
			}
		})
		t.Run(name+", where an address is wanted", func(t *testing.T) {
			r := newRig(t, smallSizes())
			ids := r.apply(threeServices...)
			r.attach()
			r.putForeign("10.96.9.9:80", foreign(r, ids["web"]))
			r.reopen()
			again := r.apply(threeServices...)
			r.insert(at("10.96.9.9:80", again["api"]))
			if n := r.prune(); n != 0 {
				t.Errorf("pruned %d, want none", n)
			}
			if got := strings.Join(r.entries(), "\n"); !strings.Contains(got, "10.96.9.9:80 default/api forward") || strings.Contains(got, "PROBLEM") {
				t.Errorf("entries:\n%s", got)
			}
		})
	}
}

// FuzzAdopt lets a writer start over maps of any content.
func FuzzAdopt(f *testing.F) {
	sizes := Sizes{Frontends: 16, Sets: 8, Backends: 32, Affinity: 2, Flows: 2, UDP: 2, Ranges: 8}
	r := newRig(f, sizes)
	r.apply(threeServices[:2]...)
	r.attach()
	contents := func(g *generation) (b []byte) {
		for id := range g.sets[:4] {
			b = append(append(b, bytesOf(&g.sets[id])...), bytesOf(&g.names[id])[:32]...)
		}
		for i := range g.slots {
			b = append(b, bytesOf(&g.slots[i])...)
		}
		return b
	}
	f.Add(contents(r.current))
	f.Fuzz(func(t *testing.T, b []byte) {
		r.t = t
		g := r.current
		for id := range g.sets[:4] {
			b = b[copy(bytesOf(&g.sets[id]), b):]
			b = b[copy(bytesOf(&g.names[id])[:32], b):]
		}
		for i := range g.slots {
			b = b[copy(bytesOf(&g.slots[i]), b):]
		}
		r.reopen()
		r.entries()
		ids := r.apply(threeServices[:2]...)
		r.prune()
		if _, err := r.Compare(); err != nil {
			t.Fatal(err)
		}
		r.reclaimAll(uint64(sizes.Backends-1)-(3+2)-(4+2), int(sizes.Sets)-2)
		if lines := r.entries(); len(lines) != 4 || strings.Contains(strings.Join(lines, "\n"), "PROBLEM") {
			t.Fatalf("entries:\n%s", strings.Join(lines, "\n"))
		}
		for name, id := range ids {
			if k, ok := r.current.names[id].key(); !ok || k.Service != (model.Name{Namespace: "default", Name: name}) {
				t.Fatalf("set %d of %s is named %v, %v", id, name, k, ok)
			}
		}
	})
}
