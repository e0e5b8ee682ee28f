// SPDX-License-Identifier: Apache-2.0

// Package rulesgone finds nodes on which a kube-proxy runs and none of its rules
// is there.
package rulesgone

import (
	_ "embed"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/doctor/parts"
	"github.com/fairlead-io/fairlead/internal/model"
)

//go:embed README.md
var page string

// Check finds nodes without kube-proxy's rules.
func Check() doctor.Check {
	return doctor.Check{
		ID: "rules-gone", Title: "nodes on which kube-proxy runs, and none of its rules is there", Rank: doctor.RankKernel,
		Page: page, Sample: find,
	}
}

// account is kube-proxy's, as its installers name it.
const account = "kube-system/kube-proxy"

func find(s *facts.Sample) []doctor.Finding {
	families := served(s)
	pods := podsOf(s)
	var out []doctor.Finding
	for _, n := range s.Nodes {
		asked := n.KubeProxy != nil && n.KubeProxy.Mode != ""
		if pod := pods[n.Name]; (asked || pod != "") && !replaced(n) {
			out = append(out, findOn(s, n, families, pod)...)
		}
	}
	return out
}

func findOn(s *facts.Sample, n *facts.Node, families []model.Family, pod string) []doctor.Finding {
	mode := modeOf(s, n)
	var gone []string
	var shown []doctor.Evidence
	for _, family := range families {
		if e, ok := without(n, mode, family); ok {
			gone = append(gone, family.String())
			for i := range e {
				shown = doctor.Join(shown, e[i])
			}
		}
	}
	// Of a cluster whose addresses are not known, one family may never be served.
	if len(gone) == 0 || len(gone) < len(families) && !known(s) {
		return nil
	}
	return []doctor.Finding{{
		Severity: doctor.Critical, Layer: doctor.LayerKernel, Subject: "kube-proxy", Nodes: []string{n.Name},
		Title: fmt.Sprintf("kube-proxy runs, and none of its rules for %s is in the kernel", strings.Join(gone, " and ")),
		Key:   "gone",
		Detail: []string{
			"Connections to any Service find nobody who translates them: they leave the node, and run out of time. That of the API server and DNS are among them.",
			"Something took the rules away, such as a firewall's script that flushes all tables. A kube-proxy in nftables mode may not notice for an hour.",
		},
		Evidence: shown,
		Remedy: []doctor.Remedy{{
			Text:     "Restart kube-proxy on the node, which writes all rules anew; then look for who flushed them, or it will happen again.",
			Commands: restart(pod),
		}},
		RestsOn: []string{doctor.Reach(account, n.Name), doctor.Permission(account)},
		Breaks:  breaks(s, n.Name),
	}}
}

func restart(pod string) []string {
	if pod == "" {
		return []string{"systemctl restart kube-proxy"}
	}
	namespace, name, _ := strings.Cut(pod, "/")
	return []string{doctor.Kubectl(namespace, "delete", "pod", name)}
}

func breaks(s *facts.Sample, node string) []string {
	var out []string
	if !known(s) {
		return nil
	}
	for _, service := range s.Objects.Services {
		out = append(out, doctor.Backends(service.Namespace+"/"+service.Name, node))
	}
	return out
}

// known says whether Services of the API are.
func known(s *facts.Sample) bool { return s.Objects != nil && len(s.Objects.Services) > 0 }

// without says that whole outputs show no rule of a family, of a mode or, where
// that is not known, of any.
func without(n *facts.Node, mode string, family model.Family) (shown []doctor.Evidence, absent bool) {
	modes := map[string]bool{}
	for i := range n.Dumps {
		d := &n.Dumps[i]
		if d.DataPlane != facts.PlaneKubeProxy {
			continue
		}
		if d.Silent == "" && d.Tells(family) {
			return nil, false
		}
		of := modeOfSource(d.Source)
		if slices.Contains(d.Absent, family) && (mode == "" || mode == of) {
			modes[of] = true
			shown = append(shown, doctor.Excerpt(d.Record, nothing(of, family)))
		}
	}
	if mode == "" {
		return shown, modes["iptables"] && modes["nftables"]
	}
	return shown, modes[mode]
}

// nothing is what a person sees who looks for the rules.
func nothing(mode string, family model.Family) string {
	if mode == "iptables" {
		return "(no rule in KUBE-SERVICES)"
	}
	return fmt.Sprintf("(no table kube-proxy for %s)", family)
}

func modeOfSource(source string) string {
	switch {
	case strings.HasPrefix(source, "nft"):
		return "nftables"
	case strings.HasPrefix(source, "ipvsadm"):
		return "ipvs"
	}
	return "iptables"
}

// modeOf is what kube-proxy said, or that of all other nodes, which have one
// configuration; "" if neither tells.
func modeOf(s *facts.Sample, n *facts.Node) string {
	if n.KubeProxy != nil && n.KubeProxy.Mode != "" {
		return n.KubeProxy.Mode
	}
	mode := ""
	for _, other := range s.Nodes {
		for i := range other.Dumps {
			d := &other.Dumps[i]
			if d.DataPlane != facts.PlaneKubeProxy || d.Silent != "" || len(d.Frontends) == 0 {
				continue
			}
			of := modeOfSource(d.Source)
			if mode != "" && mode != of {
				return ""
			}
			mode = of
		}
	}
	return mode
}

// replaced says that another proxy serves the node.
func replaced(n *facts.Node) bool {
	return n.Fairlead != nil || n.Cilium != nil ||
		slices.ContainsFunc(n.Dumps, func(d facts.Dump) bool { return d.DataPlane != facts.PlaneKubeProxy })
}

// podsOf are the running pods of kube-proxy, by node.
func podsOf(s *facts.Sample) map[string]string {
	out := map[string]string{}
	for _, p := range parts.Of(s.Objects) {
		if p.ID != "kube-proxy" {
			continue
		}
		for _, pod := range p.Pods {
			if pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil && parts.NotReady(pod) == nil {
				out[pod.Spec.NodeName] = pod.Namespace + "/" + pod.Name
			}
		}
	}
	return out
}

// served are the families of the Services' addresses; both if they are not
// known.
func served(s *facts.Sample) (out []model.Family) {
	if !known(s) {
		return []model.Family{model.IPv4, model.IPv6}
	}
	for _, service := range s.Objects.Services {
		for _, text := range service.Spec.ClusterIPs {
			if ip, err := netip.ParseAddr(text); err == nil {
				out = append(out, model.FamilyOf(ip))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
