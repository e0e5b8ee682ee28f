// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/fairlead-io/fairlead/internal/adapter"
	"github.com/fairlead-io/fairlead/internal/model"
)

// Between compares two dumps of one proxy: an earlier layer of it with a later
// one, which should hold the same. What the objects ask for is not known here,
// so that of two layers that differ nobody knows which is right.
func Between(earlier, later *adapter.Dump) []Difference {
	if earlier.HasPools {
		return poolsBetween(earlier, later)
	}
	have := map[model.Spot][]*adapter.Frontend{}
	for i := range later.Frontends {
		fe := &later.Frontends[i]
		own, node := spots(fe)
		for _, spot := range slices.Concat(own, node) {
			have[spot] = append(have[spot], fe)
		}
	}
	var out []Difference
	for i := range earlier.Frontends {
		fe := &earlier.Frontends[i]
		if !isService(fe) || fe.More > 0 || fe.Protocol == 0 || !later.Tells(model.FamilyOf(fe.Address.Addr())) {
			continue
		}
		spot := model.Spot{Address: fe.Address.Addr(), Port: fe.Address.Port(), Protocol: fe.Protocol}
		out = append(out, nearest(fe, have[spot], later.Unread)...)
	}
	return out
}

// nearest compares a frontend with those of the later layer that it may be.
func nearest(fe *adapter.Frontend, all []*adapter.Frontend, unread bool) []Difference {
	want := addressesOf(inUse(fe.Backends))
	at := model.Spot{Address: fe.Address.Addr(), Port: fe.Address.Port(), Protocol: fe.Protocol}.String()
	first := []Difference{{Missing, fe.Service, at, want, 0}}
	found := false
	for _, other := range all {
		if other.Scope != model.ScopeAll && fe.Scope != model.ScopeAll && other.Scope != fe.Scope {
			continue
		}
		differences := unlike(fe, other, at)
		if len(differences) == 0 {
			return nil
		}
		if !found {
			first, found = differences, true
		}
	}
	return slices.DeleteFunc(first, func(d Difference) bool {
		return len(d.Backends) == 0 || unread && d.Kind.Lacks()
	})
}

// unlike says how a frontend differs from what the earlier layer has.
func unlike(fe, later *adapter.Frontend, at string) []Difference {
	want, have := addressesOf(inUse(fe.Backends)), inUse(later.Backends)
	if len(have)+later.More == 0 {
		if len(want) == 0 {
			return nil
		}
		return []Difference{{Empty, fe.Service, at, want, later.Line}}
	}
	var out []Difference
	if absent := lacking(want, have, later.More); len(absent) > 0 {
		out = append(out, Difference{Incomplete, fe.Service, at, absent, later.Line})
	}
	known := addressesOf(fe.Backends)
	surplus := slices.DeleteFunc(addressesOf(have), func(a netip.AddrPort) bool { return slices.Contains(known, a) })
	if len(surplus) > 0 {
		out = append(out, Difference{Stale, fe.Service, at, surplus, later.Line})
	}
	return out
}

// poolsBetween finds what frontends lead to and the table of backends no longer
// has: it goes with the next change of the Service. The differences are those of
// the table.
func poolsBetween(earlier, later *adapter.Dump) []Difference {
	if earlier.Unread {
		return nil
	}
	known := map[model.Name]map[netip.AddrPort]bool{}
	for _, p := range earlier.Pools {
		if known[p.Service] == nil {
			known[p.Service] = map[netip.AddrPort]bool{}
		}
		for _, b := range p.Backends {
			known[p.Service][b.Address] = true
		}
	}
	absent := map[model.Name]map[netip.AddrPort]bool{}
	for i := range later.Frontends {
		fe := &later.Frontends[i]
		if !isService(fe) || fe.Service == (model.Name{}) {
			continue
		}
		for _, b := range inUse(fe.Backends) {
			if known[fe.Service][b.Address] {
				continue
			}
			if absent[fe.Service] == nil {
				absent[fe.Service] = map[netip.AddrPort]bool{}
			}
			absent[fe.Service][b.Address] = true
		}
	}
	var out []Difference
	for _, service := range slices.SortedFunc(maps.Keys(absent), model.Name.Compare) {
		kind := Incomplete
		if len(known[service]) == 0 {
			kind = Empty
		}
		out = append(out, Difference{kind, service, "its table of backends", slices.SortedFunc(maps.Keys(absent[service]), model.CompareAddrPort), 0})
	}
	return out
}

func addressesOf(all []adapter.Backend) []netip.AddrPort {
	out := make([]netip.AddrPort, len(all))
	for i, b := range all {
		out[i] = b.Address
	}
	return out
}
