// SPDX-License-Identifier: Apache-2.0

// Package podnetwork finds nodes whose pods reach nobody while the node itself
// does.
package podnetwork

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/doctor/parts"
	"github.com/fairlead-io/fairlead/internal/probe"
)

//go:embed README.md
var page string

// Check finds pods that reach nobody.
func Check() doctor.Check {
	return doctor.Check{
		ID: "pod-network", Title: "nodes whose pods reach nobody while the node itself does", Rank: doctor.RankPods,
		Page: page, Sample: probed, Case: logged,
	}
}

// probed finds pods from which nothing worked that works from the host.
func probed(s *facts.Sample) []doctor.Finding {
	isolated, everywhere := parts.Isolated(s.Objects)
	var out []doctor.Finding
	for _, n := range s.Nodes {
		var cut []string
		pods := 0
		for pod, tried := range parts.FromPods(n) {
			if namespace, _, _ := strings.Cut(pod, "/"); isolated[namespace] {
				continue
			}
			pods++
			if parts.CutOff(n, tried) {
				cut = append(cut, pod)
			}
		}
		if slices.Sort(cut); len(cut) > 0 {
			out = append(out, finding(n, cut, pods, everywhere))
		}
	}
	return out
}

const excerptLines = 4

func finding(n *facts.Node, cut []string, pods int, policies bool) doctor.Finding {
	f := common(n.Name)
	switch {
	case len(cut) < pods:
		f.Severity, f.Title = doctor.Warning, "some pods reach nobody, and others and the node itself do"
	case policies:
		f.Severity = doctor.Warning
		f.Detail = append(f.Detail, "There are policies for what leaves pods of all namespaces: whom they select is for the CNI to say.")
	}
	f.Detail = append([]string{fmt.Sprintf("Of %d pods on %s that were tried, %d reach nobody: %s.", pods, n.Name, len(cut), strings.Join(cut[:min(len(cut), excerptLines)], ", "))}, f.Detail...)
	var host, pod []string
	first := n.Probes[0].Record
	for _, p := range n.Probes {
		line := strings.TrimSpace(fmt.Sprintf("%s to %s %s: %s %s", p.From, p.Purpose, p.Target, p.Outcome, p.Error))
		switch {
		case p.From == probe.FromHost && p.Works() && len(host) < excerptLines:
			host, first = append(host, line), p.Record
		case p.From == probe.FromPod+cut[0] && p.Fails() && len(pod) < excerptLines:
			pod = append(pod, line)
		}
	}
	f.Evidence = []doctor.Evidence{doctor.Excerpt(first, append(host, pod...)...)}
	namespace, name, _ := strings.Cut(cut[0], "/")
	f.Remedy = []doctor.Remedy{{
		Text:     "If no cause stands above, see what the CNI made of such a pod.",
		Commands: []string{doctor.Kubectl(namespace, "get", "pod", name, "-o", "wide"), doctor.Kubectl(namespace, "describe", "pod", name)},
	}}
	return f
}

func common(node string) doctor.Finding {
	return doctor.Finding{
		Severity: doctor.Critical, Layer: doctor.LayerConnection, Subject: "the pod network", Nodes: []string{node},
		Title:   "pods reach nobody, and the node itself does",
		Detail:  []string{"What runs in the host's network is not concerned, so Services and their backends are well: it is what the CNI does for pods."},
		RestsOn: []string{doctor.PodNetwork(node), doctor.Identities(node)},
		Breaks:  []string{doctor.PodNetwork(node), doctor.DNS(node)},
	}
}
