// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/metrics"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/tables"
)

// facts reads what the metrics say of the agent as it is now.
func (a *Agent) facts() (metrics.Facts, error) {
	snapshot := a.tables.Snapshot()
	var rows api.Status
	a.addRows(&rows, snapshot)
	backlog := a.writer.Backlog()
	states, problems := a.writer.Sources()
	f := metrics.Facts{
		Retained: a.retained(), APIServer: a.reach.status(a.cfg.StateFile),
		Problems: len(problems), Services: rows.Services,
		Frontends: map[string]int{
			api.StatusPending: rows.Pending, api.StatusError: rows.Errors,
			api.StatusDone: rows.Frontends - rows.Pending - rows.Errors,
		},
		NoLocalEndpoints: noLocalEndpoints(snapshot),
		LastSynced:       snapshot.LastWrite(), LastQueued: backlog.LastReceived,
		LastCompared: timeOf(a.reconciler.Stats.LastCompared.Load()), Repaired: a.reconciler.Stats.Repaired.Load(),
	}
	for _, state := range states {
		f.Sources = append(f.Sources, metrics.Source{
			Kind: state.Kind.String(), Objects: state.Count, Synced: state.Listed, Stale: staleFact(state),
			Received: backlog.Received[state.Kind], Pending: backlog.Pending[state.Kind],
		})
	}
	for _, state := range a.checks.States() {
		f.HealthChecks++
		if state.Error != "" {
			f.HealthChecksFailed++
		}
	}
	uses, err := a.datapath.Usage()
	if err != nil {
		return metrics.Facts{}, err
	}
	for _, use := range uses {
		f.Maps = append(f.Maps, metrics.Map{Name: use.Name, Used: use.Used, Capacity: use.Capacity, Evictions: use.Evictions})
	}
	if f.EventsLost, err = a.datapath.EventsLost(); err != nil {
		return metrics.Facts{}, err
	}
	f.Packets, err = a.datapath.PacketCounts()
	return f, err
}

// noLocalEndpoints counts from zero, so that charts have a line before there
// is anything to see.
func noLocalEndpoints(snapshot tables.Snapshot) map[metrics.Policy]int {
	traffic := map[bool]string{false: "internal", true: "external"}
	counts := map[metrics.Policy]int{}
	for _, family := range []model.Family{model.IPv4, model.IPv6} {
		for _, t := range traffic {
			counts[metrics.Policy{Traffic: t, Family: family.String()}] = 0
		}
	}
	for row := range snapshot.Services() {
		row.Compiled.NoLocalEndpoints(func(external bool, family model.Family) {
			counts[metrics.Policy{Traffic: traffic[external], Family: family.String()}]++
		})
	}
	return counts
}
