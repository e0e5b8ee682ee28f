// SPDX-License-Identifier: Apache-2.0

// Package replay runs a journal through the rooms that an agent runs its
// source through: events are converted by reflector, and tables make rows of
// them. So it tells what an agent would have served at any moment, and which
// event first broke what must always hold.
//
// The same journal gives the same result: times come from it alone. Nothing
// may enter that reads a clock, asks a cluster or touches the kernel, and
// nothing that decides about Services a second time.
package replay

import (
	"slices"
	"time"

	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/tables"
)

// The invariants, by ids that stay the same.
const (
	// BackendsLost: rows follow a Service's own objects, so nothing else takes a
	// backend away.
	BackendsLost = "backends-lost"
	// APIServerEmpty: a Service in front of the API server has backends.
	APIServerEmpty = "apiserver-empty"
	// AddressContested: an address, port and protocol is claimed by one Service.
	AddressContested = "address-contested"
	// ImplDiffers: another proxy serves what the rows say.
	ImplDiffers = "impl-differs"
)

// Finding is an invariant that did not hold for a Service, from an event on.
type Finding struct {
	Invariant string `json:"invariant"`
	Service   string `json:"service"` // namespace/name
	// Event is the number of the first event after which it did not hold; 0: it
	// was none, but time that passed.
	Event           int64     `json:"event"`
	Time            time.Time `json:"time"`
	ResourceVersion string    `json:"resourceVersion"`
	Manager         string    `json:"manager"`
	Object          string    `json:"object"`           // "EndpointSlice default/kubernetes"
	Text            string    `json:"text"`             // what broke, in one clause
	Detail          string    `json:"detail,omitempty"` // what follows, what changed, and how sure that is
	Cleared         time.Time `json:"cleared,omitzero"` // when it held again; zero: it did not
}

// Step is what one event, or all that one list brought, did to the rows.
type Step struct {
	// Time is that of the last event, or when a list was complete, or the moment at
	// which time itself changed something: then, and after a list that found
	// nothing, there are no events.
	Time    time.Time
	Events  []journal.Event // without their diffs
	Changes []Change        // by name
}

// Change is a row that another took the place of.
type Change struct {
	Service model.Name
	Before  *tables.Service // nil: there was none
	After   *tables.Service // nil: there is none any more
}

// Count is how many backends a Service has.
type Count struct {
	Own      int // that its own objects give it, each address and port once
	Retained int // that it goes on with although they do not
}

// CountBackends counts what a row has; nil has nothing.
func CountBackends(row *tables.Service) (n Count) {
	if row == nil {
		return n
	}
	n.Own = len(backends(&row.Own))
	for _, b := range backends(&row.Compiled) {
		if b.State == model.StateRetained || b.State == model.StateUnverified {
			n.Retained++
		}
	}
	return n
}

// backends are those of all sets, each address and port once, in order.
func backends(c *model.Compiled) []model.Backend {
	if len(c.Sets) == 1 {
		return c.Sets[0].Backends
	}
	var all []model.Backend
	for i := range c.Sets {
		all = append(all, c.Sets[i].Backends...)
	}
	slices.SortStableFunc(all, func(a, b model.Backend) int { return model.CompareAddrPort(a.AddrPort, b.AddrPort) })
	return slices.CompactFunc(all, func(a, b model.Backend) bool { return a.AddrPort == b.AddrPort })
}
