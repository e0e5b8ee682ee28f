// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"net/netip"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/tables"
)

// Expected is what should be at one moment. That of a replay knows besides what
// objects asked for within the lag before, and which backends are long gone.
type Expected struct {
	rows   map[model.Name]*tables.Service
	index  *index
	recent recent
	past   *past
}

// Against returns what objects ask for on a node, and nothing of what was
// before. It compares any number of dumps.
func Against(services []*model.Service, endpoints []*model.EndpointSlice, node *model.Node, o *model.Options) *Expected {
	owned := make(map[model.Name][]*model.EndpointSlice, len(services))
	for _, slice := range endpoints {
		owned[slice.ServiceName()] = append(owned[slice.ServiceName()], slice)
	}
	rows := make([]tables.Service, len(services))
	own := make([]model.Candidate, len(services))
	for i, s := range services {
		rows[i] = tables.Service{
			Name: s.Name, Object: s, Slices: owned[s.Name], Ignored: model.Ignored(s, o), Own: model.Compile(s, owned[s.Name], node, o),
		}
		own[i] = model.Candidate{Contender: model.Contender{Service: s.Name, Created: s.CreationTimestamp}, Compiled: rows[i].Own}
	}
	x := &Expected{rows: make(map[model.Name]*tables.Service, len(services)), past: &past{}}
	for i, c := range model.Resolve(own) {
		rows[i].Compiled = c.Compiled
		x.rows[rows[i].Name] = &rows[i]
	}
	x.index = newIndex(x.rows)
	return x
}

// Row is what a Service asks for; nil if there is no such Service.
func (x *Expected) Row(service model.Name) *tables.Service { return x.rows[service] }

// Holders are the Services of which an address is a backend.
func (x *Expected) Holders(address netip.AddrPort) []model.Name { return x.index.holders[address] }
