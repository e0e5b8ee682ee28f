// SPDX-License-Identifier: Apache-2.0

package podnetwork

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/doctor/parts"
	"github.com/fairlead-io/fairlead/internal/printable"
	"github.com/fairlead-io/fairlead/internal/probe"
)

// ranOut is a connection that ran out of time, in Go's words.
var ranOut = regexp.MustCompile(`(?:dial tcp |->)([0-9a-fA-F.:\[\]]+:\d+): i/o timeout`)

// noConnection is one that did not come to be, in Go's words, and to whom.
var noConnection = regexp.MustCompile(`dial tcp[46]? ([0-9a-fA-F.:\[\]]+:\d+): (?:connect: |i/o timeout)`)

// spoken is a log with the line that shows it.
type spoken struct {
	log  *facts.Log
	line string
}

// logged finds nodes on which several pods say that Services do not answer, and
// nobody in the host's network does. Where pods were probed, that decides.
func logged(c *facts.Case) []doctor.Finding {
	s := c.Last()
	if s == nil || s.Objects == nil {
		return nil
	}
	services := clusterAddresses(s.Objects)
	pods, hosts := map[string][]spoken{}, map[string]bool{}
	for _, l := range c.Logs {
		pod := parts.Pod(s.Objects, l)
		node := cmp.Or(l.Node, nodeOf(pod))
		if pod == nil || node == "" || podsProbed(s, node) {
			continue
		}
		if pod.Spec.HostNetwork {
			hosts[node] = hosts[node] || fails(c, l, services)
			continue
		}
		line, found := timeout(c, l, services)
		if found && !slices.ContainsFunc(pods[node], func(o spoken) bool { return o.log.Pod == l.Pod }) {
			pods[node] = append(pods[node], spoken{l, line})
		}
	}
	const enough = 2
	var out []doctor.Finding
	for node, said := range pods {
		if len(said) >= enough && !hosts[node] {
			out = append(out, fromLogs(node, said))
		}
	}
	slices.SortFunc(out, func(a, b doctor.Finding) int { return slices.Compare(a.Nodes, b.Nodes) })
	return out
}

func clusterAddresses(o *facts.Objects) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for _, service := range o.Services {
		for _, ip := range service.Spec.ClusterIPs {
			if a, err := netip.ParseAddr(ip); err == nil {
				out[a] = true
			}
		}
		if a, err := netip.ParseAddr(service.Spec.ClusterIP); err == nil {
			out[a] = true
		}
	}
	return out
}

func nodeOf(pod *corev1.Pod) string {
	if pod == nil {
		return ""
	}
	return pod.Spec.NodeName
}

func podsProbed(s *facts.Sample, node string) bool {
	n := s.Node(node)
	return n != nil && slices.ContainsFunc(n.Probes, func(p facts.Probe) bool { return strings.HasPrefix(p.From, probe.FromPod) })
}

// fails says whether somebody in the host's network lately could not connect,
// too: an API server that is gone refuses some and leaves others waiting. DNS does
// not count, for who answers there is a pod.
func fails(c *facts.Case, l *facts.Log, services map[netip.Addr]bool) bool {
	lines, _ := parts.Recent(c, l)
	return slices.ContainsFunc(lines, func(line facts.Line) bool {
		m := noConnection.FindStringSubmatch(line.Text)
		if m == nil {
			return false
		}
		at, err := netip.ParseAddrPort(m[1])
		return err == nil && (strings.Contains(line.Text, "https://") || services[at.Addr()] && at.Port() != 53)
	})
}

// timeout returns the last fresh line that says that a Service did not answer.
func timeout(c *facts.Case, l *facts.Log, services map[netip.Addr]bool) (text string, found bool) {
	lines, _ := parts.Recent(c, l)
	for _, line := range slices.Backward(lines) {
		if !strings.Contains(line.Text, ": i/o timeout") {
			continue
		}
		m := ranOut.FindStringSubmatch(line.Text)
		if m == nil {
			continue
		}
		if at, err := netip.ParseAddrPort(m[1]); err == nil && services[at.Addr()] {
			return line.Text, true
		}
	}
	return "", false
}

func fromLogs(node string, said []spoken) doctor.Finding {
	f := common(node)
	f.Title = "pods run out of time at Service addresses, and the node itself does not"
	f.Detail = append([]string{fmt.Sprintf("The logs of %d pods on %s say so; none of a pod in the host's network does.", len(said), node)}, f.Detail...)
	for _, s := range said[:min(len(said), excerptLines)] {
		f.Evidence = append(f.Evidence, doctor.Excerpt(s.log.Record, s.line))
	}
	f.Remedy = []doctor.Remedy{{
		Text:     "Try the API server from a pod and from the host's network of the same node.",
		Commands: []string{printable.Command("kubectl", "debug", "node/"+node, "--image=curlimages/curl", "-it", "--", "curl", "-sk", "https://kubernetes.default.svc/readyz"), "fairlead doctor"},
	}}
	return f
}
