// SPDX-License-Identifier: Apache-2.0

// Package drift says in what two layers differ: what the API asks for, what
// the agent's tables hold, and what the kernel's maps hold.
//
// It compares values that it is given and does no I/O. It does not judge
// which layer is right: the left one is what is wanted, by convention.
package drift

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead-io/fairlead/internal/api"
)

// The layers, from what is asked for to what is done.
const (
	LayerAPI    = "api"
	LayerTables = "tables"
	LayerKernel = "kernel"
)

// None stands for a frontend, a list or a name that a layer does not have.
const None = "none"

// rowKey is what makes a row the same row in two layers. The Service is part
// of it, since a row that is shadowed repeats the address of its winner.
type rowKey struct {
	address, protocol, scope string
	port                     uint16
	kind, service, portName  string
}

func keyOf(f api.Frontend) rowKey {
	return rowKey{f.Address, f.Protocol, f.Scope, f.Port, f.Type, f.Service, f.PortName}
}

// Rows compares the rows that the API asks for with those of the tables. What
// comes from an agent only (status, error, since) is no drift.
func Rows(left, right []api.Frontend) []api.Drift {
	unmatched := make(map[rowKey]api.Frontend, len(right))
	for _, row := range right {
		unmatched[keyOf(row)] = row
	}
	found := []api.Drift{}
	for _, want := range left {
		report := reporter(want, LayerAPI, LayerTables, &found)
		have, ok := unmatched[keyOf(want)]
		if !ok {
			report("frontend", describe(want), None)
			continue
		}
		delete(unmatched, keyOf(want))
		report("action", want.Action, have.Action)
		report("backends", backends(want.Backends), backends(have.Backends))
		report("draining", backends(want.Draining), backends(have.Draining))
		report("affinitySeconds", seconds(want.AffinitySeconds), seconds(have.AffinitySeconds))
		report("sourceRanges", ranges(want.SourceRanges), ranges(have.SourceRanges))
	}
	for _, have := range unmatched {
		reporter(have, LayerAPI, LayerTables, &found)("frontend", None, describe(have))
	}
	sortDrift(found)
	return found
}

// reporter returns a function that notes a field of a row unless both layers
// agree on it.
func reporter(row api.Frontend, left, right string, found *[]api.Drift) func(field, want, have string) {
	return func(field, want, have string) {
		if want == have {
			return
		}
		*found = append(*found, api.Drift{
			Address: row.Address, Port: row.Port, Protocol: row.Protocol, Scope: row.Scope, Service: row.Service,
			Left: left, Right: right, Field: field, Want: want, Have: have,
		})
	}
}

func describe(row api.Frontend) string {
	if row.Action != "forward" {
		return row.Action
	}
	return "forward to " + backends(row.Backends)
}

// backends writes a list so that equal sets are equal strings. A backend that
// is not active says so: the tables of an agent may hold one for another
// reason than the API gives.
func backends(list []api.Backend) string {
	words := make([]string, len(list))
	for i, b := range list {
		words[i] = api.HostPort(b.Address, b.Port)
		if b.State != "active" {
			words[i] += " (" + b.State + ")"
		}
	}
	return join(words)
}

func ranges(list []string) string { return join(slices.Clone(list)) }

func seconds(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// join sorts its argument in place.
func join(words []string) string {
	if len(words) == 0 {
		return None
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

// sortDrift orders by address as the rows are ordered, then layer and field.
func sortDrift(found []api.Drift) {
	slices.SortFunc(found, func(a, b api.Drift) int {
		return cmp.Or(
			compareAddresses(a.Address, b.Address),
			cmp.Compare(a.Port, b.Port),
			cmp.Compare(a.Protocol, b.Protocol),
			cmp.Compare(a.Scope, b.Scope),
			cmp.Compare(a.Service, b.Service),
			cmp.Compare(a.Field, b.Field),
			cmp.Compare(a.Want, b.Want),
			cmp.Compare(a.Have, b.Have))
	})
}

// compareAddresses falls back to the text where one is no address: what a
// layer holds may be broken, which is what this package is here to say.
func compareAddresses(a, b string) int {
	left, errLeft := netip.ParseAddr(a)
	right, errRight := netip.ParseAddr(b)
	if errLeft != nil || errRight != nil {
		return cmp.Compare(a, b)
	}
	return left.Compare(right)
}
