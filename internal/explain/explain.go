// SPDX-License-Identifier: Apache-2.0

// Package explain says what rows tell of a Service: objects, frontends, what is
// retained, and the last transitions with their causes. An agent and a replay
// say it alike.
//
// It reads rows and decides nothing. Nothing may enter that knows where rows
// come from, or what the kernel holds of them.
package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
	"github.com/fairlead-io/fairlead/internal/tables"
)

// View is the rows at a moment, on a node.
type View struct {
	Snapshot     tables.Snapshot
	Node         model.Node
	Served       []netip.Addr   // the node's addresses that serve NodePorts
	ServiceCIDRs []netip.Prefix // the ranges of ClusterIPs (R38)
	Retained     []tables.Retained
}

// Service says what a row tells, but for its frontends.
func (v View) Service(row *tables.Service) api.Explain {
	e := api.Explain{
		SchemaVersion: api.SchemaVersion, Service: row.Name.String(), Reason: row.Ignored, Selection: Selection(row),
		Objects:     []api.ObjectRef{{Kind: reflector.KindService.String(), Name: row.Name.String(), ResourceVersion: row.Object.ResourceVersion}},
		Frontends:   []api.ExplainedFrontend{},
		Retained:    slices.DeleteFunc(Retentions(v.Retained), func(r api.Retention) bool { return r.Service != row.Name.String() }),
		Transitions: Transitions(row),
	}
	for _, s := range row.Slices {
		e.Objects = append(e.Objects, api.ObjectRef{Kind: reflector.KindEndpointSlice.String(), Name: s.Name.String(), ResourceVersion: s.ResourceVersion})
	}
	return e
}

// Frontends adds those of a row to what is said of it, each with what tell says
// of it, and puts them in order.
func Frontends(e *api.Explain, row *tables.Service, rows []api.Frontend, tell func(api.Frontend) (*api.KernelEntry, string)) {
	for i, f := range rows {
		kernel, verdict := tell(f)
		verdict = KeptVerdict(verdict, f, e.Retained, row.Compiled.Sets[row.Compiled.Claims[i].Set].Key)
		e.Frontends = append(e.Frontends, api.ExplainedFrontend{Frontend: f, Kernel: kernel, Verdict: verdict})
	}
	slices.SortStableFunc(e.Frontends, func(x, y api.ExplainedFrontend) int { return api.CompareFrontends(x.Frontend, y.Frontend) })
}

// Find returns the row of namespace/name, or that of the Service which holds
// ADDR:PORT[/PROTO], a node address and its NodePort included.
func (v View) Find(target string) (*tables.Service, error) {
	if namespace, name, ok := strings.Cut(target, "/"); ok && !strings.Contains(namespace, ":") {
		row, found := v.Snapshot.Service(model.Name{Namespace: namespace, Name: name})
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
	if slices.Contains(v.Served, to.Addr()) || to.Addr().IsLoopback() {
		spots = append(spots, model.Spot{Address: model.FamilyOf(to.Addr()).Unspecified(), Port: to.Port(), Protocol: protocol})
	}
	for _, spot := range spots {
		for row := range v.Snapshot.Services() {
			for _, claim := range row.Compiled.Claims {
				if claim.Shadowed == "" && claim.Key.Spot() == spot {
					return row, nil
				}
			}
		}
	}
	return nil, api.NotFound("%s", v.unheld(to, protocol))
}

// unheld says what becomes of connections to an address and port that no
// Service holds (R38).
func (v View) unheld(to netip.AddrPort, protocol model.Protocol) string {
	index := Index(v.Snapshot)
	unknown := index.Unknown(to.Addr(), &v.Node, v.ServiceCIDRs)
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

// Index finds the rows of a snapshot by where they stand.
func Index(snapshot tables.Snapshot) model.Index {
	candidates := make([]model.Candidate, 0, snapshot.Len())
	for row := range snapshot.Services() {
		candidates = append(candidates, model.Candidate{Contender: model.Contender{Service: row.Name}, Compiled: row.Compiled})
	}
	return model.NewIndex(candidates)
}

// Verdict says in words what a new connection meets.
func Verdict(f api.Frontend) string {
	switch f.Action {
	case model.ActionUnsupported.String(), model.ActionShadowed.String():
		return fmt.Sprintf("not served (%s): %s", f.Action, f.Reason)
	case model.ActionForward.String():
	default:
		return fmt.Sprintf("a new connection is refused (%s): %s", f.Action, f.Reason)
	}
	if len(f.Backends) > 1 {
		return fmt.Sprintf("a new connection goes to one of %d backends", len(f.Backends))
	}
	return "a new connection goes to " + api.HostPort(f.Backends[0].Address, f.Backends[0].Port)
}
