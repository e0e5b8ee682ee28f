// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/fairlead-io/fairlead/internal/api"
)

// Counters of bpf/maps.h.
const (
	counterEventsLost = iota
	counterAffinityCreated
	counterUDPCreated
)

// Usage says how full the maps are. Safe beside all other methods but Close.
func (d *Datapath) Usage() ([]api.MapUse, error) {
	bytes := d.cfg.Sizes.Bytes()
	d.mu.Lock()
	slots, free, largest := uint64(len(d.current.slots)-1), d.room.free, uint64(d.room.largest())
	sets, freeSets := uint64(len(d.shadows)), uint64(len(d.freeSets))
	d.mu.Unlock()
	frontends := uint64(d.frontendCount.Load())
	uses := []api.MapUse{
		use(mapFrontends, frontends, uint64(d.cfg.Sizes.Frontends), bytes),
		use(mapSets, sets-freeSets, sets, bytes),
		use(mapBackends, slots-free, slots, bytes),
	}
	uses[2].LargestFree = largest
	affinity, err := countEntries[[24]byte, [32]byte](d.current.maps[mapAffinity])
	if err != nil {
		return nil, fmt.Errorf("count the affinity entries: %w", err)
	}
	udp, err := countEntries[[32]byte, [24]byte](d.current.maps[mapUDP])
	if err != nil {
		return nil, fmt.Errorf("count the UDP pairs: %w", err)
	}
	uses = append(uses, use(mapAffinity, affinity, uint64(d.cfg.Sizes.Affinity), bytes),
		use(mapUDP, udp, uint64(d.cfg.Sizes.UDP), bytes))
	for i, counter := range map[int]uint32{3: counterAffinityCreated, 4: counterUDPCreated} {
		created, err := sumCounter(d.current.maps[mapCounters], counter)
		if err != nil {
			return nil, err
		}
		// The kernel does not say when it evicts an entry of an LRU map; what
		// was created and is not there any more was evicted.
		uses[i].Evictions = created - min(created, uses[i].Used)
	}
	return uses, nil
}

func use(name string, used, capacity uint64, bytes map[string]uint64) api.MapUse {
	return api.MapUse{Name: name, Used: used, Capacity: capacity, LargestFree: capacity - used, Bytes: bytes[name]}
}

func countEntries[K, V any](m *ebpf.Map) (uint64, error) {
	keys, values := make([]K, 4096), make([]V, 4096)
	var cursor ebpf.MapBatchCursor
	var total uint64
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		total += uint64(n)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return total, nil
		}
		if err != nil {
			return 0, err
		}
	}
}

func sumCounter(m *ebpf.Map, which uint32) (uint64, error) {
	var perCPU []uint64
	if err := m.Lookup(which, &perCPU); err != nil {
		return 0, fmt.Errorf("read counter %d: %w", which, err)
	}
	var sum uint64
	for _, n := range perCPU {
		sum += n
	}
	return sum, nil
}

// carryCounters lets the counters of new maps go on from those they replace. A
// count of what was created in a map goes with the map: it would make a new one
// look as if it had evicted all of it.
func (d *Datapath) carryCounters() error {
	if d.replaced == nil || d.replaced.meta.Layout != LayoutVersion {
		return nil
	}
	from := d.replaced.maps[mapCounters]
	if from == nil || d.spec.Maps[mapCounters].Compatible(from) != nil {
		return nil
	}
	for counter, carried := range map[uint32]bool{
		counterEventsLost:      true,
		counterAffinityCreated: d.current.inherited[mapAffinity],
		counterUDPCreated:      d.current.inherited[mapUDP],
	} {
		if !carried {
			continue
		}
		var perCPU []uint64
		if err := from.Lookup(counter, &perCPU); err != nil {
			return fmt.Errorf("read counter %d of the maps that are replaced: %w", counter, err)
		}
		if err := d.current.maps[mapCounters].Put(counter, perCPU); err != nil {
			return fmt.Errorf("carry counter %d over: %w", counter, err)
		}
	}
	return nil
}

// EventsLost counts refusals that found the ring buffer full.
func (d *Datapath) EventsLost() (uint64, error) {
	return sumCounter(d.current.maps[mapCounters], counterEventsLost)
}
