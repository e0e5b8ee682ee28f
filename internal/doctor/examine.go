// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/doctor/facts"
)

// Report is what was found, with causes above their consequences.
type Report struct {
	// Causes are the findings that no other explains, the one that explains most
	// of the worst first.
	Causes []*Node
	// Notes are findings of severity Info that explain nothing.
	Notes   []*Node
	Scope   Scope
	Samples []Span
	Nodes   []string
	Checks  []string // the ids of those that ran
	Unread  []facts.Unread
}

// Scope is what the newest sample let compare: where nothing was found, it says
// what that is worth.
type Scope struct {
	Services int // in the API
	// Layers are those of which there is a table: api, and PLANE LAYER as "cilium
	// kernel".
	Layers []string
}

// Span is when a sample was taken.
type Span struct {
	From, To time.Time
}

// Node is a finding with what follows from it. A consequence of several causes
// stands under the first, and Also names the others.
type Node struct {
	Finding
	Also         []string
	Consequences []*Node

	parent *Node
}

// Examine runs the checks on a case.
func Examine(c *facts.Case, checks []Check) Report {
	r := Report{Scope: scope(c.Last()), Unread: c.Unread}
	for _, s := range c.Samples {
		r.Samples = append(r.Samples, Span{s.From, s.To})
		for _, n := range s.Nodes {
			r.Nodes = append(r.Nodes, n.Name)
		}
	}
	slices.Sort(r.Nodes)
	r.Nodes = slices.Compact(r.Nodes)
	ranks := map[string]Rank{}
	var all []Finding
	for _, check := range checks {
		r.Checks = append(r.Checks, check.ID)
		ranks[check.ID] = check.Rank
		all = append(all, run(check, c)...)
	}
	all = joinNodes(all, roots(all, ranks))
	slices.SortFunc(all, compareFindings)
	r.Causes, r.Notes = link(all, ranks)
	return r
}

func scope(s *facts.Sample) (of Scope) {
	if s == nil {
		return of
	}
	if s.Objects != nil && len(s.Objects.Services) > 0 {
		of.Services = len(s.Objects.Services)
		of.Layers = append(of.Layers, string(LayerAPI))
	}
	seen := map[string]facts.Layer{}
	for _, n := range s.Nodes {
		for i := range n.Dumps {
			d := &n.Dumps[i]
			seen[string(d.DataPlane)+" "+d.Layer.String()] = d.Layer
		}
	}
	of.Layers = append(of.Layers, slices.SortedFunc(maps.Keys(seen), func(a, b string) int {
		return cmp.Or(cmp.Compare(seen[a], seen[b]), cmp.Compare(a, b))
	})...)
	return of
}

// run returns what one check found, of states what persists.
func run(check Check, c *facts.Case) []Finding {
	var out []Finding
	if check.Sample != nil {
		out = persistent(check, c.Samples)
	}
	if check.Case != nil {
		for _, f := range check.Case(c) {
			out = append(out, complete(check, f))
		}
	}
	return out
}

func complete(check Check, f Finding) Finding {
	f.Check = check.ID
	if f.Certain {
		f.Certainty = Confirmed
	}
	return f
}

// persistent returns the findings that no sample contradicts: two that show one
// confirm it, and one that could have shown it and does not takes it away, for
// then it was on its way. The newest sample's words stand. What only the newest
// shows may as well have just begun: that is a note.
func persistent(check Check, samples []*facts.Sample) []Finding {
	found := make([]map[string]Finding, len(samples))
	for i, s := range samples {
		found[i] = map[string]Finding{}
		for _, f := range check.Sample(s) {
			f = complete(check, f)
			found[i][f.identity()+"\x00"+strings.Join(f.Nodes, "\x00")] = f
		}
	}
	var out []Finding
	seen := map[string]bool{}
	for i := len(samples) - 1; i >= 0; i-- {
		for id, f := range found[i] {
			if seen[id] || f.Recent {
				continue
			}
			seen[id] = true
			shown, denied := 0, false
			for j, s := range samples {
				other, has := found[j][id]
				switch {
				case has && other.Recent:
				case has:
					shown++
				case couldShow(s, &f):
					denied = true
				}
			}
			switch {
			case !denied || f.Certain:
				if shown > 1 {
					f.Certainty = Confirmed
				}
				out = append(out, f)
			case i == len(samples)-1:
				out = append(out, f.begun())
			}
		}
	}
	return out
}

// begun is a finding that only the newest sample shows, as a note. It explains
// nothing, and is not joined with what lasts on other nodes.
func (f Finding) begun() Finding {
	f.Key = cmp.Or(f.Key, f.Title) + " of late"
	f.Severity, f.Certainty, f.Breaks, f.RestsOn = Info, Suspected, nil, nil
	f.Detail = append(slices.Clone(f.Detail), "Only the last sample shows it: it was on its way, or it has just begun. Look again to know.")
	return f
}

// couldShow says whether a sample has all that a finding rests on.
func couldShow(s *facts.Sample, f *Finding) bool {
	return !slices.ContainsFunc(f.Evidence, func(e Evidence) bool { return !s.Has(e.Node, e.Command) })
}

// joinNodes makes one finding of what is the same on several nodes, and has the
// same root there, with the evidence of the first ones.
func joinNodes(all []Finding, roots []string) []Finding {
	const evidenceNodes = 3
	order := make([]int, len(all))
	names := make([]string, len(all))
	for i := range all {
		order[i], names[i] = i, all[i].identity()+"\x00"+roots[i]
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(names[a], names[b]), slices.Compare(all[a].Nodes, all[b].Nodes))
	})
	var out []Finding
	for at, i := range order {
		f := all[i]
		if at == 0 || names[order[at-1]] != names[i] {
			out = append(out, f)
			continue
		}
		o := &out[len(out)-1]
		if len(o.Nodes) < evidenceNodes {
			o.Evidence = append(o.Evidence, f.Evidence...)
		}
		o.Nodes = union(o.Nodes, f.Nodes)
		o.Breaks = union(o.Breaks, f.Breaks)
		o.RestsOn = union(o.RestsOn, f.RestsOn)
		o.Severity = max(o.Severity, f.Severity)
		o.Certainty = max(o.Certainty, f.Certainty)
	}
	return out
}

func union(a, b []string) []string {
	out := slices.Concat(a, b)
	slices.Sort(out)
	return slices.Compact(out)
}
