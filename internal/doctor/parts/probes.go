// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/probe"
)

// FromPods are what was tried from pods of a node, by NAMESPACE/NAME.
func FromPods(n *facts.Node) map[string][]facts.Probe {
	out := map[string][]facts.Probe{}
	for _, p := range n.Probes {
		if pod, is := strings.CutPrefix(p.From, probe.FromPod); is {
			out[pod] = append(out[pod], p)
		}
	}
	return out
}

// CutOff says of what was tried from a pod that nothing came back, although some
// of the same answered the node itself.
func CutOff(n *facts.Node, tried []facts.Probe) bool {
	return reachesNobody(tried) && hostReaches(n.Probes, tried)
}

// reachesNobody says whether several targets were tried, and none answered.
func reachesNobody(probes []facts.Probe) bool {
	const enough = 2
	tried := map[string]bool{}
	for _, p := range probes {
		switch p.Outcome {
		case probe.Failed:
		case probe.Timeout, probe.HostUnreachable, probe.NetUnreachable, probe.NotPermitted:
			tried[p.Target] = true
		default:
			return false
		}
	}
	return len(tried) >= enough
}

// hostReaches says whether one of the same targets answered the host.
func hostReaches(all, probes []facts.Probe) bool {
	return slices.ContainsFunc(all, func(h facts.Probe) bool {
		return h.From == probe.FromHost && h.Works() &&
			slices.ContainsFunc(probes, func(p facts.Probe) bool { return p.Target == h.Target && p.Fails() })
	})
}
