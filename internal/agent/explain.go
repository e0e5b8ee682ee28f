// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/datapath"
	"github.com/fairlead-io/fairlead/internal/drift"
	"github.com/fairlead-io/fairlead/internal/explain"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/tables"
)

// Explain follows a Service, or the one that holds an address, from its
// objects to the kernel; only to the rows if there is nothing in the kernel yet.
func (a *Agent) Explain(ctx context.Context, target string) (api.Explain, error) {
	view := a.view()
	row, err := view.Find(target)
	if err != nil {
		return api.Explain{}, err
	}
	kernel, err := a.Kernel(ctx)
	if err != nil && !errors.Is(err, errNotFilled) {
		return api.Explain{}, err
	}
	e := view.Service(row)
	explain.Frontends(&e, row, frontendsOf(view.Snapshot, row), func(f api.Frontend) (*api.KernelEntry, string) {
		if err != nil {
			return nil, errNotFilled.Error()
		}
		return drift.Entry(f, kernel), verdictOf(f, e.Selection, a.cfg.PacketPath, kernel)
	})
	return e, nil
}

// view is what the tables hold now.
func (a *Agent) view() explain.View {
	node, served := a.node.current()
	return explain.View{
		Snapshot: a.tables.Snapshot(), Node: node, Served: served,
		ServiceCIDRs: a.cfg.ServiceCIDRs, Retained: a.writer.Retained(),
	}
}

// verdictOf says in words what a new connection meets, or where the layers
// part.
func verdictOf(f api.Frontend, selection string, packetPath bool, kernel api.Kernel) string {
	if differences := drift.Row(f, selection, kernel); len(differences) > 0 {
		d := differences[0]
		return fmt.Sprintf("the kernel differs: %s should be %s and is %s", d.Field, d.Want, d.Have)
	}
	switch f.Action {
	case model.ActionUnsupported.String(), model.ActionShadowed.String():
		return fmt.Sprintf("not in the kernel (%s): %s", f.Action, f.Reason)
	}
	if f.Scope == model.ScopeExternal.String() && !packetPath {
		return "nothing on this node translates traffic from outside (--packet-path=off); the kernel holds the set"
	}
	return explain.Verdict(f)
}

// Trace says what would happen to each flow.
func (a *Agent) Trace(ctx context.Context, requests []api.FlowRequest) ([]api.Trace, error) {
	snapshot := a.tables.Snapshot()
	node, _ := a.node.current()
	view := model.View{
		Index: explain.Index(snapshot), Node: &node,
		ClusterCIDRs: a.cfg.ClusterCIDRs, ServiceCIDRs: a.cfg.ServiceCIDRs, NodePorts: a.cfg.NodePortAddresses,
		Sockets: socketsServed(a.cfg.SocketMode),
	}
	traces := make([]api.Trace, 0, len(requests))
	for _, r := range requests {
		from, err := a.parseSource(ctx, r.From)
		if err != nil {
			return nil, err
		}
		to, protocol, err := api.ParseTarget(r.To)
		if err != nil {
			return nil, api.BadRequest("%v", err)
		}
		view.Packets = model.PacketsServed{Outside: a.devices.serveOutside(), Pods: a.devices.serveInside(from)}
		verdict := model.Trace(view, model.Flow{From: from, To: to, Protocol: protocol})
		verdict.Steps = append(verdict.Steps, notInForce(snapshot, verdict.Row)...)
		traces = append(traces, api.NewTrace(verdict))
	}
	return traces, nil
}

func socketsServed(mode datapath.SocketMode) model.PathServed {
	switch mode {
	case datapath.SocketHost:
		return model.ServedHost
	case datapath.SocketOff:
		return model.ServedOff
	}
	return model.ServedAll
}

// notInForce is a step for a row that the kernel may not hold as it stands in
// the tables, from which the verdict was told.
func notInForce(snapshot tables.Snapshot, row *model.Row) []model.Step {
	if row == nil {
		return nil
	}
	service, found := snapshot.Service(row.Service)
	if !found {
		return nil
	}
	fact := "the kernel does not hold this row yet: until it does, what it held before stays in force"
	switch state, message, _ := snapshot.Status(service, row.Claim.Key); state {
	case api.StatusDone:
		return nil
	case api.StatusError:
		fact = fmt.Sprintf("this row could not be written, so the kernel does something else (see `fairlead explain %s`): %s", row.Service, message)
	}
	return []model.Step{{Stage: "kernel", Fact: fact, Source: "Service " + row.Service.String()}}
}

func (a *Agent) parseSource(ctx context.Context, text string) (netip.Addr, error) {
	if from, err := netip.ParseAddr(text); err == nil {
		return from, nil
	}
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" {
		return netip.Addr{}, api.BadRequest("the source %q is neither an IP address nor a pod as NAMESPACE/NAME", text)
	}
	if a.pods == nil {
		return netip.Addr{}, api.BadRequest("%v", errNoPods)
	}
	from, err := a.pods(ctx, model.Name{Namespace: namespace, Name: name})
	if err != nil {
		return netip.Addr{}, api.NotFound("%v", err)
	}
	return from, nil
}
