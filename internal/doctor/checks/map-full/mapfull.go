// SPDX-License-Identifier: Apache-2.0

// Package mapfull finds tables of a data plane in the kernel that are nearly
// full.
package mapfull

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
)

//go:embed README.md
var page string

// Check finds maps that are nearly full.
func Check() doctor.Check {
	return doctor.Check{
		ID: "map-full", Title: "maps of a data plane in the kernel that are nearly full", Rank: doctor.RankKernel,
		Page: page, Sample: find,
	}
}

// nearly is from where on a map is named, full from where on nothing may fit.
const (
	nearly = 0.90
	full   = 0.995
)

func find(s *facts.Sample) []doctor.Finding {
	var out []doctor.Finding
	for _, n := range s.Nodes {
		if n.Fairlead != nil && n.Fairlead.Status != nil {
			out = append(out, fairlead(n)...)
		}
		if n.Cilium != nil && n.Cilium.MetricsRecord != nil {
			out = append(out, cilium(n)...)
		}
	}
	return out
}

// forgets are Fairlead's maps that throw out the oldest when they are full.
var forgets = map[string]bool{
	"fairlead_affinity": true, "fairlead_udp": true, "fairlead_flows": true, "fairlead_datagrams": true, "fairlead_embryos": true,
}

// flags are those that make a map of Fairlead's larger.
var flags = map[string]string{
	"fairlead_frontends": "--max-frontends", "fairlead_sets": "--max-sets", "fairlead_backends": "--max-backends",
	"fairlead_affinity": "--max-affinity", "fairlead_udp": "--max-udp-pairs", "fairlead_flows": "--max-flows", "fairlead_datagrams": "--max-flows", "fairlead_embryos": "--max-flows",
}

func fairlead(n *facts.Node) []doctor.Finding {
	var out []doctor.Finding
	for _, m := range n.Fairlead.Status.Maps {
		if m.Capacity == 0 {
			continue
		}
		pressure := float64(m.Used) / float64(m.Capacity)
		if pressure < nearly || forgets[m.Name] && m.Evictions == 0 {
			continue
		}
		f := common(n.Name, m.Name, pressure, forgets[m.Name])
		f.Evidence = []doctor.Evidence{doctor.Excerpt(n.Fairlead.StatusRecord, fmt.Sprintf("%s: used %d of %d, evictions %d", m.Name, m.Used, m.Capacity, m.Evictions))}
		f.Remedy = []doctor.Remedy{{
			Text:     fmt.Sprintf("Start the agent with a larger %s: it fills new maps beside the old ones and switches over.", flags[m.Name]),
			Commands: []string{fmt.Sprintf("fairlead agent %s %d", flags[m.Name], m.Capacity*2)},
		}}
		out = append(out, f)
	}
	return out
}

// options are Cilium's that make its maps larger, by how their names begin.
var options = []struct{ prefix, option string }{
	{"lb", "bpf-lb-map-max"}, {"ct", "bpf-ct-global-tcp-max and bpf-ct-global-any-max"}, {"snat", "bpf-nat-global-max"},
	{"nodeport_neigh", "bpf-neigh-global-max"}, {"policy", "bpf-policy-map-max"},
}

// recent are Cilium's maps that throw out the oldest when they are full, by how
// their names begin. That they fill up is usual.
var recent = []string{"ct", "snat", "nodeport_neigh", "lb4_affinity", "lb6_affinity", "lb4_reverse_sk", "lb6_reverse_sk"}

func cilium(n *facts.Node) []doctor.Finding {
	var out []doctor.Finding
	for _, name := range slices.Sorted(maps.Keys(n.Cilium.MapPressure)) {
		pressure := n.Cilium.MapPressure[name]
		if pressure < nearly {
			continue
		}
		plain := strings.TrimPrefix(name, "cilium_")
		forgets := slices.ContainsFunc(recent, func(prefix string) bool { return strings.HasPrefix(plain, prefix) })
		f := common(n.Name, name, pressure, forgets)
		f.Evidence = []doctor.Evidence{doctor.Excerpt(n.Cilium.MetricsRecord, fmt.Sprintf("cilium_bpf_map_pressure{map_name=%q} %g", name, pressure))}
		f.Remedy = []doctor.Remedy{{Text: "Make it larger with an option of the ConfigMap cilium-config, and restart the agents."}}
		for _, o := range options {
			if strings.HasPrefix(plain, o.prefix) {
				f.Remedy[0].Text = fmt.Sprintf("Make it larger with %s in the ConfigMap cilium-config, and restart the agents.", o.option)
				break
			}
		}
		f.Remedy[0].Commands = []string{"kubectl --namespace kube-system edit configmap cilium-config", "kubectl --namespace kube-system rollout restart daemonset/cilium"}
		out = append(out, f)
	}
	return out
}

func common(node, name string, pressure float64, forgets bool) doctor.Finding {
	f := doctor.Finding{
		Severity: doctor.Warning, Layer: doctor.LayerKernel, Subject: "map " + name, Nodes: nodesOf(node),
		Title:  fmt.Sprintf("the map %s is nearly full", name),
		Detail: []string{fmt.Sprintf("It is %.0f %% full.", pressure*100), "Once it is full, what is new is not taken: it fails, and what was there goes on."},
	}
	if forgets {
		f.Detail[1] = "It throws out the oldest to take what is new, so connections that are open may break at random."
	}
	if pressure >= full && !forgets {
		f.Severity = doctor.Critical
		f.Title = fmt.Sprintf("the map %s is full", name)
	}
	return f
}

func nodesOf(node string) []string {
	if node == "" {
		return nil
	}
	return []string{node}
}
