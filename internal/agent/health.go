// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/healthcheck"
	"github.com/fairlead-io/fairlead/internal/metrics"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reconciler"
	"github.com/fairlead-io/fairlead/internal/reflector"
	"github.com/fairlead-io/fairlead/internal/tables"
)

// eligibility is whether load balancers may use this node (R30). The zero
// value is a node of which nothing was heard, which they may.
type eligibility struct {
	mu    sync.Mutex
	heard bool
	away  bool
}

// note takes the Node object; nil if it is gone.
func (e *eligibility) note(n *reflector.Node) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard, e.away = true, n == nil || n.Leaving
}

// listed says that the nodes are all told. An API server that does not know
// this one has deleted it.
func (e *eligibility) listed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.away = e.away || !e.heard
}

func (e *eligibility) eligible() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.away
}

// buildHealth makes what answers for this node. The servers that the operator
// switched off are nil.
func (a *Agent) buildHealth() {
	a.triggersSeen = map[model.Name]uint64{}
	a.checks = healthcheck.NewServices(a.served, a.log)
	a.metrics = metrics.New(a.cfg.Version, a.facts)
	if at := a.cfg.HealthzBindAddress; at != "" {
		a.healthz = healthcheck.NewServer("/healthz and /livez", at, healthcheck.NewHandler(a.signs, a.metrics.Answered), a.log)
	}
	if at := a.cfg.MetricsBindAddress; at != "" {
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", a.metrics.Handler(a.log))
		a.metricsServer = healthcheck.NewServer("/metrics", at, mux, a.log)
	}
}

// health returns the parts that answer for this node.
func (a *Agent) health() []func(context.Context) error {
	parts := []func(context.Context) error{a.checks.Run}
	for _, server := range []*healthcheck.Server{a.healthz, a.metricsServer} {
		if server != nil {
			parts = append(parts, server.Run)
		}
	}
	return parts
}

// signs are what the agent's own health follows from.
func (a *Agent) signs() healthcheck.Signs {
	snapshot := a.tables.Snapshot()
	states, _ := a.writer.Sources()
	s := healthcheck.Signs{
		Filled: a.reconciler.Stats.Filled.Load(), Pending: a.writer.Backlog().Since,
		LastUpdated: snapshot.LastWrite(), NodeEligible: a.eligibility.eligible(),
	}
	for _, state := range states {
		if state.Stale != nil {
			trouble := troubleOf(state)
			s.Stale = append(s.Stale, healthcheck.Stale{
				Kind: state.Kind.String(), Since: state.Since.UTC(), Reason: string(trouble.Reason), Missing: trouble.Missing(),
			})
		}
		if snapshot.Complete() && state.Since.After(s.Listed) {
			s.Listed = state.Since
		}
	}
	return s
}

// served says that this node does for a Service what its rows ask for. Where a
// Service's own rows could not be written for long, the others are served all
// the same, and it alone is not well.
func (a *Agent) served(service model.Name) bool {
	now := time.Now()
	if !a.signs().Healthy(now) {
		return false
	}
	snapshot := a.tables.Snapshot()
	row, there := snapshot.Service(service)
	return there && !slices.ContainsFunc(row.Compiled.Claims, func(c model.Claim) bool {
		state, _, since := snapshot.Status(row, c.Key)
		return state == api.StatusError && now.Sub(since) >= healthcheck.PendingLimit
	})
}

// tried hears what the reconciler wrote: health checks say what the kernel
// has, and what led to the rows has taken until now.
func (a *Agent) tried(b reconciler.Batch) {
	a.metrics.Synced(b.Took, len(b.Failed) > 0)
	node, options := model.Node{Name: a.cfg.NodeName}, a.options()
	for _, change := range b.Changes {
		row := change.Row
		if change.Deleted {
			a.checks.Remove(row.Name)
			delete(a.triggersSeen, row.Name)
			continue
		}
		if check, asks := model.HealthCheckOf(row.Object, row.Slices, &node, &options); asks {
			a.checks.Set(row.Name, check)
		} else {
			a.checks.Remove(row.Name)
		}
		if len(b.Failed[row.Name]) == 0 {
			a.programmed(row)
		}
	}
}

// programmed notes how long ago the changes began that a row now in force
// brought (R32).
func (a *Agent) programmed(row *tables.Service) {
	seen := a.triggersSeen[row.Name]
	if row.Triggers.Count == seen {
		return
	}
	a.triggersSeen[row.Name] = row.Triggers.Count
	if row.Ignored != "" {
		return
	}
	for _, trigger := range row.Triggers.After(seen) {
		a.metrics.Programmed(trigger.Family.String(), time.Since(trigger.Time))
	}
}

// refused hands a refused connection on to those who listen, and counts it.
func (a *Agent) refused(r api.Refusal) {
	a.metrics.Refused(r.Reason)
	a.refusals.send(api.Event{Event: api.EventRefused, Refusal: r})
}

// publishAddresses writes the node's addresses, and says where health checks
// are answered: on all addresses, or on those that serve NodePorts.
func (a *Agent) publishAddresses(own, served []netip.Addr) error {
	if a.cfg.NodePortAddresses.All() {
		a.checks.ListenOn([]netip.Addr{netip.IPv4Unspecified()})
	} else {
		a.checks.ListenOn(served)
	}
	return a.datapath.SetNodeAddresses(own, served)
}

// nodesOwn are the listening sockets that are the node's own. Those of health
// checks are held for Services, and are in the way of none. They are asked
// before and after, since they may come and go in between.
func (a *Agent) nodesOwn(r diagRequest) ([]model.Listener, error) {
	held := a.checks.Held()
	found, err := listeners(r)
	held = append(held, a.checks.Held()...)
	return slices.DeleteFunc(found, func(l model.Listener) bool {
		return l.Protocol == model.TCP && slices.ContainsFunc(held, func(at netip.AddrPort) bool { return sameSocket(at, l.AddrPort) })
	}), err
}

// sameSocket compares where a server listens with what the kernel shows: one
// on 0.0.0.0 that takes both families stands there as one on [::].
func sameSocket(ours, shown netip.AddrPort) bool {
	return ours.Port() == shown.Port() &&
		(ours.Addr() == shown.Addr() || ours.Addr().IsUnspecified() && shown.Addr().IsUnspecified())
}
