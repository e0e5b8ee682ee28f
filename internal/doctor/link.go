// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"slices"
)

// link puts findings under what explains them. Of several causes the nearest
// one of a lower rank is the parent, for the chain then tells how the trouble
// spread; only a finding that has none may stand under one of a higher rank.
func link(all []Finding, ranks map[string]Rank) (causes, notes []*Node) {
	nodes := make([]*Node, len(all))
	for i := range all {
		nodes[i] = &Node{Finding: all[i]}
	}
	breaks := breakageOf(all)
	for _, lower := range []bool{true, false} {
		for _, n := range nodes {
			if n.parent == nil {
				n.stand(parentsOf(n, nodes, breaks.explaining(&n.Finding), ranks, lower))
			}
		}
	}
	causes = slices.DeleteFunc(nodes, func(n *Node) bool { return n.parent != nil })
	causes = slices.DeleteFunc(causes, func(n *Node) bool {
		note := n.Severity == Info && len(n.Consequences) == 0
		if note {
			notes = append(notes, n)
		}
		return note
	})
	slices.SortStableFunc(causes, func(a, b *Node) int {
		wa, sa := a.weight()
		wb, sb := b.weight()
		return cmp.Or(cmp.Compare(wb, wa), cmp.Compare(sb, sa), cmp.Compare(ranks[a.Check], ranks[b.Check]))
	})
	return causes, notes
}

// stand puts a finding under the first of those who explain it.
func (n *Node) stand(parents []*Node) {
	if len(parents) == 0 {
		return
	}
	n.parent = parents[0]
	n.parent.Consequences = append(n.parent.Consequences, n)
	for _, p := range parents[1:] {
		n.Also = append(n.Also, p.Check+" "+p.Subject)
	}
}

// parentsOf are those of a lower or of a higher rank who explain a finding, the
// nearest first. Nothing stands under what it explains itself.
func parentsOf(n *Node, nodes []*Node, explaining []int, ranks map[string]Rank, lower bool) []*Node {
	var out []*Node
	for _, i := range explaining {
		if p := nodes[i]; fits(ranks, &p.Finding, &n.Finding, lower) && !p.under(n) {
			out = append(out, p)
		}
	}
	slices.SortStableFunc(out, func(a, b *Node) int { return nearer(ranks, &a.Finding, &b.Finding, &n.Finding, lower) })
	return out
}

// under says that a finding is another one, or stands below it.
func (n *Node) under(other *Node) bool {
	for ; n != nil; n = n.parent {
		if n == other {
			return true
		}
	}
	return false
}

// weight is how bad the worst is that a finding explains, itself included, and
// how many findings it explains.
func (n *Node) weight() (worst Severity, size int) {
	worst, size = n.Severity, 1
	for _, c := range n.Consequences {
		w, s := c.weight()
		worst, size = max(worst, w), size+s
	}
	return worst, size
}
