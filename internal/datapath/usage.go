// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/fairlead-io/fairlead/internal/api"
)

// Counters of bpf/maps.h.
const (
	counterEventsLost = iota
	counterAffinityCreated
	counterUDPCreated
	counterEmbryosCreated
	counterEmbryosDeleted
	counterFlowsCreated
	counterFlowsDeleted
	counterPortsExhausted
	counterFragmentsUnknown
	counterMalformed
	counterUnroutable
	counterTooBig
	counterNoFlow
	counterReleased
	counterFailed
	counterEmbryosSwept
	counterFlowsSwept
	counterDatagramsSwept
	counterDatagramsCreated
	counterDatagramsDeleted
	counters // how many there are
)

// balance are the counters that say how many elements an LRU map should have;
// what it has not was evicted. The kernel does not say when it does that.
type balance struct {
	name             string
	created, deleted []uint32
	count            func(*ebpf.Map) (uint64, error)
}

var balances = []balance{
	{mapAffinity, []uint32{counterAffinityCreated}, nil, countEntries[[24]byte, [32]byte]},
	{mapUDP, []uint32{counterUDPCreated}, nil, countEntries[[32]byte, [24]byte]},
	{mapFlows, []uint32{counterFlowsCreated}, []uint32{counterFlowsDeleted, counterFlowsSwept}, countEntries[flowKey, flow]},
	{mapDatagrams, []uint32{counterDatagramsCreated}, []uint32{counterDatagramsDeleted, counterDatagramsSwept}, countEntries[flowKey, flow]},
	{mapEmbryos, []uint32{counterEmbryosCreated}, []uint32{counterEmbryosDeleted, counterEmbryosSwept}, countEntries[flowKey, flow]},
}

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
	for _, b := range balances {
		u, err := d.balance(b, bytes)
		if err != nil {
			return nil, err
		}
		uses = append(uses, u)
	}
	return uses, nil
}

func (d *Datapath) balance(b balance, bytes map[string]uint64) (api.MapUse, error) {
	m := d.current.maps[b.name]
	used, err := b.count(m)
	if err != nil {
		return api.MapUse{}, fmt.Errorf("count the entries of %s: %w", b.name, err)
	}
	created, err := d.sum(b.created)
	if err != nil {
		return api.MapUse{}, err
	}
	deleted, err := d.sum(b.deleted)
	if err != nil {
		return api.MapUse{}, err
	}
	u := use(b.name, used, uint64(m.MaxEntries()), bytes)
	u.Evictions = created - min(created, deleted+used)
	return u, nil
}

func (d *Datapath) sum(counters []uint32) (total uint64, err error) {
	for _, counter := range counters {
		n, err := sumCounter(d.current.maps[mapCounters], counter)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// addToCounter adds to a counter that no program writes.
func (d *Datapath) addToCounter(which uint32, n uint64) error {
	m := d.current.maps[mapCounters]
	var perCPU []uint64
	if err := m.Lookup(which, &perCPU); err != nil {
		return fmt.Errorf("read counter %d: %w", which, err)
	}
	perCPU[0] += n
	if err := m.Put(which, perCPU); err != nil {
		return fmt.Errorf("write counter %d: %w", which, err)
	}
	return nil
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
	counts := map[uint32]bool{}
	for counter := range uint32(counters) {
		counts[counter] = true
	}
	for _, b := range balances {
		for _, counter := range slices.Concat(b.created, b.deleted) {
			counts[counter] = d.current.inherited[b.name]
		}
	}
	for counter, carried := range counts {
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

// packetCounters are what the packet path counts besides refusals, in words.
var packetCounters = []struct {
	counter uint32
	what    string
}{
	{counterPortsExhausted, "flow without a free port"},
	{counterNoFlow, "amid an unknown connection"},
	{counterReleased, "datagram moved to another backend"},
	{counterTooBig, "too big for its way"},
	{counterUnroutable, "no way to its target"},
	{counterFragmentsUnknown, "fragment without its first"},
	{counterMalformed, "malformed"},
	{counterFailed, "not changed by the kernel"},
}

// PacketCounts reads what the packet path has counted since its maps were made.
func (d *Datapath) PacketCounts() ([]api.PacketCount, error) {
	counts := make([]api.PacketCount, 0, len(packetCounters))
	for _, c := range packetCounters {
		n, err := sumCounter(d.current.maps[mapCounters], c.counter)
		if err != nil {
			return nil, err
		}
		counts = append(counts, api.PacketCount{What: c.what, Count: n})
	}
	return counts, nil
}
