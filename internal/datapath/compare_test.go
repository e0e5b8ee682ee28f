// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/fairlead-io/fairlead/test/lab"
)

// foreign is an element that someone else wrote.
func (r *rig) putForeign(address string, value frontend) {
	r.t.Helper()
	k := keyOf(at(address, 0).Key)
	if err := r.intruder().maps[mapFrontends].Put(k, value); err != nil {
		r.t.Fatal(err)
	}
}

func TestCompareRepairsFrontendsThatSomeoneElseChanged(t *testing.T) {
	for name, c := range map[string]struct {
		damage   func(r *rig, id SetID)
		repaired int
	}{
		"nothing": {func(*rig, SetID) {}, 0},
		"an element deleted": {func(r *rig, id SetID) {
			if err := r.intruder().maps[mapFrontends].Delete(keyOf(at("10.96.0.1:80", id).Key)); err != nil {
				r.t.Fatal(err)
			}
		}, 1},
		"all elements deleted": {func(r *rig, id SetID) {
			for _, a := range []string{"10.96.0.1:80", "10.96.0.2:80"} {
				if err := r.intruder().maps[mapFrontends].Delete(keyOf(at(a, id).Key)); err != nil {
					r.t.Fatal(err)
				}
			}
		}, 2},
		"an element added": {func(r *rig, id SetID) {
			k := keyOf(at("10.96.9.9:80", id).Key)
			r.putForeign("10.96.9.9:80", frontendOf(k, uint32(id), r.shadows[id].owner))
		}, 1},
		"an element of garbage added": {func(r *rig, _ SetID) { r.putForeign("10.96.9.9:80", frontend{Set: 1 << 31}) }, 1},
		"an element overwritten":      {func(r *rig, _ SetID) { r.putForeign("10.96.0.1:80", frontend{Set: 1 << 31}) }, 1},
		"an element of another owner": {func(r *rig, id SetID) {
			r.putForeign("10.96.0.1:80", frontendOf(keyOf(at("10.96.0.1:80", id).Key), uint32(id), 99))
		}, 1},
		"one overwritten and one added": {func(r *rig, _ SetID) {
			r.putForeign("10.96.0.2:80", frontend{})
			r.putForeign("10.96.9.9:80", frontend{})
		}, 2},
		"a map filled to the brim after elements were deleted": {func(r *rig, id SetID) {
			if err := r.intruder().maps[mapFrontends].Delete(keyOf(at("10.96.0.1:80", id).Key)); err != nil {
				r.t.Fatal(err)
			}
			for i := range 3 {
				r.putForeign(fmt.Sprintf("10.96.9.%d:80", i), frontend{})
			}
		}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			sizes := smallSizes()
			sizes.Frontends = 4
			r := newRig(t, sizes)
			r.attach()
			id := r.published("web")
			r.insert(at("10.96.0.1:80", id), at("10.96.0.2:80", id))
			before := r.dump()
			c.damage(r, id)
			repaired, err := r.Compare()
			if err != nil || repaired != c.repaired {
				t.Errorf("repaired %d, %v; want %d", repaired, err, c.repaired)
			}
			expectSame(t, before, r.dump())
			if again, err := r.Compare(); err != nil || again != 0 {
				t.Errorf("a second comparison repaired %d, %v", again, err)
			}
		})
	}
}

func TestCompareRepairsSourceRangesThatSomeoneElseChanged(t *testing.T) {
	ours := func(r *rig, ids map[string]SetID) rangeKey {
		return rangeKeyOf(r.shadows[ids["web"]].owner, netip.MustParsePrefix("192.0.5.0/24"))
	}
	theirs := func(r *rig, ids map[string]SetID) rangeKey {
		return rangeKeyOf(r.shadows[ids["web"]].owner, netip.MustParsePrefix("0.0.0.0/0"))
	}
	for name, c := range map[string]struct {
		damage   func(r *rig, m *ebpf.Map, ids map[string]SetID) error
		repaired int
	}{
		"nothing": {func(*rig, *ebpf.Map, map[string]SetID) error { return nil }, 0},
		"a range deleted, which would refuse those who may connect (R22)": {func(r *rig, m *ebpf.Map, ids map[string]SetID) error {
			return m.Delete(ours(r, ids))
		}, 1},
		"a range added, which would open a Service to everybody (R22)": {func(r *rig, m *ebpf.Map, ids map[string]SetID) error {
			return m.Put(theirs(r, ids), uint32(1))
		}, 1},
		"a range added for an owner that has no set": {func(_ *rig, m *ebpf.Map, _ map[string]SetID) error {
			return m.Put(rangeKeyOf(1000, netip.MustParsePrefix("10.0.0.0/8")), uint32(1))
		}, 1},
		"one deleted from a map that was filled to the brim": {func(r *rig, m *ebpf.Map, ids map[string]SetID) error {
			if err := m.Delete(ours(r, ids)); err != nil {
				return err
			}
			for i := range r.cfg.Sizes.Ranges - 2 {
				if err := m.Put(rangeKeyOf(1000+i, netip.MustParsePrefix("10.0.0.0/8")), uint32(1)); err != nil {
					return err
				}
			}
			return nil
		}, int(smallSizes().Ranges) - 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, smallSizes())
			ids := r.apply(threeServices...)
			r.attach()
			before := r.dump()
			if err := c.damage(r, r.intruder().maps[mapRanges], ids); err != nil {
				t.Fatal(err)
			}
			if repaired, err := r.Compare(); err != nil || repaired != c.repaired {
				t.Errorf("repaired %d, %v; want %d", repaired, err, c.repaired)
			}
			expectSame(t, before, r.dump())
		})
	}
}

func TestCompareDropsTheRangesThatCouldNotGoWithTheirSet(t *testing.T) {
	r := newRig(t, smallSizes())
	ids := r.apply(threeServices...)
	r.attach()
	r.delete(at("10.96.0.2:80", ids["web"]), at("10.96.1.2:80", ids["web"]))
	ranges := r.breakMap(mapRanges)
	if err := r.ReleaseSet(ids["web"]); err == nil {
		t.Error("no error although source ranges cannot be deleted")
	}
	if _, err := r.Compare(); err == nil {
		t.Error("no error although source ranges cannot be read")
	}
	r.current.maps[mapRanges] = ranges
	if repaired, err := r.Compare(); err != nil || repaired != 0 {
		t.Errorf("repaired %d, %v; want nothing of someone else's doing", repaired, err)
	}
	if got := r.rangesInKernel(); len(got) != 2 {
		t.Errorf("source ranges %q, want those of two Services", got)
	}
}

func TestPublishRepairsANameThatSomeoneElseChanged(t *testing.T) {
	r := newRig(t, smallSizes())
	ids := r.apply("web")
	r.attach()
	before := r.dump()
	for _, n := range []name{{}, {Owner: 1000, Length: 255}} {
		r.intruder().names[ids["web"]] = n
		k := vip("web")
		set := withRanges(numbered(k, 3), "192.0.3.0/24")
		set.Draining, set.AffinitySeconds = backendsOf("10.9.9.9:80"), 30
		for _, want := range []bool{true, false} {
			if changed := r.publish(ids["web"], set); changed != want {
				t.Errorf("changed: %v, want %v", changed, want)
			}
		}
		expectSame(t, before, r.dump())
	}
}

func TestCompareAttachesProgramsAgainThatSomeoneElseTookAway(t *testing.T) {
	for name, c := range map[string]struct {
		damage   func(t *testing.T, links string)
		repaired int
	}{
		"nothing": {func(*testing.T, string) {}, 0},
		"a pin removed": {func(t *testing.T, links string) {
			must(t, os.Remove(filepath.Join(links, "connect4")))
		}, 1},
		"all pins removed": {func(t *testing.T, links string) { must(t, os.RemoveAll(links)) }, HookCount},
		"a link detached under its pin": {func(t *testing.T, links string) {
			l := openLink(t, filepath.Join(links, "sendmsg6"))
			must(t, l.Detach(), l.Close())
		}, 1},
		"another program on a link": {func(t *testing.T, links string) {
			l := openLink(t, filepath.Join(links, "connect6"))
			p := foreignProgram(t, ebpf.AttachCGroupInet6Connect)
			must(t, l.Update(p), l.Close())
		}, 1},
		"links that changed names": {func(t *testing.T, links string) {
			at := func(name string) string { return filepath.Join(links, name) }
			must(t, os.Rename(at("connect4"), at("x")), os.Rename(at("connect6"), at("connect4")), os.Rename(at("x"), at("connect6")))
		}, 2},
		"a program pinned in a link's place": {func(t *testing.T, links string) {
			path := filepath.Join(links, "connect4")
			must(t, os.Remove(path), foreignProgram(t, ebpf.AttachCGroupInet4Connect).Pin(path))
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			cgroup := lab.NewCgroup(t)
			r := newRig(t, smallSizes())
			r.cfg.Cgroup, r.cfg.SocketMode = cgroup.Path(), SocketAll
			r.reopen()
			if repaired, err := r.Compare(); err != nil || repaired != 0 {
				t.Errorf("before Attach: %d, %v", repaired, err)
			}
			r.expectPrograms(cgroup, 0)
			r.attach()
			c.damage(t, filepath.Join(r.cfg.PinPath, linksFolder))
			for _, want := range []int{c.repaired, 0} {
				if repaired, err := r.Compare(); err != nil || repaired != want {
					t.Errorf("repaired %d, %v; want %d", repaired, err, want)
				}
			}
			r.expectPrograms(cgroup, HookCount)
		})
	}
}

func openLink(t *testing.T, path string) link.Link {
	t.Helper()
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
