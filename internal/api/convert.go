// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/fairlead-io/fairlead/internal/model"
)

// Frontends returns the rows of a Service, in the order of its claims.
func Frontends(service model.Name, c *model.Compiled) []Frontend {
	rows := make([]Frontend, len(c.Claims))
	for i, claim := range c.Claims {
		rows[i] = NewFrontend(service, claim, &c.Sets[claim.Set])
	}
	return rows
}

// NewFrontend returns the row of one claim and the set it points to. Backends
// and draining ones stand on a row only if connections may reach them through
// it, so not on one that is shadowed or unsupported.
func NewFrontend(service model.Name, claim model.Claim, set *model.Set) Frontend {
	row := Frontend{
		Address:         claim.Key.Address.String(),
		Port:            claim.Key.Port,
		Protocol:        claim.Key.Protocol.String(),
		Scope:           claim.Key.Scope.String(),
		Type:            claim.Type.String(),
		Service:         service.String(),
		PortName:        claim.PortName,
		Action:          set.Action.String(),
		Reason:          set.Reason,
		AffinitySeconds: set.AffinitySeconds,
		SourceRanges:    texts(set.SourceRanges),
		Backends:        []Backend{},
		Draining:        []Backend{},
	}
	if claim.Shadowed != "" {
		row.Action = model.ActionShadowed.String()
		row.Reason = "held by " + claim.Shadowed
		return row
	}
	if set.Action == model.ActionUnsupported {
		return row
	}
	if set.Action == model.ActionForward {
		row.Backends = NewBackends(set.Backends)
	}
	row.Draining = NewBackends(set.Draining)
	return row
}

// NewBackends converts a list of backends and keeps its order.
func NewBackends(all []model.Backend) []Backend {
	backends := make([]Backend, len(all))
	for i, b := range all {
		backends[i] = Backend{
			Address: b.AddrPort.Addr().String(),
			Port:    b.AddrPort.Port(),
			State:   b.State.String(),
			Local:   b.Local,
			Node:    b.Node,
			Slices:  texts(b.Slices),
		}
	}
	return backends
}

// HostPort writes an address and a port as one would dial them, IPv6 in
// brackets.
func HostPort(address string, port uint16) string {
	return net.JoinHostPort(address, strconv.Itoa(int(port)))
}

// texts writes each value as it writes itself; the list is never null.
func texts[T interface{ String() string }](all []T) []string {
	list := make([]string, len(all))
	for i, v := range all {
		list[i] = v.String()
	}
	return list
}

// SortFrontends puts rows in the order of the contract: by address bytes, then
// port, protocol, scope, type, service. What JSON shows as words is ordered as
// words, so that a reader can check the order without knowing our numbers. The
// name of the port comes last, for claims that a Service repeats.
func SortFrontends(rows []Frontend) {
	keyed := make([]keyedRow, len(rows))
	for i, row := range rows {
		keyed[i] = keyedRow{parsed(row.Address), row}
	}
	slices.SortStableFunc(keyed, keyedRow.compare)
	for i := range keyed {
		rows[i] = keyed[i].row
	}
}

// CompareFrontends is the order of SortFrontends, for a few rows.
func CompareFrontends(a, b Frontend) int {
	return keyedRow{parsed(a.Address), a}.compare(keyedRow{parsed(b.Address), b})
}

// keyedRow is a row with its address parsed once.
type keyedRow struct {
	address netip.Addr
	row     Frontend
}

func (a keyedRow) compare(b keyedRow) int {
	if c := cmp.Or(model.CompareAddr(a.address, b.address), cmp.Compare(a.row.Port, b.row.Port)); c != 0 {
		return c
	}
	return cmp.Or(
		cmp.Compare(a.row.Protocol, b.row.Protocol),
		cmp.Compare(a.row.Scope, b.row.Scope),
		cmp.Compare(a.row.Type, b.row.Type),
		cmp.Compare(a.row.Service, b.row.Service),
		cmp.Compare(a.row.PortName, b.row.PortName))
}

// parsed returns the zero Addr, which sorts first, for what is no address.
func parsed(address string) netip.Addr {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return netip.Addr{}
	}
	return a
}

// NewTrace converts a verdict.
func NewTrace(v model.Verdict) Trace {
	t := Trace{
		Verdict:  v.Outcome.String(),
		Backends: NewBackends(v.Candidates),
		SNAT:     v.SNAT,
		Path:     v.Path.String(),
		Steps:    make([]Step, len(v.Steps)),
	}
	if v.Row != nil {
		row := NewFrontend(v.Row.Service, v.Row.Claim, &v.Row.Set)
		t.Frontend = &row
	}
	for i, s := range v.Steps {
		t.Steps[i] = Step(s)
	}
	return t
}
