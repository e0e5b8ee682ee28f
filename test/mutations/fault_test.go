// SPDX-License-Identifier: Apache-2.0

package mutations

import (
	"errors"
	"math/rand/v2"
	"net/netip"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/evidence"
)

// errUnchanged says that a fault cannot be made in a bundle.
var errUnchanged = errors.New("nothing was changed")

// change is what is done to the tables of one Service.
type change int

// The changes.
const (
	drop   change = iota // a backend is taken away
	empty                // all are
	swap                 // a backend gets another address
	add                  // one more
	remove               // the frontend at the ClusterIP is taken away
	extra                // it stands at another address as well
)

// fault is a change with its operands.
type fault struct {
	change  change
	service *service
	backend netip.AddrPort // what is taken away, or gets another address
	other   netip.AddrPort // the other address; that of a frontend if extra
}

// kind is a kind of fault with what should be found of it.
type kind struct {
	name   string
	change change
	// agent is that the agent's tables have the fault as well as the kernel;
	// tables alone of the agent if ahead.
	agent, ahead bool
	planes       []facts.DataPlane
	other        func(r *rand.Rand, w *world, f *fault) bool
	checks       []string // one of these is the root
	layer        doctor.Layer
}

var (
	allPlanes  = []facts.DataPlane{facts.PlaneFairlead, facts.PlaneCilium, facts.PlaneKubeProxy}
	withTables = []facts.DataPlane{facts.PlaneFairlead, facts.PlaneCilium}
	onlyCilium = []facts.DataPlane{facts.PlaneCilium}
)

// foreign takes another Service's backend.
func foreign(r *rand.Rand, w *world, f *fault) (ok bool) {
	f.other, ok = w.other(r, f.service)
	return ok
}

// nobodys takes an address that nobody has.
func nobodys(r *rand.Rand, _ *world, f *fault) bool {
	f.other = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 250, byte(r.IntN(256)), byte(r.IntN(256))}), f.backend.Port())
	return f.backend.Addr().Is4()
}

// port takes the same address with another port.
func port(r *rand.Rand, _ *world, f *fault) bool {
	f.other = netip.AddrPortFrom(f.backend.Addr(), f.backend.Port()+1+uint16(r.IntN(100)))
	return true
}

// kinds are those of tables; others have functions of their own.
func kinds() []kind {
	bare := []kind{
		{name: "a backend is gone", change: drop, checks: []string{"backends-incomplete", "backends-missing"}},
		{name: "all backends are gone", change: empty, checks: []string{"backends-missing"}},
		{name: "a backend is another Service's", change: swap, other: foreign, checks: []string{"backends-foreign"}},
		{name: "a backend has another port", change: swap, other: port, checks: []string{"backends-stale"}},
		{name: "a backend of another Service was added", change: add, other: foreign, checks: []string{"backends-foreign"}},
		{name: "a backend that is no more was kept", change: add, other: nobodys, checks: []string{"backends-stale"}},
		{name: "a frontend is gone", change: remove, checks: []string{"frontend-missing"}},
		{name: "a frontend of nobody was kept", change: extra, other: nobodys, checks: []string{"frontend-extra"}},
	}
	var out []kind
	for _, k := range bare {
		k.name, k.layer, k.planes = "kernel: "+k.name, doctor.LayerKernel, allPlanes
		out = append(out, k)
	}
	for _, k := range bare {
		k.name, k.layer, k.planes, k.agent = "agent: "+k.name, doctor.LayerAgent, withTables, true
		out = append(out, k)
	}
	return append(out, kind{
		name: "agent: its table of backends has none, the rest is right", change: empty, ahead: true,
		planes: onlyCilium, checks: []string{"backends-missing"}, layer: doctor.LayerAgent,
	})
}

// make breaks a bundle; errUnchanged if it holds nothing that can be broken so.
func (k *kind) make(r *rand.Rand, w *world) (*evidence.Bundle, fault, error) {
	f := fault{change: k.change}
	f.service, f.backend = w.pick(r)
	if k.other != nil && !k.other(r, w, &f) {
		return nil, f, errUnchanged
	}
	b := clone(w.bundle)
	err := edit(b, func(record *evidence.Record) ([]byte, error) {
		table := tableOf(record)
		if table.edit == nil || k.ahead != (table.layer == facts.Backends) && (k.ahead || !k.agent) || !k.agent && !k.ahead && table.layer != facts.Kernel {
			return nil, nil
		}
		return table.edit(record.Content, &f)
	})
	return b, f, err
}
