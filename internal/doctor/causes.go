// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"slices"
	"strings"
)

// breakage is an index of what findings break.
type breakage map[string][]broken

// broken is that a finding breaks something on a node; "" is on all of them.
type broken struct {
	node string
	by   int
}

func breakageOf(all []Finding) breakage {
	out := breakage{}
	for i := range all {
		for _, token := range all[i].Breaks {
			what, node := place(token)
			out[what] = append(out[what], broken{node, i})
		}
	}
	return out
}

// place is what a token names, and on which node. No name has a space in it.
func place(token string) (what, node string) {
	i := strings.LastIndex(token, " on ")
	if i < 0 {
		return token, ""
	}
	return token[:i], token[i+len(" on "):]
}

// explaining are the findings that break what one rests on, each once, by number.
// What breaks on all nodes breaks on each, and what rests on all of them rests on
// each.
func (b breakage) explaining(f *Finding) []int {
	var out []int
	for _, token := range f.RestsOn {
		what, node := place(token)
		for _, o := range b[what] {
			if o.node == node || o.node == "" || node == "" {
				out = append(out, o.by)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// roots are, for each finding, the identity of the one that everything began with;
// "" if it is that itself. On nodes with different roots a finding is not the same
// one: it must not stand under what is at fault elsewhere.
func roots(all []Finding, ranks map[string]Rank) []string {
	parents := nearest(all, ranks)
	out := make([]string, len(all))
	for i := range all {
		seen := map[int]bool{i: true}
		for p := parents[i]; p >= 0 && !seen[p]; p = parents[p] {
			seen[p] = true
			out[i] = all[p].identity()
		}
	}
	return out
}

// nearest is the parent of each finding, by number; -1 if it has none.
func nearest(all []Finding, ranks map[string]Rank) []int {
	breaks := breakageOf(all)
	out := make([]int, len(all))
	for i := range all {
		out[i] = -1
		for _, lower := range []bool{true, false} {
			parents := slices.DeleteFunc(breaks.explaining(&all[i]), func(p int) bool { return !fits(ranks, &all[p], &all[i], lower) })
			if len(parents) > 0 {
				out[i] = slices.MinFunc(parents, func(a, b int) int { return nearer(ranks, &all[a], &all[b], &all[i], lower) })
				break
			}
		}
	}
	return out
}

// fits says whether a finding is of a lower, or of a higher rank than what it is
// to explain.
func fits(ranks map[string]Rank, cause, effect *Finding, lower bool) bool {
	if lower {
		return ranks[cause.Check] < ranks[effect.Check]
	}
	return ranks[cause.Check] > ranks[effect.Check]
}

// nearer is the order of causes: first a defect that took the very thing away, then
// the nearest rank.
func nearer(ranks map[string]Rank, a, b, effect *Finding, lower bool) int {
	near := cmp.Compare(ranks[b.Check], ranks[a.Check])
	if !lower {
		near = -near
	}
	return cmp.Or(cmp.Compare(struck(ranks, b, effect), struck(ranks, a, effect)), near, compareFindings(*a, *b))
}

// struck is 1 for a defect of a version that is about the same subject.
func struck(ranks map[string]Rank, cause, effect *Finding) int {
	if ranks[cause.Check] == RankVersion && cause.Subject == effect.Subject {
		return 1
	}
	return 0
}
