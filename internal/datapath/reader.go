// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/model"
)

// ErrNotPinned says that there are no maps under a pin path.
var ErrNotPinned = errors.New("no Fairlead maps are pinned")

// Reader reads pinned maps, whoever writes them or wrote them last.
type Reader struct {
	pinPath string
	maps    *generation
}

// OpenReader opens the current maps and writes nothing to them. ErrNotPinned if there are none.
func OpenReader(pinPath string) (*Reader, error) {
	g, err := openGeneration(pinPath, unix.PROT_READ)
	if err != nil {
		return nil, err
	}
	if g == nil {
		return nil, fmt.Errorf("%w at %s: is the agent's --pin-path another one?", ErrNotPinned, pinPath)
	}
	if g.meta.Layout != LayoutVersion {
		defer g.close()
		return nil, fmt.Errorf("the maps pinned at %s have layout %d, this program reads layout %d: use the agent's own version", pinPath, g.meta.Layout, LayoutVersion)
	}
	return &Reader{pinPath: pinPath, maps: g}, nil
}

// Close ends the reader.
func (r *Reader) Close() error {
	r.maps.close()
	return nil
}

// Kernel reads every frontend with its set. The maps may change underneath:
// each set is read whole or again, and what makes no sense is said in the
// entry's Problem.
func (r *Reader) Kernel() (api.Kernel, error) {
	ranges := map[uint32][]string{}
	err := readRanges(r.maps.maps[mapRanges], func(k rangeKey) {
		ranges[k.Owner] = append(ranges[k.Owner], k.prefix().String())
	})
	if err != nil {
		return api.Kernel{}, err
	}
	for _, list := range ranges {
		slices.Sort(list)
	}
	kernel := api.Kernel{
		SchemaVersion: api.SchemaVersion, PinPath: r.pinPath, Layout: r.maps.meta.Layout,
		Entries: []api.KernelEntry{}, UnusedSets: []api.KernelEntry{},
	}
	used := make([]bool, len(r.maps.sets))
	err = readFrontends(r.maps.maps[mapFrontends], func(k frontendKey, f frontend) {
		e := r.entry(k, f, ranges)
		if int(f.Set) < len(used) {
			used[f.Set] = true
		}
		kernel.Entries = append(kernel.Entries, e)
	})
	if err != nil {
		return api.Kernel{}, err
	}
	slices.SortFunc(kernel.Entries, compareEntries)
	for id := range r.maps.sets {
		owner := atomic.LoadUint32(&r.maps.sets[id].Owner)
		if used[id] || owner == 0 {
			continue
		}
		e := r.setEntry(uint32(id), owner, ranges)
		e.Protocol = protocolName(r.maps.names[id].Protocol)
		kernel.UnusedSets = append(kernel.UnusedSets, e)
	}
	return kernel, nil
}

func compareEntries(a, b api.KernelEntry) int {
	x, _ := netip.ParseAddr(a.Address)
	y, _ := netip.ParseAddr(b.Address)
	return cmp.Or(slices.Compare(x.AsSlice(), y.AsSlice()),
		cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Scope, b.Scope))
}

func protocolName(p uint8) string { return model.Protocol(p).String() }

func (r *Reader) entry(k frontendKey, f frontend, ranges map[uint32][]string) api.KernelEntry {
	var e api.KernelEntry
	switch {
	case f.Key != k || f.Seal != frontendSeal(k, f.Set, f.Owner):
		e = emptyEntry(f.Set, f.Owner)
		e.Problem = "the element does not fit its key: something else wrote to the map"
	case int(f.Set) >= len(r.maps.sets):
		e = emptyEntry(f.Set, f.Owner)
		e.Problem = fmt.Sprintf("it points to set %d, and there are only %d", f.Set, len(r.maps.sets))
	default:
		e = r.setEntry(f.Set, f.Owner, ranges)
	}
	e.Address = k.Address.addr().String()
	e.Port = k.Port.uint16()
	e.Protocol = protocolName(k.Protocol)
	e.Scope = model.ScopeInternal.String()
	if k.Scope == scopeExternal {
		e.Scope = model.ScopeExternal.String()
	}
	return e
}

func emptyEntry(set, owner uint32) api.KernelEntry {
	return api.KernelEntry{
		Set: set, Owner: owner, Action: model.ActionDrop.String(),
		SourceRanges: []string{}, Backends: []api.KernelBackend{}, Draining: []api.KernelBackend{},
	}
}

// setEntry reads one set as its owner's programs would, and tries again while
// it is being published.
func (r *Reader) setEntry(id, owner uint32, ranges map[uint32][]string) api.KernelEntry {
	const tries = 1000
	set := &r.maps.sets[id]
	for range tries {
		word, generation := atomic.LoadUint64(&set.Word), atomic.LoadUint32(&set.Generation)
		e := r.readSet(id, owner, word, generation, ranges)
		if atomic.LoadUint64(&set.Word) == word && atomic.LoadUint32(&set.Generation) == generation {
			return e
		}
	}
	e := emptyEntry(id, owner)
	e.Problem = fmt.Sprintf("the set changed under each of %d reads", tries)
	return e
}

func (r *Reader) readSet(id, owner uint32, word uint64, generation uint32, ranges map[uint32][]string) api.KernelEntry {
	e := emptyEntry(id, owner)
	e.Generation = generation
	set := &r.maps.sets[id]
	base, flags, count := unpackWord(word)
	e.Base = base
	e.AffinitySeconds = atomic.LoadUint32(&set.AffinitySeconds)
	e.Action = action(flags, count)
	if flags&flagRanges != 0 {
		e.SourceRanges = append(e.SourceRanges, ranges[owner]...)
	}
	n := r.maps.names[id]
	if k, ok := n.key(); ok && n.Owner == owner {
		e.Service, e.PortName, e.Role = k.Service.String(), k.PortName, k.Role.String()
	}
	if have := atomic.LoadUint32(&set.Owner); have != owner {
		e.Problem = fmt.Sprintf("the set belongs to owner %d, not to %d: new connections are refused", have, owner)
		return e
	}
	if base == 0 {
		if count != 0 {
			e.Problem = fmt.Sprintf("the set counts %d backends and has no extent", count)
		}
		return e
	}
	e.Problem = r.readExtent(&e, base, flags, count, owner)
	return e
}

func action(flags uint8, count uint32) string {
	switch {
	case count > 0:
		return model.ActionForward.String()
	case flags&flagDrop != 0:
		return model.ActionDrop.String()
	}
	return model.ActionReject.String()
}

// readExtent fills in the backends and returns what is wrong with the extent.
func (r *Reader) readExtent(e *api.KernelEntry, base uint32, flags uint8, count, owner uint32) string {
	slots := r.maps.slots
	if uint64(base) >= uint64(len(slots)) {
		return fmt.Sprintf("the set's extent starts at slot %d, and there are only %d", base, len(slots))
	}
	first := slots[base]
	h := first.header()
	if first.Kind != slotHeader || first.Owner != owner {
		return fmt.Sprintf("slot %d is not the header of an extent of owner %d", base, owner)
	}
	end := uint64(base) + 1 + uint64(h.total)
	if h.selectable != count || h.total < count || end > uint64(len(slots)) {
		return fmt.Sprintf("the set counts %d backends, the header of its extent %d of %d", count, h.selectable, h.total)
	}
	// The set's own may already be that of the word to come.
	e.Generation = h.generation
	problem := ""
	for i := base + 1; i < uint32(end); i++ {
		s := slots[i]
		if s.Owner != owner || s.Kind != slotBackend {
			problem = fmt.Sprintf("slot %d belongs to owner %d, not to %d", i, s.Owner, owner)
		}
		b := api.KernelBackend{Address: s.Address.addr().String(), Port: s.Port.uint16()}
		if i <= base+count {
			e.Backends = append(e.Backends, b)
		} else {
			e.Draining = append(e.Draining, b)
		}
	}
	if problem != "" {
		return problem
	}
	return r.readTable(e, flags, h, slots[base+1:base+1+count], end)
}
