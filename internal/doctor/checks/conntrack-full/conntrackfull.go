// SPDX-License-Identifier: Apache-2.0

// Package conntrackfull finds nodes whose kernel has no room for more
// connections.
package conntrackfull

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/doctor/parts"
)

//go:embed README.md
var page string

// Check finds tables of connections that are nearly full.
func Check() doctor.Check {
	return doctor.Check{
		ID: "conntrack-full", Title: "nodes whose kernel has little room for more connections", Rank: doctor.RankKernel,
		Page: page, Sample: counted, Case: logged,
	}
}

// In hundredths of what fits: from where on it is named, and from where on new
// connections are about to be dropped.
const (
	nearly = 90
	full   = 98
)

func counted(s *facts.Sample) []doctor.Finding {
	var out []doctor.Finding
	for _, n := range s.Nodes {
		t := n.Conntrack
		if t == nil || t.Max <= 0 || int64(t.Count)*100 < int64(t.Max)*nearly {
			continue
		}
		f := common(n.Name, t.Max)
		f.Title = "the kernel's table of connections is nearly full"
		f.Severity = doctor.Warning
		if int64(t.Count)*100 >= int64(t.Max)*full {
			f.Title, f.Severity = "the kernel's table of connections is full", doctor.Critical
		}
		f.Evidence = []doctor.Evidence{doctor.Excerpt(t.Record, fmt.Sprintf("nf_conntrack_count=%d", t.Count), fmt.Sprintf("nf_conntrack_max=%d", t.Max))}
		out = append(out, f)
	}
	return out
}

// tableFull is what the kernel says.
const tableFull = "nf_conntrack: table full, dropping packet"

func logged(c *facts.Case) []doctor.Finding {
	var out []doctor.Finding
	for _, l := range c.Logs {
		lines, dated := parts.Recent(c, l)
		for i := len(lines) - 1; i >= 0 && dated; i-- {
			if !strings.Contains(lines[i].Text, tableFull) {
				continue
			}
			f := common(l.Node, 0)
			f.Title, f.Certain = "the kernel drops packets of new connections: its table of them is full", true
			f.Evidence = []doctor.Evidence{doctor.Excerpt(l.Record, lines[i].Text)}
			out = append(out, f)
			break
		}
	}
	return out
}

// common is what both findings say. Room is what fits now; 0 if that is not
// known.
func common(node string, room int) doctor.Finding {
	f := doctor.Finding{
		Severity: doctor.Critical, Layer: doctor.LayerKernel, Subject: "conntrack",
		Detail: []string{"A new connection that finds no room loses its first packet, whatever it is for, unless it passes netfilter by."},
		Remedy: []doctor.Remedy{
			{Text: "Give it more room, for good in kube-proxy's settings conntrack.maxPerCore and conntrack.min, if there is one.", Commands: []string{"sysctl -w net.netfilter.nf_conntrack_max=$(( $(sysctl -n net.netfilter.nf_conntrack_max) * 2 ))"}},
			{Text: "See who opens so many.", Commands: []string{"conntrack -L 2>/dev/null | grep -o 'src=[^ ]*' | awk 'NR % 2' | sort | uniq -c | sort -rn | head"}},
		},
	}
	if room > 0 {
		f.Remedy[0].Commands = []string{fmt.Sprintf("sysctl -w net.netfilter.nf_conntrack_max=%d", room*2)}
	}
	if node != "" {
		f.Nodes = []string{node}
	}
	return f
}
