// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"net/netip"
	"slices"

	"github.com/fairlead-io/fairlead/internal/adapter"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/tables"
)

// pools compares a proxy's table of backends with the rows: whoever a Service
// port has on this node must be in it, and nobody who is not in the Service's
// slices.
func (x *Expected) pools(d *adapter.Dump) []Difference {
	type key struct {
		service model.Name
		port    string
	}
	have := map[key][]adapter.Backend{}
	for _, p := range d.Pools {
		have[key{p.Service, p.PortName}] = append(have[key{p.Service, p.PortName}], p.Backends...)
	}
	var out []Difference
	for name, row := range x.rows {
		for _, port := range portsOf(row) {
			out = append(out, x.pool(row, port, have[key{name, port}])...)
		}
	}
	return out
}

// portsOf are the names of a Service's ports that have sets.
func portsOf(row *tables.Service) []string {
	var out []string
	for i := range row.Own.Sets {
		out = append(out, row.Own.Sets[i].Key.PortName)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (x *Expected) pool(row *tables.Service, port string, have []adapter.Backend) []Difference {
	must := behind(row, port)
	for _, row := range x.recent.rows[row.Name] {
		before := behind(row, port)
		must = slices.DeleteFunc(must, func(a netip.AddrPort) bool { return !slices.Contains(before, a) })
	}
	at := "port " + port
	if port == "" {
		at = "its port"
	}
	if len(inUse(have)) == 0 {
		if len(must) == 0 {
			return nil
		}
		return []Difference{{Empty, row.Name, at, must, 0}}
	}
	var out []Difference
	if absent := lacking(must, have, 0); len(absent) > 0 {
		out = append(out, Difference{Incomplete, row.Name, at, absent, 0})
	}
	for _, b := range inUse(have) {
		if k := x.surplus(row, b.Address); k != Unchosen && !x.was(row.Name, b.Address) {
			out = append(out, Difference{k, row.Name, at, []netip.AddrPort{b.Address}, 0})
		}
	}
	return out
}

// behind are the backends of a port, in all sets together.
func behind(row *tables.Service, port string) []netip.AddrPort {
	var out []netip.AddrPort
	if row == nil {
		return out
	}
	for i := range row.Own.Sets {
		if row.Own.Sets[i].Key.PortName == port {
			out = append(out, addresses(row.Own.Sets[i].Backends)...)
		}
	}
	slices.SortFunc(out, model.CompareAddrPort)
	return slices.Compact(out)
}

// was says that an address was in a Service's slices a moment ago.
func (x *Expected) was(name model.Name, address netip.AddrPort) bool {
	return slices.ContainsFunc(x.recent.rows[name], func(row *tables.Service) bool { return row != nil && isEndpoint(row, address) })
}
