// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/fairlead-io/fairlead/internal/failpoint"
	"github.com/fairlead-io/fairlead/internal/model"
)

// ownerKey is what an owner id stands for.
type ownerKey struct {
	service  model.Name
	portName string
	protocol model.Protocol
	family   model.Family
}

func ownerKeyOf(k model.SetKey) ownerKey {
	return ownerKey{k.Service, k.PortName, k.Protocol, k.Family}
}

// adopted is what a predecessor left: sets by name, until they are claimed,
// and the owners by what they stand for.
type adopted struct {
	sets   map[model.SetKey]SetID
	lost   []SetID // in use, but without a readable name or a second of its name
	owners map[ownerKey]uint32
	served map[SetID]struct{} // those that a frontend points to
	// former are the ids that sets have in the maps that are being replaced.
	// Sockets remember their set by its id, so each is kept for its name.
	former map[model.SetKey]SetID
}

func newAdopted() adopted {
	return adopted{sets: map[model.SetKey]SetID{}, owners: map[ownerKey]uint32{}, served: map[SetID]struct{}{}}
}

// claimSet takes the set of a name, if it fits; one that does not stays
// unclaimed.
func (a *adopted) claimSet(k model.SetKey, fits func(SetID) bool) (SetID, bool) {
	id, ok := a.sets[k]
	if !ok || !fits(id) {
		return 0, false
	}
	delete(a.sets, k)
	return id, true
}

func (a *adopted) owner(k model.SetKey) (uint32, bool) {
	owner, ok := a.owners[ownerKeyOf(k)]
	return owner, ok
}

func (a *adopted) unclaimed() []SetID {
	ids := slices.Clone(a.lost)
	for _, id := range a.sets {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (a *adopted) add(id SetID, owner uint32, n *name) {
	k, ok := n.key()
	if !ok || n.Owner != owner {
		a.lost = append(a.lost, id)
		return
	}
	if _, taken := a.sets[k]; taken {
		a.lost = append(a.lost, id)
		return
	}
	a.sets[k] = id
	a.owners[ownerKeyOf(k)] = owner
}

func (d *Datapath) freeAllSets() {
	kept := make(map[SetID]bool, len(d.known.former))
	for _, id := range d.known.former {
		kept[id] = true
	}
	d.freeSets = make([]SetID, 0, len(d.shadows))
	for id := len(d.shadows) - 1; id >= 0; id-- {
		if d.shadows[id].owner == 0 && !kept[SetID(id)] {
			d.freeSets = append(d.freeSets, SetID(id))
		}
	}
}

// adoptOwners keeps the owners of the generation that is being replaced, so
// that sockets and affinity entries go on to mean the same Service ports. What
// another layout says cannot be read; of that, only the counter is kept.
func (d *Datapath) adoptOwners(previous *generation) {
	d.current.meta.NextOwner = max(d.current.meta.NextOwner, previous.meta.NextOwner)
	if previous.meta.Layout == LayoutVersion {
		for id := range min(len(previous.sets), len(previous.names)) {
			if owner := previous.sets[id].Owner; owner != 0 {
				d.known.add(SetID(id), owner, &previous.names[id])
				d.noteOwner(owner)
			}
		}
		maps.DeleteFunc(d.known.sets, func(_ model.SetKey, id SetID) bool { return int(id) >= len(d.shadows) })
		d.known.former = d.known.sets
		d.known.sets, d.known.lost = map[model.SetKey]SetID{}, nil
	}
	d.freeAllSets()
}

// takeFreeSet takes the id that the set had in the maps that are replaced, or
// any. The lock is held.
func (d *Datapath) takeFreeSet(k model.SetKey) (SetID, bool) {
	if id, ok := d.known.former[k]; ok {
		delete(d.known.former, k)
		return id, true
	}
	if len(d.freeSets) == 0 {
		return 0, false
	}
	id := d.freeSets[len(d.freeSets)-1]
	d.freeSets = d.freeSets[:len(d.freeSets)-1]
	return id, true
}

// freeFormerSets gives the ids away that nobody has asked for.
func (d *Datapath) freeFormerSets() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.freeSets = slices.AppendSeq(d.freeSets, maps.Values(d.known.former))
	d.known.former = nil
	signal(d.reclaimed)
}

func (d *Datapath) noteOwner(owner uint32) {
	if owner >= d.current.meta.NextOwner {
		d.current.meta.NextOwner = owner + 1
	}
}

// adoptSets takes over the sets and frontends in the pinned maps. What it
// cannot make sense of is left in force until Prune, or until a set is
// published again.
func (d *Datapath) adoptSets() error {
	for id := range d.current.sets {
		entry := &d.current.sets[id]
		if entry.Owner == 0 {
			continue
		}
		_, flags, _ := unpackWord(entry.Word)
		d.shadows[id] = shadow{owner: entry.Owner, role: model.Role(d.current.names[id].Role), ranged: flags&flagRanges != 0}
		d.owners[entry.Owner]++
		d.noteOwner(entry.Owner)
		d.known.add(SetID(id), entry.Owner, &d.current.names[id])
	}
	d.adoptExtents()
	d.freeAllSets()
	failpoint.Hit("open: sets are adopted")
	if err := d.adoptRanges(); err != nil {
		return err
	}
	if err := d.adoptAddresses(); err != nil {
		return err
	}
	if err := d.adoptFrontends(); err != nil {
		return err
	}
	d.frontendCount.Store(int64(len(d.installed)))
	failpoint.Hit("open: frontends are adopted")
	return nil
}

// adoptExtents marks what is in use, in the order of the slots, which keeps
// the free runs few. An extent that is out of range, or overlaps another, is
// left out: its set will be published elsewhere.
func (d *Datapath) adoptExtents() {
	type extent struct {
		id   int
		base uint32
	}
	var inUse []extent
	for id, sh := range d.shadows {
		if base, _, _ := unpackWord(d.current.sets[id].Word); sh.owner != 0 && base != 0 {
			inUse = append(inUse, extent{id, base})
		}
	}
	slices.SortFunc(inUse, func(a, b extent) int { return cmp.Compare(a.base, b.base) })
	for _, x := range inUse {
		if uint64(x.base) >= uint64(len(d.current.slots)) {
			d.log.Warn("a pinned backend set lies outside of its map and will be written anew", "set", x.id)
			continue
		}
		first := &d.current.slots[x.base]
		length := first.header().length
		if first.Kind != slotHeader || first.Owner != d.shadows[x.id].owner || !d.room.reserve(x.base, length) {
			d.log.Warn("a pinned backend set is damaged and will be written anew", "set", x.id)
			continue
		}
		d.shadows[x.id].base, d.shadows[x.id].length = x.base, length
	}
}

func (d *Datapath) adoptFrontends() error {
	return readFrontends(d.current.maps[mapFrontends], func(k frontendKey, f frontend) {
		if int(f.Set) < len(d.shadows) {
			owner := d.shadows[f.Set].owner
			if owner != 0 && f == frontendOf(k, f.Set, owner) {
				d.install(k, installed{set: SetID(f.Set)})
				d.known.served[SetID(f.Set)] = struct{}{}
				return
			}
		}
		d.strays[k] = struct{}{}
	})
}

func (d *Datapath) adoptRanges() error {
	return readRanges(d.current.maps[mapRanges], func(k rangeKey) {
		if d.ranges[k.Owner] == nil {
			d.ranges[k.Owner] = map[rangeKey]struct{}{}
		}
		d.ranges[k.Owner][k] = struct{}{}
	})
}

// readRanges calls f for every source range. The trie has no batch look-up on
// old kernels, and ranges are few.
func readRanges(m *ebpf.Map, f func(rangeKey)) error {
	var k rangeKey
	var v uint32
	entries := m.Iterate()
	for entries.Next(&k, &v) {
		f(k)
	}
	if err := entries.Err(); err != nil {
		return fmt.Errorf("read the source ranges: %w", err)
	}
	return nil
}
