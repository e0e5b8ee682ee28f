// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"

	"github.com/fairlead-io/fairlead/internal/failpoint"
	"github.com/fairlead-io/fairlead/internal/model"
)

// NewOwner returns an id for a Service port and family that no set, affinity
// entry or socket names. The counter lives in a pinned map, so ids are not
// reused over restarts; past 2^32 it goes on from 1 and passes over those in
// use.
func (d *Datapath) NewOwner() uint32 {
	m := d.current.meta
	for {
		owner := m.NextOwner
		m.NextOwner++
		failpoint.Hit("create: owner is taken")
		if owner != 0 && d.owners[owner] == 0 {
			return owner
		}
	}
}

// CreateSet gives a Service port a set: the one that was pinned under the same
// key, or a new one, which no frontend points to yet. The owner of a new set
// is the one given; that of a pinned one, as ClaimOwner knows it, must agree.
func (d *Datapath) CreateSet(k model.SetKey, owner uint32) (SetID, error) {
	if id, ok := d.known.claimSet(k, func(id SetID) bool { return d.shadows[id].owner == owner }); ok {
		return id, nil
	}
	n, err := nameOf(k, owner)
	if err != nil {
		return 0, fmt.Errorf("name the backend set %s: %w", k, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	id, ok := d.takeFreeSet(k)
	if !ok {
		signal(d.short)
		return 0, fmt.Errorf("%w for backend set %s: all %d sets are in use (--max-sets)", ErrNoRoom, k, len(d.shadows))
	}
	d.shadows[id] = shadow{owner: owner, role: k.Role}
	d.owners[owner]++
	d.current.names[id] = n
	failpoint.Hit("create: set is named")
	entry := &d.current.sets[id]
	atomic.StoreUint64(&entry.Word, packWord(0, 0, 0))
	atomic.StoreUint32(&entry.AffinitySeconds, 0)
	failpoint.Hit("create: word is cleared")
	atomic.StoreUint32(&entry.Owner, owner)
	failpoint.Hit("create: set is owned")
	return id, nil
}

// ClaimOwner returns the owner that a Service port had before the agent
// started, if it had one.
func (d *Datapath) ClaimOwner(k model.SetKey) (uint32, bool) { return d.known.owner(k) }

// Served says that frontends of a predecessor point to the set, until Prune:
// if it cannot be published anew, what they serve is better than nothing.
func (d *Datapath) Served(id SetID) bool {
	_, served := d.known.served[id]
	return served
}

// Publish makes the set in the kernel, and its name, equal to s by one store,
// or does nothing if it is already. On error what was published before stays in
// force, but for source ranges, of which those that fit are in force and no
// others, and a Maglev table that cannot be made: then the new backends are
// chosen at random.
func (d *Datapath) Publish(id SetID, s *model.Set) (changed bool, err error) {
	if len(s.Backends) > MaxBackendsPerSet || len(s.Draining) > MaxBackendsPerSet {
		return false, fmt.Errorf("publish backend set %s: %d backends and %d draining ones are more than %d", s.Key, len(s.Backends), len(s.Draining), MaxBackendsPerSet)
	}
	table, tableErr := d.table(s)
	owner := d.shadows[id].owner
	n, err := nameOf(s.Key, owner)
	if err != nil {
		return false, fmt.Errorf("name the backend set %s: %w", s.Key, err)
	}
	if d.current.names[id] != n {
		d.current.names[id] = n
		changed = true
	}
	rangesErr := d.addRanges(owner, s.SourceRanges)
	flags := flagsOf(s)
	if table != nil {
		flags |= flagMaglev
	}
	if flags&flagRanges != 0 {
		if err := d.ensureSourceCheck(); err != nil {
			return changed, fmt.Errorf("publish backend set %s: %w", s.Key, err)
		}
		failpoint.Hit("publish: sources are checked")
	}
	if !d.holds(id, s, table, flags) {
		if err := d.store(id, s, table, flags); err != nil {
			return changed, err
		}
		changed = true
	}
	if err := d.removeRanges(owner, s); err != nil {
		return changed, err
	}
	return changed, errors.Join(rangesErr, tableErr)
}

func flagsOf(s *model.Set) uint8 {
	var flags uint8
	if s.Action == model.ActionDrop {
		flags |= flagDrop
	}
	if s.AffinitySeconds > 0 {
		flags |= flagAffinity
	}
	if len(s.SourceRanges) > 0 {
		flags |= flagRanges
	}
	return flags
}

// holds says whether the kernel has exactly this set. It reads the mapping,
// which others can write, and so also finds what they changed.
func (d *Datapath) holds(id SetID, s *model.Set, table []uint16, flags uint8) bool {
	sh, entry := d.shadows[id], &d.current.sets[id]
	if atomic.LoadUint64(&entry.Word) != packWord(sh.base, flags, len(s.Backends)) ||
		atomic.LoadUint32(&entry.Owner) != sh.owner ||
		atomic.LoadUint32(&entry.AffinitySeconds) != s.AffinitySeconds {
		return false
	}
	total := len(s.Backends) + len(s.Draining)
	if sh.base == 0 {
		return total == 0 && atomic.LoadUint32(&entry.Generation) > 0
	}
	if int(sh.length) != 1+total+tableSlots(len(table)) {
		return false
	}
	extent := d.current.slots[sh.base : sh.base+sh.length]
	h := extent[0].header()
	if extent[0].Kind != slotHeader || extent[0].Owner != sh.owner || int(h.entries) != len(table) ||
		h.selectable != uint32(len(s.Backends)) || h.total != uint32(total) || h.length != sh.length {
		return false
	}
	return holdsBackends(extent[1:], s.Backends, sh.owner) &&
		holdsBackends(extent[1+len(s.Backends):], s.Draining, sh.owner) &&
		wrongSlot(extent[1+total:], table, sh.owner) < 0
}

func holdsBackends(slots []slot, backends []model.Backend, owner uint32) bool {
	for i := range backends {
		if slots[i] != slotOf(&backends[i], owner) {
			return false
		}
	}
	return true
}

// store writes a new extent and flips the set to it. Go's atomic stores keep
// their order with the plain stores before them, so a program that sees the
// word sees the extent.
func (d *Datapath) store(id SetID, s *model.Set, table []uint16, flags uint8) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := d.shadows[id]
	next := shadow{owner: old.owner, role: old.role, ranged: flags&flagRanges != 0}
	entry := &d.current.sets[id]
	generation := atomic.LoadUint32(&entry.Generation) + 1
	if total := uint32(len(s.Backends) + len(s.Draining)); total > 0 {
		next.length = 1 + total + uint32(tableSlots(len(table)))
		first, ok := d.room.alloc(next.length)
		if !ok {
			signal(d.short)
			return fmt.Errorf("%w for the %d slots of backend set %s: %d are free, at most %d in one run (--max-backends)",
				ErrNoRoom, next.length, s.Key, d.room.free, d.room.largest())
		}
		next.base = first
		d.writeExtent(next, s, table, generation)
		failpoint.Hit("publish: extent is written")
	}
	if atomic.LoadUint32(&entry.Owner) != next.owner {
		atomic.StoreUint32(&entry.Owner, next.owner)
	}
	atomic.StoreUint32(&entry.AffinitySeconds, s.AffinitySeconds)
	failpoint.Hit("publish: affinity is stored")
	atomic.StoreUint32(&entry.Generation, generation)
	failpoint.Hit("publish: generation is bumped")
	atomic.StoreUint64(&entry.Word, packWord(next.base, flags, len(s.Backends)))
	failpoint.Hit("publish: word is stored")
	d.stores.Add(1)
	d.shadows[id] = next
	d.retire(old)
	failpoint.Hit("publish: former extent is retired")
	if s.Key.Protocol == model.UDP && old.length > 0 {
		d.backendsLeft()
	}
	return nil
}

func (d *Datapath) writeExtent(sh shadow, s *model.Set, table []uint16, generation uint32) {
	extent := d.current.slots[sh.base : sh.base+sh.length]
	extent[0] = header{
		selectable: uint32(len(s.Backends)),
		total:      uint32(len(s.Backends) + len(s.Draining)),
		generation: generation,
		length:     sh.length,
		entries:    uint16(len(table)),
	}.slot(sh.owner)
	failpoint.Hit("publish: header is written")
	rest := extent[1:]
	for i := range s.Backends {
		rest[i] = slotOf(&s.Backends[i], sh.owner)
	}
	rest = rest[len(s.Backends):]
	for i := range s.Draining {
		rest[i] = slotOf(&s.Draining[i], sh.owner)
	}
	writeTable(rest[len(s.Draining):], table, sh.owner)
}

// ReleaseSet gives a set back; one that is free is left alone. No frontend may
// point to it any more. The last set of an owner takes the owner's source
// ranges with it.
func (d *Datapath) ReleaseSet(id SetID) error {
	d.mu.Lock()
	sh := d.shadows[id]
	if sh.owner == 0 {
		d.mu.Unlock()
		return nil
	}
	d.shadows[id] = shadow{}
	entry := &d.current.sets[id]
	atomic.StoreUint32(&entry.Owner, 0)
	failpoint.Hit("release: set is disowned")
	atomic.StoreUint64(&entry.Word, 0)
	failpoint.Hit("release: word is cleared")
	if d.current.names[id].Protocol == uint8(model.UDP) {
		d.backendsLeft()
	}
	d.current.names[id] = name{}
	failpoint.Hit("release: set is unnamed")
	d.retire(sh)
	d.retired.sets = append(d.retired.sets, id)
	d.mu.Unlock()
	signal(d.wake)
	if d.owners[sh.owner]--; d.owners[sh.owner] > 0 {
		return nil
	}
	delete(d.owners, sh.owner)
	return d.dropRanges(sh.owner, nil)
}

// addRanges makes sure that every range is in the kernel, before a word says
// that ranges apply.
func (d *Datapath) addRanges(owner uint32, ranges []netip.Prefix) error {
	for _, p := range ranges {
		k := rangeKeyOf(owner, p)
		if _, ok := d.ranges[owner][k]; ok {
			continue
		}
		if err := d.putRange(k); err != nil {
			return err
		}
		if d.ranges[owner] == nil {
			d.ranges[owner] = map[rangeKey]struct{}{}
		}
		d.ranges[owner][k] = struct{}{}
		failpoint.Hit("ranges: range is written")
	}
	return nil
}

func (d *Datapath) putRange(k rangeKey) error {
	if err := d.current.maps[mapRanges].Put(k, uint32(1)); err != nil {
		return fmt.Errorf("write source range %s: %w", k.prefix(), mapFull(err, mapRanges, d.cfg.Sizes.Ranges, "--max-source-ranges"))
	}
	return nil
}

// removeRanges deletes what the set no longer asks for. Sets without ranges
// that share an owner with VIPs, as NodePorts do, say nothing about them.
func (d *Datapath) removeRanges(owner uint32, s *model.Set) error {
	if s.Key.Role != model.RoleVIPInternal && s.Key.Role != model.RoleVIPExternal {
		return nil
	}
	keep := make(map[rangeKey]struct{}, len(s.SourceRanges))
	for _, p := range s.SourceRanges {
		keep[rangeKeyOf(owner, p)] = struct{}{}
	}
	return d.dropRanges(owner, keep)
}

func (d *Datapath) dropRanges(owner uint32, keep map[rangeKey]struct{}) error {
	for k := range d.ranges[owner] {
		if _, ok := keep[k]; ok {
			continue
		}
		if err := ignoreMissing(d.current.maps[mapRanges].Delete(k)); err != nil {
			return fmt.Errorf("delete source range %s: %w", k.prefix(), err)
		}
		delete(d.ranges[owner], k)
		failpoint.Hit("ranges: range is deleted")
	}
	if len(d.ranges[owner]) == 0 {
		delete(d.ranges, owner)
	}
	return nil
}

// Stores counts the words stored since the start. Safe from any goroutine.
func (d *Datapath) Stores() uint64 { return d.stores.Load() }
