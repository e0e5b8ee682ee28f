// SPDX-License-Identifier: Apache-2.0

// Package cutoff finds components of the network that cannot reach the API
// server.
package cutoff

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/doctor/parts"
	"github.com/fairlead-io/fairlead/internal/evidence"
	"github.com/fairlead-io/fairlead/internal/printable"
)

//go:embed README.md
var page string

// Check finds components that cannot reach the API server.
func Check() doctor.Check {
	return doctor.Check{
		ID: "cut-off", Title: "components of the network that cannot reach the API server", Rank: doctor.RankReach,
		Page: page, Case: find,
	}
}

// cut is one component on one node that does not reach the API server.
type cut struct {
	id               string // of the component's kind
	component, title string
	node             string
	address          string    // "" if the evidence does not name it
	problem          string    // in the kernel's words
	said             time.Time // when a log said so last; zero if it does not say
	evidence         doctor.Evidence
	lasts            bool // it is no matter of a moment
}

func find(c *facts.Case) []doctor.Finding {
	s := cmp.Or(c.Last(), &facts.Sample{})
	objects := parts.Objects(c)
	known := parts.Of(objects)
	addresses := addressesOf(cmp.Or(s.Objects, objects))
	var cuts []cut
	take := func(n cut) {
		i := slices.IndexFunc(cuts, func(o cut) bool { return o.component == n.component && o.node == n.node })
		if i < 0 {
			cuts = append(cuts, n)
			return
		}
		cuts[i].lasts = cuts[i].lasts || n.lasts
	}
	for _, l := range c.Logs {
		if n, found := fromLog(c, known, addresses, l); found && !over(c, n) {
			take(n)
		}
	}
	for _, node := range s.Nodes {
		if n, found := fromStatus(known, node); found {
			n.lasts = saysSoBefore(c, known, node.Name)
			take(n)
		}
	}
	out := make([]doctor.Finding, 0, len(cuts))
	for i := range cuts {
		out = append(out, cuts[i].finding(cmp.Or(s.Objects, objects), addresses))
	}
	return out
}

// over says whether an agent that logged so has said since that it reaches the API
// server: one that was started anew leaves such lines behind.
func over(c *facts.Case, n cut) bool {
	return !n.said.IsZero() && slices.ContainsFunc(c.Samples, func(s *facts.Sample) bool {
		node := s.Node(n.node)
		return node != nil && reachedSince(node, n)
	})
}

func reachedSince(node *facts.Node, n cut) bool {
	if c := node.Cilium; n.id == "cilium-agent" && c != nil && c.Status != nil {
		return strings.EqualFold(c.Status.Kubernetes, "ok") && c.StatusRecord.Time.After(n.said)
	}
	if f := node.Fairlead; n.id == "fairlead" && f != nil && f.Status != nil && f.Status.APIServer != nil {
		return f.Status.APIServer.Current != "" && hears(f.Status) && f.StatusRecord.Time.After(n.said)
	}
	return false
}

// saysSoBefore says whether an agent said the same of itself in an earlier
// sample.
func saysSoBefore(c *facts.Case, known []parts.Part, node string) bool {
	return slices.ContainsFunc(c.Samples[:len(c.Samples)-1], func(s *facts.Sample) bool {
		n := s.Node(node)
		if n == nil {
			return false
		}
		_, cut := fromStatus(known, n)
		return cut
	})
}

// fromLog finds the last fresh line that says so.
func fromLog(c *facts.Case, known []parts.Part, addresses map[string]string, l *facts.Log) (cut, bool) {
	p, is := parts.Speaker(known, l)
	if !is || p.ID == "coredns" || p.ID == "node-local-dns" { // they are dns-chain's
		return cut{}, false
	}
	lines, _ := parts.Recent(c, l)
	var failed []facts.Line
	var address, problem string
	var said time.Time
	for _, line := range lines {
		if a, p, found := Failure(line.Text); found && isAPI(addresses, a, line.Text) {
			failed, address, problem, said = append(failed, line), a, p, line.Time
		}
	}
	if len(failed) == 0 {
		return cut{}, false
	}
	pod := parts.Pod(parts.Objects(c), l)
	return cut{
		component: p.Name(), title: p.Title, id: p.ID, node: l.Node, address: address, problem: problem, said: said,
		evidence: doctor.Excerpt(l.Record, failed[len(failed)-1].Text),
		lasts:    parts.Lasts(failed) || pod != nil && parts.Crashes(pod) != nil,
	}, true
}

// isAPI says whether a failure was on the way to the API server: by its
// address, or by what was asked for there.
func isAPI(addresses map[string]string, address, line string) bool {
	if _, known := addresses[address]; known {
		return true
	}
	return strings.Contains(line, "https://"+address+"/api") || strings.Contains(line, "https://"+address+"/version")
}

// fromStatus finds what agents say of themselves.
func fromStatus(known []parts.Part, n *facts.Node) (cut, bool) {
	if c := n.Cilium; c != nil && c.Status != nil && kubernetesFails(c.Status.Kubernetes) {
		line := "Kubernetes: " + strings.TrimSpace(c.Status.Kubernetes+" "+c.Status.KubernetesDetail)
		return fromLine(named(known, "cilium-agent", "Cilium's agent", "kube-system/cilium"), n.Name, line, c.StatusRecord), true
	}
	f := n.Fairlead
	if f == nil || f.Status == nil || f.Status.APIServer == nil || reaches(f.Status.APIServer) || hears(f.Status) {
		return cut{}, false
	}
	line := "the agent is connected to no API server"
	for _, e := range f.Status.APIServer.Endpoints {
		if e.Error != "" {
			line = e.URL + ": " + e.Error
			break
		}
	}
	return fromLine(named(known, "fairlead", "Fairlead's agent", "kube-system/fairlead"), n.Name, line, f.StatusRecord), true
}

// kubernetesFails tells a failure from an agent that has no Kubernetes.
func kubernetesFails(state string) bool {
	state = strings.ToLower(state)
	return strings.HasPrefix(state, "fail") || strings.HasPrefix(state, "err")
}

// reaches says whether the API server answers where an agent is with it. An
// agent stays with the last endpoint while none answers.
func reaches(way *api.APIServer) bool {
	return way.Current != "" && !slices.ContainsFunc(way.Endpoints, func(e api.APIEndpoint) bool {
		return e.URL == way.Current && (e.State == api.EndpointSilent || e.State == api.EndpointForeign)
	})
}

// hears says whether the agent follows all that it follows.
func hears(s *api.Status) bool {
	return len(s.SourceState) > 0 && !slices.ContainsFunc(s.SourceState, func(k api.SourceStatus) bool { return k.Stale || !k.Synced })
}

func fromLine(of cut, node, line string, r *evidence.Record) cut {
	of.node = node
	of.address, of.problem, _ = Failure(line)
	if of.problem == "" {
		of.problem = "it does not answer"
	}
	of.evidence = doctor.Excerpt(r, line)
	return of
}

// named is a component by its id, under the name that it has in this cluster.
func named(known []parts.Part, id, title, usual string) cut {
	for _, p := range known {
		if p.ID == id {
			return cut{component: p.Name(), title: title}
		}
	}
	return cut{component: usual, title: title}
}

func (n *cut) finding(o *facts.Objects, addresses map[string]string) doctor.Finding {
	service := addresses[n.address]
	f := doctor.Finding{
		Severity: doctor.Critical, Layer: doctor.LayerConnection, Subject: n.component,
		Title:    fmt.Sprintf("%s (%s) cannot reach the API server: %s", n.title, n.component, n.problem),
		Detail:   []string{"It goes on with what it knew, and hears of no change any more."},
		Evidence: []doctor.Evidence{n.evidence},
		RestsOn:  []string{doctor.Loop(n.component, n.node)},
		Breaks:   []string{doctor.Reach(n.component, n.node)},
		Certain:  n.lasts,
	}
	if n.node != "" {
		f.Nodes = []string{n.node}
	}
	if n.address != "" {
		f.Title = fmt.Sprintf("%s (%s) cannot reach the API server at %s: %s", n.title, n.component, n.address, n.problem)
	}
	if service != "" {
		f.Detail = append(f.Detail, fmt.Sprintf("%s is an address of the Service %s.", n.address, service))
		f.RestsOn = append(f.RestsOn, doctor.Backends(service, n.node))
	}
	if n.problem == notPermitted {
		f.Detail = append(f.Detail, "A program or a rule on the node itself says no before a packet leaves: to an eBPF proxy the Service has no backends.")
	}
	f.Remedy = remedy(o, n)
	return f
}

// remedy tries the API server's own addresses.
func remedy(o *facts.Objects, n *cut) []doctor.Remedy {
	out := doctor.Remedy{Text: "Try the API server from the node: at the address that fails, and at its own, where no Service stands in the way."}
	if n.address != "" {
		out.Commands = append(out.Commands, ready(n.address))
	}
	for _, own := range ownAddresses(o) {
		if own == n.address {
			continue
		}
		out.Commands = append(out.Commands, ready(own))
	}
	return []doctor.Remedy{out}
}

// ready asks an API server at an address whether it is.
func ready(address string) string {
	return printable.Command("curl", "-sk", "--max-time", "5", "https://"+address+"/readyz")
}
