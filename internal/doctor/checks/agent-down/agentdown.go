// SPDX-License-Identifier: Apache-2.0

// Package agentdown finds agents of data planes that do not answer, or are not
// healthy, while what they wrote is still in the kernel.
package agentdown

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/doctor/parts"
	"github.com/fairlead-io/fairlead/internal/evidence"
)

//go:embed README.md
var page string

// Check finds agents that nobody can talk to, or that complain.
func Check() doctor.Check {
	return doctor.Check{
		ID: "agent-down", Title: "agents of data planes that do not answer, or are not healthy", Rank: doctor.RankAgent,
		Page: page, Case: find,
	}
}

// agent is one that can be asked how it is.
type agent struct {
	plane  facts.DataPlane
	name   string // in sentences
	part   string // its id among the parts
	usual  string // NAMESPACE/SERVICEACCOUNT
	asked  evidence.Kind
	unit   string // what it is called where it is no pod
	failed func(why string) bool
}

func agents() []agent {
	any := func(string) bool { return true }
	// A connection that is refused may be refused on purpose.
	hangs := func(why string) bool { return strings.Contains(why, "deadline exceeded") }
	return []agent{
		{facts.PlaneFairlead, "Fairlead's agent", "fairlead", "kube-system/fairlead", evidence.FairleadStatus, "fairlead", any},
		{facts.PlaneCilium, "Cilium's agent", "cilium-agent", "kube-system/cilium", evidence.CiliumStatus, "cilium-agent", any},
		{facts.PlaneKubeProxy, "kube-proxy", "kube-proxy", "kube-system/kube-proxy", evidence.KubeProxyMode, "kube-proxy", hangs},
	}
}

func find(c *facts.Case) []doctor.Finding {
	var out []doctor.Finding
	for _, a := range agents() {
		out = append(out, a.silent(c)...)
	}
	return append(out, unhealthy(c)...)
}

// silent are the nodes on which it was asked in vain, each time that what it
// wrote could be read.
func (a agent) silent(c *facts.Case) []doctor.Finding {
	var order []string
	failed := map[string]map[int]facts.Unread{} // by node and sample
	for _, u := range c.Unread {
		if r := u.Record; r.Kind == a.asked && r.Error != "" && a.failed(r.Error) && !isWayThere(r.Error) {
			if failed[r.Node] == nil {
				order = append(order, r.Node)
				failed[r.Node] = map[int]facts.Unread{}
			}
			failed[r.Node][r.Sample] = u
		}
	}
	var out []doctor.Finding
	for _, node := range order {
		if f, ok := a.silentOn(c, node, failed[node]); ok {
			out = append(out, f)
		}
	}
	return out
}

func (a agent) silentOn(c *facts.Case, node string, failed map[int]facts.Unread) (doctor.Finding, bool) {
	var last facts.Unread
	times := 0
	for _, s := range c.Samples {
		if !a.wrote(s.Node(node)) {
			continue
		}
		u, silent := failed[s.Number]
		if !silent {
			return doctor.Finding{}, false // it answered, or nobody knows
		}
		last = u
		times++
	}
	if times == 0 {
		return doctor.Finding{}, false
	}
	f := a.finding(c, node, last.Record, last.Why, times)
	f.Title = a.name + " does not answer on its node"
	f.Detail = []string{"What it wrote stays in force, and connections go on. But no change gets there: an endpoint that goes away from now on keeps its share of them."}
	return f, true
}

// isWayThere says that a command was not run, so that no agent was asked: its
// pod was just replaced, or its kubelet does not answer.
func isWayThere(why string) bool {
	return slices.ContainsFunc([]string{"unable to upgrade connection", "container not found", "error dialing backend", "not found in", "pods \""}, func(words string) bool {
		return strings.Contains(why, words)
	})
}

// wrote says whether what the agent wrote into a node's kernel was read, and it
// did not answer beside.
func (a agent) wrote(n *facts.Node) bool {
	if a.plane == facts.PlaneFairlead {
		return n != nil && n.Fairlead != nil && n.Fairlead.Kernel != nil
	}
	return n != nil && slices.ContainsFunc(n.Dumps, func(d facts.Dump) bool {
		return d.DataPlane == a.plane && d.Layer == facts.Kernel && d.Silent == ""
	})
}

// youth is for how long an agent that was just started may not be healthy yet.
const youth = time.Minute

// unhealthy are Fairlead's agents that complain in each sample; whatever else
// is wrong with their tables stands in findings of its own.
func unhealthy(c *facts.Case) []doctor.Finding {
	last := c.Last()
	if last == nil {
		return nil
	}
	var out []doctor.Finding
	for _, n := range last.Nodes {
		times, well := 0, false
		for _, s := range c.Samples {
			if is := s.Node(n.Name); is != nil && is.Fairlead != nil && is.Fairlead.Status != nil {
				well = well || is.Fairlead.Status.Healthy
				times++
			}
		}
		if n.Fairlead == nil || n.Fairlead.Status == nil || well {
			continue
		}
		status, record := n.Fairlead.Status, n.Fairlead.StatusRecord
		if !status.Started.IsZero() && record.Time.Sub(status.Started) < youth {
			continue
		}
		f := agents()[0].finding(c, n.Name, record, strings.Join(append([]string{"healthy: false"}, status.Findings...), "\n"), times)
		f.Title = "Fairlead's agent says that it is not healthy"
		f.Detail = []string{"Its own words stand below. What it wrote stays in force meanwhile."}
		f.Breaks = nil
		out = append(out, f)
	}
	return out
}

func (a agent) finding(c *facts.Case, node string, record *evidence.Record, shown string, times int) doctor.Finding {
	component, remedy := a.usual, fmt.Sprintf("journalctl --unit %s --lines 50\nsystemctl restart %s", a.unit, a.unit)
	all := parts.Of(parts.Objects(c))
	if i := slices.IndexFunc(all, func(p parts.Part) bool { return p.ID == a.part }); i >= 0 {
		if all[i].Account != "" {
			component = all[i].Name()
		}
		for _, pod := range all[i].Pods {
			if pod.Spec.NodeName == node {
				remedy = doctor.Kubectl(pod.Namespace, "logs", pod.Name, "--tail", "50") + "\n" + doctor.Kubectl(pod.Namespace, "delete", "pod", pod.Name)
			}
		}
	}
	f := doctor.Finding{
		Severity: doctor.Warning, Layer: doctor.LayerAgent, Subject: component,
		Evidence: []doctor.Evidence{doctor.Excerpt(record, shown)},
		Remedy:   []doctor.Remedy{{Text: "See why, and start it again; what it wrote stays in force while it starts.", Commands: strings.Split(remedy, "\n")}},
		RestsOn:  []string{doctor.Permission(component)},
		Breaks:   []string{doctor.Reach(component, node)},
		Certain:  times > 1,
	}
	if node != "" {
		f.Nodes = []string{node}
	}
	return f
}
