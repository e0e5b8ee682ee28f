// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/datapath"
	"github.com/fairlead-io/fairlead/internal/explain"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
	"github.com/fairlead-io/fairlead/internal/tables"
)

// Frontends returns the rows of all Services, sorted.
func (a *Agent) Frontends(context.Context) ([]api.Frontend, error) {
	snapshot := a.tables.Snapshot()
	rows := make([]api.Frontend, 0, snapshot.Len())
	for row := range snapshot.Services() {
		rows = append(rows, frontendsOf(snapshot, row)...)
	}
	api.SortFrontends(rows)
	return rows, nil
}

// frontendsOf returns a Service's rows with their status, in the order of its
// claims.
func frontendsOf(snapshot tables.Snapshot, row *tables.Service) []api.Frontend {
	rows := make([]api.Frontend, 0, len(row.Compiled.Claims))
	for _, claim := range row.Compiled.Claims {
		f := api.NewFrontend(row.Name, claim, &row.Compiled.Sets[claim.Set])
		state, message, since := snapshot.Status(row, claim.Key)
		f.Status, f.Error, f.Since = state, &message, &since
		rows = append(rows, f)
	}
	return rows
}

// Services returns a row for each Service, sorted by name.
func (a *Agent) Services(context.Context) (api.Services, error) {
	snapshot := a.tables.Snapshot()
	all := api.Services{SchemaVersion: api.SchemaVersion, Services: make([]api.Service, 0, snapshot.Len())}
	for row := range snapshot.Services() {
		all.Services = append(all.Services, serviceOf(snapshot, row))
	}
	slices.SortFunc(all.Services, func(x, y api.Service) int { return cmp.Compare(x.Service, y.Service) })
	return all, nil
}

func serviceOf(snapshot tables.Snapshot, row *tables.Service) api.Service {
	s := api.Service{
		Service: row.Name.String(), Type: row.Object.Type.String(), ResourceVersion: row.Object.ResourceVersion,
		Slices: []api.ObjectRef{}, Ports: []string{}, Frontends: len(row.Compiled.Claims),
		Status: api.StatusDone, Since: row.Changed, Reason: row.Ignored, Transitions: explain.Transitions(row),
	}
	for _, slice := range row.Slices {
		s.Slices = append(s.Slices, api.ObjectRef{Kind: reflector.KindEndpointSlice.String(), Name: slice.Name.String(), ResourceVersion: slice.ResourceVersion})
	}
	for _, p := range row.Object.Ports {
		text := fmt.Sprintf("%d/%s", p.Port, p.Protocol)
		if p.Name != "" {
			text = p.Name + "=" + text
		}
		s.Ports = append(s.Ports, text)
	}
	s.Selection = explain.Selection(row)
	s.Backends, s.Draining, s.Retained = countBackends(&row.Compiled)
	for _, f := range frontendsOf(snapshot, row) {
		if worse(f.Status, s.Status) {
			s.Status, s.Error, s.Since = f.Status, *f.Error, *f.Since
		}
	}
	return s
}

// worse orders Done, Pending, Error.
func worse(a, b string) bool {
	rank := map[string]int{api.StatusDone: 0, api.StatusPending: 1, api.StatusError: 2}
	return rank[a] > rank[b]
}

// countBackends counts the distinct addresses and ports of all sets; one that
// some set selects is not draining. Those that are retained are selectable.
func countBackends(c *model.Compiled) (selectable, draining, retained int) {
	for _, b := range backendRows(model.Name{}, c) {
		if b.Draining {
			draining++
			continue
		}
		selectable++
		if b.State == model.StateRetained.String() || b.State == model.StateUnverified.String() {
			retained++
		}
	}
	return selectable, draining, retained
}

// Backends returns each backend of each Service port once, sorted.
func (a *Agent) Backends(context.Context) (api.Backends, error) {
	all := api.Backends{SchemaVersion: api.SchemaVersion, Backends: []api.BackendRow{}}
	for row := range a.tables.Snapshot().Services() {
		all.Backends = append(all.Backends, backendRows(row.Name, &row.Compiled)...)
	}
	return all, nil
}

func backendRows(service model.Name, c *model.Compiled) []api.BackendRow {
	type key struct {
		portName string
		protocol model.Protocol
		backend  string
	}
	var rows []api.BackendRow
	index := map[key]int{}
	add := func(s *model.Set, backends []model.Backend, role string) {
		for i, b := range api.NewBackends(backends) {
			k := key{s.Key.PortName, s.Key.Protocol, backends[i].AddrPort.String()}
			at, ok := index[k]
			if !ok {
				at = len(rows)
				index[k] = at
				rows = append(rows, api.BackendRow{
					Service: service.String(), PortName: s.Key.PortName, Protocol: s.Key.Protocol.String(),
					Backend: b, Roles: []string{}, Draining: true,
				})
			}
			if role != "" {
				rows[at].Roles, rows[at].Draining = append(rows[at].Roles, role), false
			}
		}
	}
	for i := range c.Sets {
		add(&c.Sets[i], c.Sets[i].Backends, c.Sets[i].Key.Role.String())
		add(&c.Sets[i], c.Sets[i].Draining, "")
	}
	return rows
}

// errNotFilled says that there are no maps yet, or only those of an agent of
// another layout. Where a predecessor left maps that can be read, they are in
// force and are what is shown.
var errNotFilled = errors.New("the first lists are not in the kernel yet: `fairlead status` says what is waited for")

// Kernel reads the pinned maps.
func (a *Agent) Kernel(context.Context) (api.Kernel, error) {
	// Asked first, for the fill may end at any time.
	filled := a.reconciler.Stats.Filled.Load()
	reader, err := datapath.OpenReader(a.cfg.PinPath)
	if err != nil && !filled {
		return api.Kernel{}, errNotFilled
	}
	if err != nil {
		return api.Kernel{}, err
	}
	defer reader.Close()
	return reader.Kernel()
}

// Wait returns the version of the tables as soon as it differs from known.
func (a *Agent) Wait(ctx context.Context, known uint64) (uint64, error) {
	return a.tables.Wait(ctx, known)
}

// Events hands on what happens until ctx ends.
func (a *Agent) Events(ctx context.Context, emit func(api.Event) error) error {
	return a.refusals.listen(ctx, emit)
}
