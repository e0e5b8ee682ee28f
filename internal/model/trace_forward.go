// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"slices"
	"strings"
)

// forward lists the candidates and says whether the source is rewritten.
func (t *trace) forward(row *Row) {
	source, set := "Service "+row.Service.String(), &row.Set
	t.verdict.Outcome = OutcomeForward
	t.verdict.Candidates = set.Backends
	t.step("backends", sliceText(set.Backends), "%s", candidateText(set.Backends))
	if len(set.Backends) > 1 {
		t.step("selection", source+", else --selection", "%s", t.selectionText(set.Selection))
	}
	if set.AffinitySeconds > 0 {
		t.step("affinity", source, "a client that came within the last %d s goes to the backend it had", set.AffinitySeconds)
	}
	t.verdict.SNAT = t.masquerade(row, source)
	t.hairpin(set.Backends)
	if t.verdict.SNAT {
		t.explainSNAT(set.Backends)
	}
}

// explainSNAT says what a backend sees in fact where the policy lets the source
// be rewritten: what need not be is not.
func (t *trace) explainSNAT(candidates []Backend) {
	local := slices.ContainsFunc(candidates, func(b Backend) bool { return b.Local })
	switch {
	case t.verdict.Path == PathSocket:
		t.step("snat", t.nodeSource(), "translated at its socket, it needs none: the kernel chooses the source address on the way to the backend")
	case t.origin == fromOutside && local:
		t.step("snat", t.nodeSource(), "a backend on this node sees the client's address all the same: its answers pass this node")
	case t.origin == fromPod:
		t.step("snat", t.nodeSource(), "a backend sees the pod's address all the same, unless it is the pod itself: its answers pass the pod's device")
	}
}

// masquerade follows kube-proxy. A pod's address is kept on its way to a
// ClusterIP; every other client's is rewritten, since the reply must come back
// this way (R37, R41): the node's own too, unless it lies in a cluster CIDR.
// Traffic to an external address is rewritten under policy Cluster, since it
// may cross nodes, whoever sent it. Under policy Local what comes from outside
// and from pods is kept, and only the node's own is rewritten.
func (t *trace) masquerade(row *Row, source string) bool {
	cidr, inCluster := containing(t.view.ClusterCIDRs, t.flow.From)
	if row.Claim.Type == TypeClusterIP {
		if inCluster {
			t.step("snat", "--cluster-cidr "+cidr.String(), "the source address is kept: it is inside the cluster")
			return false
		}
		t.step("snat", "--cluster-cidr", "the source address becomes this node's: it is not inside a cluster CIDR")
		return true
	}
	if row.Claim.Key.Scope == ScopeAll {
		t.step("snat", source, "the source address becomes this node's: externalTrafficPolicy is Cluster")
		return true
	}
	if t.origin == fromNode && !inCluster {
		t.step("snat", source, "the source address becomes this node's: its own traffic to an external address takes policy Cluster")
		return true
	}
	t.step("snat", source, "the source address is kept: externalTrafficPolicy is Local")
	return false
}

// hairpin notes that the client may meet itself: then its address is rewritten
// in any case, or its replies would never leave it (R37).
func (t *trace) hairpin(candidates []Backend) {
	own := func(b Backend) bool { return b.AddrPort.Addr() == t.flow.From }
	if t.verdict.SNAT || !slices.ContainsFunc(candidates, own) {
		return
	}
	t.step("hairpin", t.nodeSource(), "%s is a candidate itself; if it is chosen, the source address is rewritten so that the reply comes back this way", t.flow.From)
	others := func(b Backend) bool { return !own(b) }
	t.verdict.SNAT = !slices.ContainsFunc(candidates, others)
}

// selectionText says how one of several candidates is chosen.
func (t *trace) selectionText(s Selection) string {
	switch {
	case s == SelectionRandom:
		return "one of them is chosen at random"
	case t.verdict.Path == PathSocket:
		return "one of them is chosen at random: a socket has no source port yet when it connects, so only packets ask the Maglev table"
	}
	return "the flow's addresses and ports choose one of them, the same on every node (Maglev)"
}

func candidateText(candidates []Backend) string {
	kind := "ready"
	if candidates[0].State == StateTerminating {
		kind = "serving while it terminates, as nothing is ready"
	}
	if candidates[0].State == StateRetained || candidates[0].State == StateUnverified {
		kind = candidates[0].State.String()
	}
	if len(candidates) == 1 {
		return "1 candidate: " + kind
	}
	return fmt.Sprintf("%d candidates: each %s", len(candidates), kind)
}

// mostSlices bounds how many slices a step names.
const mostSlices = 3

// sliceText names the slices that hold the candidates.
func sliceText(candidates []Backend) string {
	var names []Name
	for _, b := range candidates {
		names = append(names, b.Slices...)
	}
	slices.SortFunc(names, Name.Compare)
	names = slices.Compact(names)
	texts := make([]string, 0, mostSlices)
	for _, n := range names[:min(len(names), mostSlices)] {
		texts = append(texts, "EndpointSlice "+n.String())
	}
	if more := len(names) - mostSlices; more > 0 {
		texts = append(texts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(texts, ", ")
}
