// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"testing"

	"github.com/cilium/ebpf"
)

// remember puts n clients and pairs into the LRU maps, and says that created
// of each were created, as programs do.
func (r *rig) remember(n, created uint64) {
	r.t.Helper()
	for i := range n {
		key := uint64(i) + 1
		must(r.t.(*testing.T),
			r.current.maps[mapAffinity].Put([3]uint64{key}, [4]uint64{}),
			r.current.maps[mapUDP].Put([4]uint64{key}, [3]uint64{}))
	}
	perCPU := make([]uint64, ebpf.MustPossibleCPU())
	perCPU[0] = created
	for _, counter := range []uint32{counterAffinityCreated, counterUDPCreated, counterEventsLost} {
		must(r.t.(*testing.T), r.current.maps[mapCounters].Put(counter, perCPU))
	}
}

func TestEvictions(t *testing.T) {
	layout := func(r *rig) { r.intruder().meta.Layout = LayoutVersion + 1 }
	for name, c := range map[string]struct {
		change        func(r *rig)
		affinity, udp uint64
		lost          uint64
	}{
		"stay what they are over a restart":             {func(*rig) {}, 6, 6, 10},
		"go on with maps that go on":                    {func(r *rig) { r.cfg.Sizes.Sets *= 2 }, 6, 6, 10},
		"of a map of another size begin anew, alone":    {func(r *rig) { r.cfg.Sizes.UDP *= 2 }, 6, 0, 10},
		"of both maps of another size begin anew":       {func(r *rig) { r.cfg.Sizes.UDP *= 2; r.cfg.Sizes.Affinity *= 2 }, 0, 0, 10},
		"of maps of another layout begin anew, all":     {layout, 0, 0, 0},
		"are none where the counters were taken away":   {func(r *rig) { r.removePin(mapCounters) }, 0, 0, 0},
		"go on though one of the other maps is missing": {func(r *rig) { r.removePin(mapRefused) }, 6, 6, 10},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, smallSizes())
			r.attach()
			r.remember(4, 10)
			c.change(r)
			r.reopen()
			// Before they take over, new maps have seen nothing.
			if got := r.evictions(); r.replaced != nil && got[mapAffinity]+got[mapUDP] != 0 {
				t.Errorf("before Attach %v were evicted", got)
			}
			r.attach()
			if got := r.evictions(); got[mapAffinity] != c.affinity || got[mapUDP] != c.udp {
				t.Errorf("evicted %v, want %d clients and %d pairs", got, c.affinity, c.udp)
			}
			if lost, err := r.EventsLost(); err != nil || lost != c.lost {
				t.Errorf("%d events are lost, %v; want %d", lost, err, c.lost)
			}
		})
	}
}

// evictions are those of each map.
func (r *rig) evictions() map[string]uint64 {
	r.t.Helper()
	uses, err := r.Usage()
	if err != nil {
		r.t.Fatal(err)
	}
	all := map[string]uint64{}
	for _, u := range uses {
		all[u.Name] = u.Evictions
	}
	return all
}
