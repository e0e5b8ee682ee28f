// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/model"
)

func TestFlowsGoOnInMapsOfAnotherSize(t *testing.T) {
	layout := func(r *rig) { r.intruder().meta.Layout = LayoutVersion + 1 }
	for name, c := range map[string]struct {
		flows  uint32
		before func(r *rig)
		kept   bool
	}{
		"in larger ones (R39)":                 {4096, func(*rig) {}, true},
		"in smaller ones with room (R39)":      {1024, func(*rig) {}, true},
		"in the same ones (R39)":               {2048, func(*rig) {}, true},
		"but not where they mean another flow": {2048, layout, false},
	} {
		t.Run(name, func(t *testing.T) {
			sizes := smallSizes()
			sizes.Flows = 2048
			r := newRig(t, sizes)
			r.apply(threeServices...)
			r.attach()
			early, late, embryo := pairOf(model.TCP, 1, flowAnswered, 9, 9), pairOf(model.UDP, 2, flowAnswered, 9, 9), pairOf(model.TCP, 3, 0, 9, 9)
			r.putFlows(r.current, mapFlows, early)
			r.putFlows(r.current, mapEmbryos, embryo)
			c.before(r)

			r.cfg.Sizes.Flows = c.flows
			r.reopen()
			r.apply(threeServices...)
			// The former programs are in force until then.
			former := r.replaced
			if former == nil {
				former = r.current
			}
			r.putFlows(former, mapDatagrams, late)
			r.attach()

			if !c.kept {
				early, late, embryo = map[flowKey]flow{}, map[flowKey]flow{}, map[flowKey]flow{}
			}
			if diff := cmp.Diff(early, r.flowsOf(mapFlows)); diff != "" {
				t.Errorf("confirmed flows (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(late, r.flowsOf(mapDatagrams)); diff != "" {
				t.Errorf("confirmed flows of UDP (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(embryo, r.flowsOf(mapEmbryos)); diff != "" {
				t.Errorf("unconfirmed flows (-want +got):\n%s", diff)
			}
			usage, err := r.Usage()
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range usage {
				if m.Name == mapFlows && (m.Used != uint64(len(early)) || m.Evictions != 0) {
					t.Errorf("%+v, want %d used and none evicted", m, len(early))
				}
			}
		})
	}
}

// The programs of the old maps go on writing to them until the next start.
func TestFlowsGoOnWhereAWriterDiedAmidTheChangeOver(t *testing.T) {
	for name, c := range map[string]struct {
		then   uint32 // flows of the maps that the next writer is to have
		damage bool
	}{
		"and the next has the same maps (R39)": {4096, false},
		"and the next has others again (R39)":  {1024, false},
		"and the next has the former ones'":    {2048, false},
		"unless the old maps are half removed": {4096, true},
	} {
		t.Run(name, func(t *testing.T) {
			sizes := smallSizes()
			sizes.Flows = 2048
			r := newRig(t, sizes)
			r.apply(threeServices...)
			r.attach()
			r.cfg.Sizes.Flows = 4096
			r.reopen()
			r.apply(threeServices...)
			must(t, r.carryFlows(), r.makeCurrent())
			want := pairOf(model.TCP, 1, flowAnswered, 9, 9)
			r.putFlows(r.replaced, mapFlows, want)
			if c.damage {
				must(t, os.Remove(filepath.Join(r.cfg.PinPath, "g1", mapMeta)))
				want = map[flowKey]flow{}
			}

			r.cfg.Sizes.Flows = c.then
			r.reopen()
			r.apply(threeServices...)
			r.attach()
			if diff := cmp.Diff(want, r.flowsOf(mapFlows)); diff != "" {
				t.Errorf("confirmed flows (-want +got):\n%s", diff)
			}
			if r.hasGeneration("g1") {
				t.Error("the former maps are still pinned")
			}
		})
	}
}

func TestAMapIsToldFromAnotherOfItsKind(t *testing.T) {
	r, other := newRig(t, smallSizes()), newRig(t, smallSizes())
	flows := r.current.maps[mapFlows]
	clone, err := flows.Clone()
	if err != nil {
		t.Fatal(err)
	}
	defer clone.Close()
	for what, c := range map[string]struct {
		m    *ebpf.Map
		want bool
	}{"itself": {flows, true}, "another descriptor of it": {clone, true}, "one of another writer": {other.current.maps[mapFlows], false}} {
		if same, err := sameMap(flows, c.m); err != nil || same != c.want {
			t.Errorf("%s: %v, %v", what, same, err)
		}
	}
}

func (r *rig) putFlows(g *generation, name string, flows map[flowKey]flow) {
	r.t.Helper()
	for k, f := range flows {
		if err := g.maps[name].Put(k, f); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *rig) flowsOf(name string) map[flowKey]flow {
	r.t.Helper()
	found := map[flowKey]flow{}
	if err := readFlows(r.current.maps[name], func(k flowKey, f flow) { found[k] = f }); err != nil {
		r.t.Fatal(err)
	}
	return found
}
