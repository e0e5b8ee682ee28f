// SPDX-License-Identifier: Apache-2.0

// Package knownbug looks for versions of data planes with a defect that can bite
// this cluster.
package knownbug

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/bugs"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
)

//go:embed README.md
var page string

const id = "known-bug"

// Check goes through the list of bugs.
func Check() doctor.Check {
	return doctor.Check{ID: id, Title: "versions with a known defect", Rank: doctor.RankVersion, Page: page, Case: check}
}

func check(c *facts.Case) []doctor.Finding {
	last := c.Last()
	if last == nil {
		return nil
	}
	installed := bugs.In(last)
	needs := needs()
	var out []doctor.Finding
	for _, b := range bugs.All() {
		if b.Check == "" {
			out = append(out, found(c, &b, installed, needs[b.Needs])...)
		}
	}
	return out
}

// found is a bug in the versions that are installed: one finding for nodes on
// which all is the same.
func found(c *facts.Case, b *bugs.Bug, installed []bugs.Installed, needs need) []doctor.Finding {
	answers := map[string]answer{}
	var out []doctor.Finding
	for _, in := range installed {
		r, affected := b.In(in.Version)
		if in.Component != b.Component || !affected {
			continue
		}
		node := ""
		if needs.ofNode {
			node = in.Node
		}
		a, known := answers[node]
		if !known {
			a = needs.look(c, node)
			answers[node] = a
		}
		if a.is != no {
			out = merge(out, finding(b, in, r, a))
		}
	}
	return out
}

// merge adds a finding, or its node to one that says the same. The versions of a
// few nodes are evidence enough.
func merge(all []doctor.Finding, f doctor.Finding) []doctor.Finding {
	const evidenceNodes = 3
	for i := range all {
		o := &all[i]
		if o.Title != f.Title || o.Severity != f.Severity || !slices.Equal(o.Detail, f.Detail) {
			continue
		}
		if len(o.Nodes) < evidenceNodes {
			o.Evidence = slices.Insert(o.Evidence, len(o.Nodes), f.Evidence[0])
		}
		o.Nodes, o.Breaks = append(o.Nodes, f.Nodes...), append(o.Breaks, f.Breaks...)
		return all
	}
	return append(all, f)
}

func finding(b *bugs.Bug, in bugs.Installed, r bugs.Range, a answer) doctor.Finding {
	f := doctor.Finding{
		Check: id, Severity: doctor.Info, Layer: doctor.LayerAgent, Subject: in.Component.Name(), Certain: true,
		Title:    fmt.Sprintf("%s %s %s (%s)", in.Component.Name(), in.Version, b.Title, upstream(b.ID)),
		Detail:   append(slices.Clone(b.Effect), a.because),
		Evidence: []doctor.Evidence{in.Evidence},
		Breaks:   slices.Clone(a.breaks),
		Remedy:   []doctor.Remedy{remedy(b, in, r)},
	}
	if in.Node != "" {
		f.Nodes = []string{in.Node}
	}
	if in.Version.Build != "" {
		f.Detail = append(f.Detail, fmt.Sprintf("It is a build of its own (%s): whether that has the fix, its maker knows.", in.Version.Build))
	}
	f.Detail = append(f.Detail, "See "+strings.Join(b.Sources, " and ")+".")
	for _, e := range a.shown {
		f.Evidence = doctor.Join(f.Evidence, e)
	}
	if a.is == yes {
		f.Severity = severity(b.Severity)
	}
	return f
}

func severity(word string) doctor.Severity {
	switch word {
	case "critical":
		return doctor.Critical
	case "warning":
		return doctor.Warning
	}
	return doctor.Info
}

func remedy(b *bugs.Bug, in bugs.Installed, r bugs.Range) doctor.Remedy {
	text := fmt.Sprintf("Upgrade %s to %s or later.", in.Component.Name(), r.Before)
	if r.Before == nil {
		text = fmt.Sprintf("Up to %s %s has it; see whether a later version has the fix.", r.Through, in.Component.Name())
	}
	if b.Remedy != "" {
		text += " " + b.Remedy
	}
	return doctor.Remedy{Text: text}
}

// upstream is how people know a bug: PROJECT#NUMBER.
func upstream(id string) string {
	i := strings.LastIndexByte(id, '-')
	return id[:i] + "#" + id[i+1:]
}
