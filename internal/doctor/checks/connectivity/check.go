// SPDX-License-Identifier: Apache-2.0

// Package connectivity tells which connections of those that were tried did not
// work, and who answered them.
package connectivity

import (
	_ "embed"
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/doctor/parts"
	"github.com/fairlead-io/fairlead/internal/probe"
)

//go:embed README.md
var page string

// Check looks at what came of connections.
func Check() doctor.Check {
	return doctor.Check{ID: "connectivity", Title: "connections that do not work", Rank: doctor.RankConnection, Page: page, Sample: check}
}

func check(s *facts.Sample) []doctor.Finding {
	var out []doctor.Finding
	for _, n := range s.Nodes {
		w := tried(n)
		cutOff := w.cutOff(n)
		for _, g := range w.groups(cutOff) {
			if f, ok := w.finding(g); ok {
				out = append(out, f)
			}
		}
	}
	return out
}

// node is what was tried of one. What was tried from outside of the data plane,
// or past it, explains others, and is no failure of its own.
type node struct {
	name   string
	probes []*facts.Probe
	pods   []string // from which something was tried, sorted
}

func tried(n *facts.Node) node {
	w := node{name: n.Name}
	for i := range n.Probes {
		p := &n.Probes[i]
		if p.Outcome == probe.Failed || !isHost(p) && !isPod(p.From) {
			continue
		}
		w.probes = append(w.probes, p)
		if isPod(p.From) {
			w.pods = append(w.pods, p.From)
		}
	}
	slices.Sort(w.pods)
	w.pods = slices.Compact(w.pods)
	return w
}

func isHost(p *facts.Probe) bool { return p.From == probe.FromHost }

func isPod(from string) bool { return strings.HasPrefix(from, probe.FromPod) }

// from are the results of a place.
func (w node) from(place string) []*facts.Probe {
	return filter(w.probes, func(p *facts.Probe) bool { return p.From == place })
}

func filter(all []*facts.Probe, keep func(*facts.Probe) bool) []*facts.Probe {
	return slices.DeleteFunc(slices.Clone(all), func(p *facts.Probe) bool { return !keep(p) })
}

// cutOff are the pods that reach nobody, which pod-network tells of.
func (w node) cutOff(n *facts.Node) []string {
	from := parts.FromPods(n)
	return slices.DeleteFunc(slices.Clone(w.pods), func(pod string) bool {
		tried := from[strings.TrimPrefix(pod, probe.FromPod)]
		return !parts.CutOff(n, tried) || slices.ContainsFunc(w.from(pod), inService)
	})
}

// inService says that it is known to be the Service layer that answers.
func inService(p *facts.Probe) bool {
	return slices.Contains([]probe.Layer{probe.LayerSocket, probe.LayerPacket, probe.LayerService}, p.Layer)
}

// group is what failed alike: one purpose of one Service, with one outcome.
type group struct {
	purpose probe.Purpose
	service string
	target  string // of what is no Service's
	outcome probe.Outcome
	failed  []*facts.Probe
}

// groups joins what failed alike, in the order in which it was tried.
func (w node) groups(cutOff []string) []group {
	var groups []group
	for _, p := range w.probes {
		if p.Works() || slices.Contains(cutOff, p.From) || w.isNothing(p) {
			continue
		}
		g := group{purpose: p.Purpose, service: p.Service, outcome: p.Outcome}
		if p.Service == "" && p.Purpose == probe.DNSLocal {
			g.target = p.Target
		}
		i := slices.IndexFunc(groups, func(other group) bool {
			return other.purpose == g.purpose && other.service == g.service && other.target == g.target && other.outcome == g.outcome
		})
		if i < 0 {
			groups = append(groups, g)
			i = len(groups) - 1
		}
		groups[i].failed = append(groups[i].failed, p)
	}
	return groups
}

// isNothing says of a failure that it needs no finding of its own: a gateway
// need not answer pods that reach others, nor a server those who reach it by its
// Service; and a Service fails with those behind it.
func (w node) isNothing(p *facts.Probe) bool {
	if p.Purpose == probe.Gateway || w.failsWithBackends(p) {
		return true
	}
	return isPod(p.From) && slices.ContainsFunc(w.from(p.From), func(other *facts.Probe) bool {
		return other.Works() && other.Service == p.Service && p.Service != "" && other.Purpose.Direct() == p.Purpose
	})
}

// failsWithBackends says that all behind a Service fail as it does, from the
// same place and by the same family of addresses.
func (w node) failsWithBackends(p *facts.Probe) bool {
	behind := filter(w.from(p.From), func(other *facts.Probe) bool {
		return other.Service == p.Service && other.Purpose == p.Purpose.Direct() && isIPv6(other) == isIPv6(p)
	})
	differs := func(other *facts.Probe) bool { return other.Outcome != p.Outcome }
	return len(behind) > 0 && !inService(p) && !slices.ContainsFunc(behind, differs)
}

func isIPv6(p *facts.Probe) bool { return strings.HasPrefix(p.Target, "[") }

// severity is how bad it is that these failed.
func (w node) severity(g group) doctor.Severity {
	ofAPI := g.purpose == probe.APIService || g.purpose == probe.APIDirect
	ofDNS := g.purpose == probe.DNSService || g.purpose == probe.DNSDirect || g.purpose == probe.DNSLocal
	host := slices.ContainsFunc(g.failed, isHost)
	pods := w.podsOf(g)
	switch {
	case slices.ContainsFunc(g.failed, inService):
		return doctor.Critical
	case ofDNS && g.outcome == probe.BadAnswer:
		return doctor.Critical
	case !ofAPI && !ofDNS:
		return doctor.Info
	case ofAPI && host && w.someWork(g):
		return doctor.Warning
	case ofAPI && host, ofDNS && host && len(pods) > 0:
		return doctor.Critical
	case len(pods) > 1 && len(pods) == len(w.pods):
		return doctor.Critical
	}
	return doctor.Info
}

// podsOf are the pods that met it.
func (w node) podsOf(g group) []string {
	var pods []string
	for _, p := range g.failed {
		if isPod(p.From) {
			pods = append(pods, p.From)
		}
	}
	slices.Sort(pods)
	return slices.Compact(pods)
}

// someWork says that the host reaches others of the same kind.
func (w node) someWork(g group) bool {
	return slices.ContainsFunc(w.from(probe.FromHost), func(p *facts.Probe) bool {
		return p.Works() && p.Purpose == g.purpose && p.Service == g.service
	})
}
