// SPDX-License-Identifier: Apache-2.0

package drift

import (
	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/model"
)

// kernelKey is what makes an entry of the kernel the entry of a row. There the
// Service is no part of it: the kernel holds one entry per address and scope.
type kernelKey struct {
	address, protocol, scope string
	port                     uint16
}

// Kernel compares rows, of whichever layer, with the kernel's maps. The left
// layer of what it finds is the tables; see Left.
func Kernel(rows []api.Frontend, k api.Kernel) []api.Drift {
	unmatched := make(map[kernelKey]api.KernelEntry, len(k.Entries))
	for _, entry := range k.Entries {
		unmatched[kernelKey{entry.Address, entry.Protocol, entry.Scope, entry.Port}] = entry
	}
	found := []api.Drift{}
	for _, want := range rows {
		if !inKernel(want) {
			continue
		}
		key := kernelKey{want.Address, want.Protocol, kernelScope(want.Scope), want.Port}
		have, ok := unmatched[key]
		if !ok {
			reporter(want, LayerTables, LayerKernel, &found)("frontend", describe(want), None)
			continue
		}
		delete(unmatched, key)
		compareEntry(want, have, &found)
	}
	for _, have := range unmatched {
		reporter(rowOf(have), LayerTables, LayerKernel, &found)("frontend", None, describeEntry(have))
	}
	sortDrift(found)
	return found
}

// Entry returns what the kernel holds for a row; nil if nothing.
func Entry(row api.Frontend, k api.Kernel) *api.KernelEntry {
	if !inKernel(row) {
		return nil
	}
	want := kernelKey{row.Address, row.Protocol, kernelScope(row.Scope), row.Port}
	for i, e := range k.Entries {
		if (kernelKey{e.Address, e.Protocol, e.Scope, e.Port}) == want {
			return &k.Entries[i]
		}
	}
	return nil
}

// Row compares one row, and the selection of its Service, with what the kernel
// holds for it.
func Row(row api.Frontend, selection string, k api.Kernel) []api.Drift {
	if !inKernel(row) {
		return nil
	}
	alone := api.Kernel{}
	if e := Entry(row, k); e != nil {
		alone.Entries = []api.KernelEntry{*e}
	}
	services := []api.Service{{Service: row.Service, Selection: selection}}
	return append(Kernel([]api.Frontend{row}, alone), Selections(services, alone)...)
}

// Selections compares how packets are to choose a backend of each Service with
// how the kernel lets them. A set of one backend needs no table, and one that is
// broken is told of by Kernel.
func Selections(services []api.Service, k api.Kernel) []api.Drift {
	wanted := make(map[string]string, len(services))
	for _, s := range services {
		wanted[s.Service] = s.Selection
	}
	found := []api.Drift{}
	for _, e := range k.Entries {
		want := wanted[e.Service]
		if want == "" || len(e.Backends) < 2 || e.Problem != "" {
			continue
		}
		reporter(rowOf(e), LayerTables, LayerKernel, &found)("selection", want, selectionOf(e))
	}
	sortDrift(found)
	return found
}

func selectionOf(e api.KernelEntry) string {
	if e.MaglevEntries > 0 {
		return model.SelectionMaglev.String()
	}
	return model.SelectionRandom.String()
}

// Left renames the left layer of drift that was not found against the tables.
func Left(layer string, found []api.Drift) []api.Drift {
	for i := range found {
		found[i].Left = layer
	}
	return found
}

func compareEntry(want api.Frontend, have api.KernelEntry, found *[]api.Drift) {
	report := reporter(want, LayerTables, LayerKernel, found)
	if have.Problem != "" {
		report("frontend", describe(want), have.Problem)
		return
	}
	report("service", portOf(want.Service, want.PortName), portOf(have.Service, have.PortName))
	report("action", want.Action, have.Action)
	report("backends", slots(kernelBackends(want.Backends)), slots(have.Backends))
	report("draining", slots(kernelBackends(want.Draining)), slots(have.Draining))
	report("affinitySeconds", seconds(want.AffinitySeconds), seconds(have.AffinitySeconds))
	report("sourceRanges", ranges(want.SourceRanges), ranges(have.SourceRanges))
}

// inKernel tells the rows that the datapath serves from those that only say
// why an address is not served.
func inKernel(row api.Frontend) bool {
	return row.Action != "unsupported" && row.Action != "shadowed"
}

// kernelScope: a row for all traffic has the internal entry; traffic from
// outside falls back to it where there is no external one.
func kernelScope(scope string) string {
	if scope == "external" {
		return scope
	}
	return "internal"
}

func rowOf(e api.KernelEntry) api.Frontend {
	return api.Frontend{Address: e.Address, Port: e.Port, Protocol: e.Protocol, Scope: e.Scope, Service: e.Service}
}

func describeEntry(e api.KernelEntry) string {
	if e.Problem != "" {
		return e.Problem
	}
	if e.Action != "forward" {
		return e.Action
	}
	return "forward to " + slots(e.Backends)
}

func portOf(service, portName string) string {
	if portName == "" {
		return service
	}
	return service + ":" + portName
}

func kernelBackends(list []api.Backend) []api.KernelBackend {
	out := make([]api.KernelBackend, len(list))
	for i, b := range list {
		out[i] = api.KernelBackend{Address: b.Address, Port: b.Port}
	}
	return out
}

func slots(list []api.KernelBackend) string {
	words := make([]string, len(list))
	for i, b := range list {
		words[i] = api.HostPort(b.Address, b.Port)
	}
	return join(words)
}
