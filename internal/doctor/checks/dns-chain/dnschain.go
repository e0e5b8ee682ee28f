// SPDX-License-Identifier: Apache-2.0

// Package dnschain finds the first broken link between a pod and the names of
// the cluster.
package dnschain

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
)

//go:embed README.md
var page string

// Check finds where the chain of DNS is broken.
func Check() doctor.Check {
	return doctor.Check{
		ID: "dns-chain", Title: "the first broken link between a pod and the names of the cluster", Rank: doctor.RankDNS,
		Page: page, Case: find,
	}
}

// link is one link of the chain, in its order from a pod to the API server.
type link struct {
	from, to string
	broken   bool
	works    bool // it is known that it does; neither: nothing is known
	sure     bool // of broken: it is no matter of a moment
	why      string
	nodes    []string
	evidence []doctor.Evidence
	rests    []string
	remedy   doctor.Remedy
}

func (l *link) name() string { return l.from + " → " + l.to }

func find(c *facts.Case) []doctor.Finding {
	s := cmp.Or(c.Last(), &facts.Sample{})
	d := describe(s)
	links := []link{d.pods(c)}
	if d.cache {
		links = append(links, d.cached(c))
	}
	links = append(links, d.server(s), d.follows(c))
	first := slices.IndexFunc(links, func(l link) bool { return l.broken })
	if first < 0 {
		return nil
	}
	return []doctor.Finding{finding(links, first)}
}

// finding names the first broken link, with the evidence of all of them.
func finding(links []link, first int) doctor.Finding {
	l := &links[first]
	f := doctor.Finding{
		Severity: doctor.Critical, Layer: doctor.LayerConnection, Subject: "DNS of the cluster", Nodes: l.nodes,
		Title:  fmt.Sprintf("DNS is broken between %s and %s", l.from, l.to),
		Detail: []string{l.why},
	}
	var states []string
	for i := range links {
		o := &links[i]
		f.Evidence = append(f.Evidence, o.evidence...)
		f.RestsOn = append(f.RestsOn, o.rests...)
		f.Certain = f.Certain || o.broken && o.sure
		states = append(states, o.name()+": "+o.state())
		if o.broken {
			f.Remedy = append(f.Remedy, o.remedy)
		}
	}
	f.Detail = append(f.Detail, "The chain: "+strings.Join(states, "; ")+".")
	slices.Sort(f.RestsOn)
	f.RestsOn = slices.Compact(f.RestsOn)
	for _, node := range l.nodes {
		f.Breaks = append(f.Breaks, doctor.DNS(node))
	}
	if len(l.nodes) == 0 {
		f.Breaks = []string{doctor.DNS("")}
	}
	return f
}

func (l *link) state() string {
	switch {
	case l.broken:
		return "broken"
	case l.works:
		return "works"
	}
	return "not known"
}
