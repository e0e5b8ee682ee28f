// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/datapath"
	"github.com/fairlead-io/fairlead/internal/drift"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
	"github.com/fairlead-io/fairlead/internal/tables"
)

// Explain follows a Service, or the one that holds an address, from its
// objects to the kernel; only to the rows if there is nothing in the kernel yet.
func (a *Agent) Explain(ctx context.Context, target string) (api.Explain, error) {
	snapshot := a.tables.Snapshot()
	row, err := a.find(snapshot, target)
	if err != nil {
		return api.Explain{}, err
	}
	kernel, err := a.Kernel(ctx)
	if err != nil && !errors.Is(err, errNotFilled) {
		return api.Explain{}, err
	}
	e := api.Explain{
		SchemaVersion: api.SchemaVersion, Service: row.Name.String(), Reason: row.Ignored, Selection: selectionOf(row),
		Objects:     []api.ObjectRef{{Kind: reflector.KindService.String(), Name: row.Name.String(), ResourceVersion: row.Object.ResourceVersion}},
		Frontends:   []api.ExplainedFrontend{},
		Retained:    a.retainedFor(row.Name.String()),
		Transitions: transitionsOf(row),
	}
	for _, s := range row.Slices {
		e.Objects = append(e.Objects, api.ObjectRef{Kind: reflector.KindEndpointSlice.String(), Name: s.Name.String(), ResourceVersion: s.ResourceVersion})
	}
	for i, f := range frontendsOf(snapshot, row) {
		explained := api.ExplainedFrontend{Frontend: f, Verdict: errNotFilled.Error()}
		if err == nil {
			explained.Kernel, explained.Verdict = drift.Entry(f, kernel), verdictOf(f, e.Selection, a.cfg.PacketPath, kernel)
		}
		explained.Verdict = keptVerdict(explained.Verdict, f, e.Retained, row.Compiled.Sets[row.Compiled.Claims[i].Set].Key)
		e.Frontends = append(e.Frontends, explained)
	}
	slices.SortStableFunc(e.Frontends, func(x, y api.ExplainedFrontend) int { return api.CompareFrontends(x.Frontend, y.Frontend) })
	return e, nil
}

// find returns the row of namespace/name, or that of the Service which holds
// ADDR:PORT[/PROTO], a node address and its NodePort included.
func (a *Agent) find(snapshot tables.Snapshot, target string) (*tables.Service, error) {
	if namespace, name, ok := strings.Cut(target, "/"); ok && !strings.Contains(namespace, ":") {
		row, found := snapshot.Service(model.Name{Namespace: namespace, Name: name})
		if !found {
			return nil, api.NotFound("there is no Service %s in the tables", target)
		}
		return row, nil
	}
	to, protocol, err := api.ParseTarget(target)
	if err != nil {
		return nil, api.BadRequest("%v, nor a Service as NAMESPACE/NAME", err)
	}
	spots := []model.Spot{{Address: to.Addr(), Port: to.Port(), Protocol: protocol}}
	if _, served := a.node.current(); slices.Contains(served, to.Addr()) || to.Addr().IsLoopback() {
		spots = append(spots, model.Spot{Address: model.FamilyOf(to.Addr()).Unspecified(), Port: to.Port(), Protocol: protocol})
	}
	for _, spot := range spots {
		for row := range snapshot.Services() {
			for _, claim := range row.Compiled.Claims {
				if claim.Shadowed == "" && claim.Key.Spot() == spot {
					return row, nil
				}
			}
		}
	}
	return nil, api.NotFound("%s", a.unheld(snapshot, to, protocol))
}

// unheld says what becomes of connections to an address and port that no
// Service holds (R38).
func (a *Agent) unheld(snapshot tables.Snapshot, to netip.AddrPort, protocol model.Protocol) string {
	node, _ := a.node.current()
	index := indexOf(snapshot)
	unknown := index.Unknown(to.Addr(), &node, a.cfg.ServiceCIDRs)
	if row := unknown.ClusterIP; row != nil {
		return fmt.Sprintf("no Service holds %s/%s: %s is the ClusterIP of %s, which has no such port but %s; connections to all others are rejected",
			to, protocol, to.Addr(), row.Service, portsOf(index.At(to.Addr())))
	}
	if unknown.CIDR.IsValid() {
		return fmt.Sprintf("no Service holds %s/%s: the address lies in --service-cidr %s and no Service has it as its ClusterIP; connections to it are dropped",
			to, protocol, unknown.CIDR)
	}
	return fmt.Sprintf("no Service holds %s/%s: connections to it are not translated", to, protocol)
}

// portsOf lists the ports of an address's rows.
func portsOf(rows []model.Row) string {
	var spots []model.Spot
	for _, row := range rows {
		spots = append(spots, row.Claim.Key.Spot())
	}
	slices.SortFunc(spots, model.Spot.Compare)
	var texts []string
	for _, s := range slices.Compact(spots) {
		texts = append(texts, fmt.Sprintf("%d/%s", s.Port, s.Protocol))
	}
	return strings.Join(texts, ", ")
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
	if f.Action != model.ActionForward.String() {
		return fmt.Sprintf("a new connection is refused (%s): %s", f.Action, f.Reason)
	}
	if len(f.Backends) > 1 {
		return fmt.Sprintf("a new connection goes to one of %d backends", len(f.Backends))
	}
	return "a new connection goes to " + api.HostPort(f.Backends[0].Address, f.Backends[0].Port)
}

// Trace says what would happen to each flow.
func (a *Agent) Trace(ctx context.Context, requests []api.FlowRequest) ([]api.Trace, error) {
	snapshot := a.tables.Snapshot()
	node, _ := a.node.current()
	view := model.View{
		Index: indexOf(snapshot), Node: &node,
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

func indexOf(snapshot tables.Snapshot) model.Index {
	candidates := make([]model.Candidate, 0, snapshot.Len())
	for row := range snapshot.Services() {
		candidates = append(candidates, model.Candidate{Contender: model.Contender{Service: row.Name}, Compiled: row.Compiled})
	}
	return model.NewIndex(candidates)
}
