// SPDX-License-Identifier: Apache-2.0

// Package twoproxies finds nodes on which kube-proxy and a replacement for it
// both serve Services.
package twoproxies

import (
	_ "embed"
	"fmt"
	"slices"

	"github.com/fairlead-io/fairlead/internal/adapter/cilium"
	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/doctor/parts"
	"github.com/fairlead-io/fairlead/internal/evidence"
)

//go:embed README.md
var page string

// Check finds nodes with two Service proxies.
func Check() doctor.Check {
	return doctor.Check{
		ID: "two-proxies", Title: "nodes on which kube-proxy and a replacement both serve Services", Rank: doctor.RankConfig,
		Page: page, Sample: find,
	}
}

func find(s *facts.Sample) []doctor.Finding {
	running := kubeProxyNodes(s)
	var out []doctor.Finding
	for _, n := range s.Nodes {
		rules, record := kubeProxyRules(n)
		name, other := replacement(n)
		if rules == 0 || other.Command == "" {
			continue
		}
		f := doctor.Finding{
			Severity: doctor.Warning, Layer: doctor.LayerKernel, Subject: "kube-proxy and " + name,
			Title:    fmt.Sprintf("rules of kube-proxy and %s both serve Services", name),
			Detail:   []string{"Which of them answers depends on where a packet passes first, and each has backends of its own."},
			Evidence: []doctor.Evidence{doctor.Excerpt(record, fmt.Sprintf("%d addresses of Services", rules)), other},
			Remedy: []doctor.Remedy{{
				Text:     "Decide for one. To go without kube-proxy, delete it, and take away its rules on every node.",
				Commands: []string{"kubectl --namespace kube-system delete daemonset kube-proxy", "kube-proxy --cleanup"},
			}},
		}
		if n.Name != "" {
			f.Nodes = []string{n.Name}
		}
		if known := s.Objects.Complete("pods"); known && !running[n.Name] && n.KubeProxy == nil {
			f.Detail = append(f.Detail, "No pod of kube-proxy runs there: unless it runs as a service of the node, nobody changes these rules any more.")
		}
		out = append(out, f)
	}
	return out
}

// kubeProxyNodes are those on which pods of it are.
func kubeProxyNodes(s *facts.Sample) map[string]bool {
	out := map[string]bool{}
	for _, p := range parts.Of(s.Objects) {
		for _, node := range p.Nodes() {
			if p.ID == "kube-proxy" {
				out[node] = true
			}
		}
	}
	return out
}

// kubeProxyRules counts the addresses that kube-proxy's rules serve.
func kubeProxyRules(n *facts.Node) (count int, record *evidence.Record) {
	for i := range n.Dumps {
		if d := &n.Dumps[i]; d.DataPlane == facts.PlaneKubeProxy {
			count += len(d.Frontends)
			record = d.Record
		}
	}
	return count, record
}

// full are the values with which Cilium says that it replaces kube-proxy.
var full = []string{"True", "true", "Strict", "strict"}

// replacement is who else serves Services, with the line that shows it.
func replacement(n *facts.Node) (name string, shown doctor.Evidence) {
	if f := n.Fairlead; f != nil && f.Status != nil && f.Status.Frontends > 0 && attached(f.Status) {
		return "Fairlead", doctor.Excerpt(f.StatusRecord, fmt.Sprintf("frontends: %d, and its programs are attached", f.Status.Frontends))
	}
	c := n.Cilium
	if c == nil {
		return "", doctor.Evidence{}
	}
	if c.Status != nil && slices.Contains(full, c.Status.KubeProxyReplacement) {
		return "Cilium", doctor.Excerpt(c.StatusRecord, "KubeProxyReplacement: "+c.Status.KubeProxyReplacement)
	}
	if value, _ := cilium.Setting(c.Config, "kube-proxy-replacement"); c.Status == nil && slices.Contains(full, value) {
		return "Cilium", doctor.Excerpt(c.ConfigRecord, "kube-proxy-replacement: "+value)
	}
	return "", doctor.Evidence{}
}

func attached(s *api.Status) bool {
	return slices.ContainsFunc(s.Attachments, func(a api.Attachment) bool { return a.Ours })
}
