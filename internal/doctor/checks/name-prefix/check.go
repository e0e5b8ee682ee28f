// SPDX-License-Identifier: Apache-2.0

// Package nameprefix looks for Services that a version of Cilium confuses: the
// name of one is the beginning of the other's, and both have an address.
package nameprefix

import (
	_ "embed"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/bugs"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/doctor/services"
)

//go:embed README.md
var page string

const (
	id  = "name-prefix"
	bug = "cilium-43619"
	// upstream is how people know the defect.
	upstream = "cilium#43619"
)

// Check looks for cilium#43619, before it strikes and after.
func Check() doctor.Check {
	return doctor.Check{ID: id, Title: "Services whose names begin alike, with an address of both", Rank: doctor.RankVersion, Page: page, Case: check}
}

// pair is two Services of one namespace: what is released of the short name is
// released of the long one as well.
type pair struct {
	short, long services.Service
	// shared are the ready addresses of both.
	shared []netip.AddrPort
}

func check(c *facts.Case) []doctor.Finding {
	last := c.Last()
	if last == nil {
		return nil
	}
	agents, suspects := agentsOf(last)
	if len(agents)+len(suspects) == 0 {
		return nil
	}
	past := historyOf(c)
	var out []doctor.Finding
	for _, p := range pairs(services.All(last.Objects)) {
		struck := past.losses(p, slices.Concat(agents, suspects))
		for _, l := range struck {
			out = append(out, l.finding(last, p))
		}
		if len(struck) == 0 && len(p.shared) > 0 && len(agents) > 0 {
			out = append(out, dormant(last, p, agents))
		}
	}
	return out
}

// pairs are those that the defect can join. Services without frontends, and
// their slices, are nothing to a data plane. In their order by name, those that
// begin alike follow each other.
func pairs(all []services.Service) []pair {
	var out []pair
	for i, short := range all {
		for _, long := range all[i+1:] {
			if long.Namespace != short.Namespace || !strings.HasPrefix(long.Name, short.Name) {
				break
			}
			if short.Served() && long.Served() {
				out = append(out, pair{short, long, common(short.Ready(), long.Ready())})
			}
		}
	}
	return out
}

func common(a, b []netip.AddrPort) []netip.AddrPort {
	return slices.DeleteFunc(slices.Clone(a), func(x netip.AddrPort) bool { return !slices.Contains(b, x) })
}

// agent is a Cilium that is known to be affected, or whose version is not known.
type agent struct {
	node    string
	version string // "" if it is not known
	shown   []doctor.Evidence
}

// agentsOf are the affected agents, and those of which nobody knows. An agent on
// node "" stands for those on all nodes without one of their own.
func agentsOf(s *facts.Sample) (affected, unknown []agent) {
	defect, _ := bugs.Find(bug)
	known := map[string]bool{}
	for _, i := range bugs.In(s) {
		if i.Component != bugs.Cilium {
			continue
		}
		known[i.Node] = true
		if _, hit := defect.In(i.Version); hit && !idle(s.Node(i.Node)) {
			affected = append(affected, agent{i.Node, i.Version.String(), []doctor.Evidence{i.Evidence}})
		}
	}
	for _, n := range s.Nodes {
		if isCilium := slices.ContainsFunc(n.Dumps, func(d facts.Dump) bool { return d.DataPlane == facts.PlaneCilium }); !isCilium {
			continue
		}
		switch cluster := slices.IndexFunc(affected, func(a agent) bool { return a.node == "" }); {
		case known[n.Name]:
		case cluster >= 0:
			affected = append(affected, agent{n.Name, affected[cluster].version, affected[cluster].shown})
		case !known[""]:
			unknown = append(unknown, agent{node: n.Name})
		}
	}
	return affected, unknown
}

// idle says that Services are not Cilium's to serve on a node.
func idle(n *facts.Node) bool {
	if n == nil || n.Cilium == nil || n.Cilium.Status == nil {
		return false
	}
	return slices.Contains([]string{"False", "Disabled"}, n.Cilium.Status.KubeProxyReplacement)
}

// dormant is a pair that has come to no harm so far.
func dormant(s *facts.Sample, p pair, agents []agent) doctor.Finding {
	f := doctor.Finding{
		Check: id, Severity: doctor.Warning, Layer: doctor.LayerAPI, Subject: p.long.String(), Certain: true,
		Title: fmt.Sprintf("%s shares %s with %s, whose name is the beginning of its own: Cilium %s takes both for one (%s)",
			p.long, addresses(p.shared), p.short, agents[0].version, upstream),
		Detail: []string{
			fmt.Sprintf("When %s loses an endpoint that both have, the agent forgets it for %s as well. Nobody notices until %s is written again, if only a label of it: then its backends go from the kernel, and stay away.",
				p.short, p.long, p.long),
		},
		Evidence: append(slices.Clone(agents[0].shown), services.ShownSlices(s.Objects, p.short, p.long)...),
		Remedy:   []doctor.Remedy{upgrade()},
	}
	for _, a := range agents {
		if a.node != "" {
			f.Nodes = append(f.Nodes, a.node)
		}
	}
	if sel := p.short.Spec.Selector; len(sel) > 0 && reflect.DeepEqual(sel, p.long.Spec.Selector) {
		f.Severity = doctor.Info
		f.Detail = append(f.Detail, "Both select the same pods, and so lose an endpoint at the same time; it shows only if they are updated apart.")
	}
	return f
}

func upgrade() doctor.Remedy {
	defect, _ := bugs.Find(bug)
	return doctor.Remedy{
		Text: fmt.Sprintf("Upgrade Cilium: of 1.18 to %s or later; 1.19 and later have the fix. Until then keep addresses or names apart.", defect.Affected[0].Before),
	}
}

func addresses(all []netip.AddrPort) string {
	const most = 2
	var texts []string
	for _, a := range all[:min(most, len(all))] {
		texts = append(texts, a.String())
	}
	text := strings.Join(texts, " and ")
	if more := len(all) - most; more > 0 {
		text = fmt.Sprintf("%s, and %d more", strings.Join(texts, ", "), more)
	}
	return text
}
