// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"net/netip"

	"github.com/fairlead-io/fairlead/internal/adapter"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/tables"
)

// want is a frontend that should be.
type want struct {
	row   *tables.Service
	claim *model.Claim
}

// set is who should stand behind it by the Service's own objects: no other
// proxy retains what they no longer have.
func (w want) set() *model.Set { return &w.row.Own.Sets[w.claim.Set] }

// index is what should be, by address.
type index struct {
	wants map[model.Spot][]want
	// shadowed are claims that nobody's connection follows.
	shadowed map[model.Spot]bool
	// ignored are the addresses of Services that are another proxy's.
	ignored map[netip.Addr]bool
	// holders are the Services of which an address is a backend.
	holders map[netip.AddrPort][]model.Name
}

func newIndex(rows map[model.Name]*tables.Service) *index {
	x := &index{map[model.Spot][]want{}, map[model.Spot]bool{}, map[netip.Addr]bool{}, map[netip.AddrPort][]model.Name{}}
	for _, row := range rows {
		x.add(row)
	}
	return x
}

func (x *index) add(row *tables.Service) {
	if row.Ignored != "" && row.Object != nil {
		x.ignore(row.Object)
	}
	for i := range row.Compiled.Claims {
		claim := &row.Compiled.Claims[i]
		spot := claim.Key.Spot()
		if claim.Shadowed != "" {
			x.shadowed[spot] = true
			continue
		}
		x.wants[spot] = append(x.wants[spot], want{row, claim})
	}
	for address := range backendsOf(row) {
		x.holders[address] = append(x.holders[address], row.Name)
	}
}

func (x *index) ignore(s *model.Service) {
	for _, a := range s.ClusterIPs {
		x.ignored[a] = true
	}
	for _, a := range s.ExternalIPs {
		x.ignored[a] = true
	}
	for _, in := range s.LoadBalancerIngress {
		x.ignored[in.Address] = true
	}
}

// recent is what rows were within the lag, by Service and by place.
type recent struct {
	rows   map[model.Name][]*tables.Service // nil: there was none
	places map[model.Spot][]want
}

func newRecent(earlier []version) recent {
	r := recent{map[model.Name][]*tables.Service{}, map[model.Spot][]want{}}
	for _, v := range earlier {
		r.rows[v.name] = append(r.rows[v.name], v.row)
		if v.row == nil {
			continue
		}
		for i := range v.row.Compiled.Claims {
			w := want{v.row, &v.row.Compiled.Claims[i]}
			if w.claim.Shadowed == "" {
				r.places[w.claim.Key.Spot()] = append(r.places[w.claim.Key.Spot()], w)
			}
		}
	}
	return r
}

// backendsOf are the addresses that a Service's own objects give it.
func backendsOf(row *tables.Service) map[netip.AddrPort]bool {
	out := map[netip.AddrPort]bool{}
	if row == nil {
		return out
	}
	for i := range row.Own.Sets {
		for _, b := range row.Own.Sets[i].Backends {
			out[b.AddrPort] = true
		}
		for _, b := range row.Own.Sets[i].Draining {
			out[b.AddrPort] = true
		}
	}
	return out
}

// protocols are those that a frontend without one may stand for.
var protocols = []model.Protocol{model.TCP, model.UDP, model.SCTP}

// spots are the places of a frontend: its own address, and for what may be a
// NodePort then that of all addresses of the node.
func spots(fe *adapter.Frontend) (own, node []model.Spot) {
	all := protocols
	if fe.Protocol != 0 {
		all = []model.Protocol{fe.Protocol}
	}
	address := fe.Address.Addr()
	for _, p := range all {
		own = append(own, model.Spot{Address: address, Port: fe.Address.Port(), Protocol: p})
		if fe.Type == "NodePort" || fe.Type == "" {
			node = append(node, model.Spot{Address: model.FamilyOf(address).Unspecified(), Port: fe.Address.Port(), Protocol: p})
		}
	}
	return own, node
}

// find returns what should be where a frontend is.
func (x *index) find(fe *adapter.Frontend) (wants []want, shadowed bool) {
	own, node := spots(fe)
	for _, places := range [][]model.Spot{own, node} {
		for _, spot := range places {
			wants = append(wants, x.wants[spot]...)
			shadowed = shadowed || x.shadowed[spot]
		}
		if len(wants) > 0 {
			return wants, false
		}
	}
	return nil, shadowed
}
