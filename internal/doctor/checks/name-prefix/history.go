// SPDX-License-Identifier: Apache-2.0

package nameprefix

import (
	"net/netip"

	"github.com/fairlead-io/fairlead/internal/adapter"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/doctor/services"
)

// history is a case by what is looked up in it for each pair.
type history struct {
	c        *facts.Case
	services [][]services.Service // by sample
	tables   map[*facts.Node][]table
}

func historyOf(c *facts.Case) *history {
	h := &history{c: c, tables: map[*facts.Node][]table{}}
	for _, s := range c.Samples {
		h.services = append(h.services, services.All(s.Objects))
		for _, n := range s.Nodes {
			h.tables[n] = tablesOf(n)
		}
	}
	return h
}

// table is a dump of Cilium by Service and by address.
type table struct {
	dump      *facts.Dump
	pools     map[string][]netip.AddrPort
	frontends map[netip.AddrPort][]*adapter.Frontend
}

// tablesOf are the dumps of a node that tell what is missing in them, from the
// agent's backends to the kernel.
func tablesOf(n *facts.Node) []table {
	var out []table
	for i := range n.Dumps {
		if d := &n.Dumps[i]; d.DataPlane == facts.PlaneCilium && d.Silent == "" && !d.Unread {
			out = append(out, newTable(d))
		}
	}
	return out
}

func newTable(d *facts.Dump) table {
	t := table{dump: d, pools: map[string][]netip.AddrPort{}, frontends: map[netip.AddrPort][]*adapter.Frontend{}}
	for _, p := range d.Pools {
		name := p.Service.String()
		for _, b := range p.Backends {
			t.pools[name] = append(t.pools[name], b.Address)
		}
	}
	for i := range d.Frontends {
		f := &d.Frontends[i]
		t.frontends[f.Address] = append(t.frontends[f.Address], f)
	}
	return t
}

// table is what an agent has of a Service, by the first of its layers that can
// tell; no dump if none can. The kernel may lag behind the agent for as long as
// nobody writes the Service, so the agent's own backends come first.
func (h *history) table(n *facts.Node, s services.Service) ([]netip.AddrPort, *facts.Dump) {
	for _, t := range h.tables[n] {
		if t.dump.Layer == facts.Backends {
			return t.pools[s.String()], t.dump
		}
		if has, listed := t.behind(s); listed {
			return has, t.dump
		}
	}
	return nil, nil
}

// behind is who stands behind a Service's addresses, and whether any of them is
// listed. A frontend of which backends are only counted tells nothing.
func (t *table) behind(s services.Service) (has []netip.AddrPort, listed bool) {
	for _, address := range s.Addresses() {
		for _, f := range t.frontends[address] {
			if f.More > 0 {
				return nil, false
			}
			listed = true
			for _, b := range f.Backends {
				has = append(has, b.Address)
			}
		}
	}
	return has, listed
}
