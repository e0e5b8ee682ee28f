// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/maglev"
	"github.com/fairlead-io/fairlead/internal/model"
)

// perSlot is MAGLEV_PER_SLOT of bpf/maps.h.
const perSlot = 8

// hasTable says that the extent of the set has a Maglev table. With one backend
// there is nothing to choose.
func hasTable(s *model.Set) bool {
	return s.Selection == model.SelectionMaglev && len(s.Backends) > 1
}

// table makes the set's Maglev table; nil if it has none.
func (d *Datapath) table(s *model.Set) ([]uint16, error) {
	if !hasTable(s) {
		return nil, nil
	}
	backends := make([]netip.AddrPort, len(s.Backends))
	for i := range s.Backends {
		backends[i] = s.Backends[i].AddrPort
	}
	table, err := maglev.Table(cmp.Or(d.cfg.MaglevTableSize, maglev.DefaultSize), backends)
	if err != nil {
		return nil, fmt.Errorf("the backends of set %s are chosen at random: %w: choose a larger --maglev-table-size, or annotate the Service with fairlead.io/selection: random", s.Key, err)
	}
	return table, nil
}

// tableSlots is how many slots the entries of a table take.
func tableSlots(entries int) int { return (entries + perSlot - 1) / perSlot }

// tableSlot holds the first entries of a table, as many as fit.
func tableSlot(table []uint16, owner uint32) slot {
	s := slot{Kind: slotMaglev, Owner: owner}
	for i, entry := range table[:min(len(table), perSlot)] {
		binary.NativeEndian.PutUint16(s.Address[2*i:], entry)
	}
	return s
}

func writeTable(slots []slot, table []uint16, owner uint32) {
	i := 0
	for part := range slices.Chunk(table, perSlot) {
		slots[i] = tableSlot(part, owner)
		i++
	}
}

// wrongSlot returns the first slot that does not hold its part of the table; -1
// if all do.
func wrongSlot(slots []slot, table []uint16, owner uint32) int {
	i := 0
	for part := range slices.Chunk(table, perSlot) {
		if slots[i] != tableSlot(part, owner) {
			return i
		}
		i++
	}
	return -1
}

// readTable notes the size of an extent's Maglev table, which begins at a slot
// behind its backends, and returns what is wrong with it.
func (r *Reader) readTable(e *api.KernelEntry, flags uint8, h header, backends []slot, first uint64) string {
	e.MaglevEntries = uint32(h.entries)
	if flags&flagMaglev == 0 && h.entries == 0 {
		return ""
	}
	if flags&flagMaglev == 0 {
		return "the extent has a Maglev table that the set's word does not ask for"
	}
	if h.entries == 0 {
		return "the set's word asks for a Maglev table and the extent has none: packets are refused"
	}
	addresses := make([]netip.AddrPort, len(backends))
	for i := range backends {
		addresses[i] = netip.AddrPortFrom(backends[i].Address.addr(), backends[i].Port.uint16())
	}
	table, err := maglev.Table(maglev.Size(h.entries), addresses)
	if err != nil {
		return fmt.Sprintf("the extent's Maglev table makes no sense: %v", err)
	}
	end := first + uint64(tableSlots(len(table)))
	if end > uint64(len(r.maps.slots)) {
		return fmt.Sprintf("the extent's Maglev table ends at slot %d, and there are only %d", end, len(r.maps.slots))
	}
	if i := wrongSlot(r.maps.slots[first:end], table, e.Owner); i >= 0 {
		return fmt.Sprintf("slot %d is not what these backends make of a Maglev table: packets choose otherwise than on other nodes", first+uint64(i))
	}
	return ""
}
