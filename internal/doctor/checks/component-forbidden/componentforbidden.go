// SPDX-License-Identifier: Apache-2.0

// Package componentforbidden finds components that say in their logs that the
// API server refuses them something.
package componentforbidden

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/doctor/parts"
	"github.com/fairlead-io/fairlead/internal/printable"
	"github.com/fairlead-io/fairlead/internal/rbac"
)

//go:embed README.md
var page string

// Check finds what the API server refuses to components. It has the rank of what
// follows from permissions, and stands between them and what they break.
func Check() doctor.Check {
	return doctor.Check{
		ID: "component-forbidden", Title: "components whose logs say that the API server refuses them something", Rank: doctor.RankReach,
		Page: page, Case: find,
	}
}

// refusals are what one user was refused.
type refusals struct {
	user     string
	part     parts.Part
	isPart   bool
	requests []rbac.Request
	lines    map[*facts.Log][]string
	logs     []*facts.Log // in the order in which they speak
	nodes    []string
	dated    bool
}

func find(c *facts.Case) []doctor.Finding {
	permissions := parts.PermissionsOf(c)
	known := parts.Of(permissions.Objects)
	byUser := map[string]*refusals{}
	for _, l := range c.Logs {
		lines, dated := parts.Recent(c, l)
		for _, line := range lines {
			d, found := rbac.ParseDenial(line.Text)
			if !found || !itsOwn(l, d.User) || over(permissions, d) {
				continue
			}
			r := byUser[d.User]
			if r == nil {
				r = &refusals{user: d.User, lines: map[*facts.Log][]string{}}
				r.part, r.isPart = parts.Speaker(known, l)
				byUser[d.User] = r
			}
			r.take(l, line, d, dated)
		}
	}
	var out []doctor.Finding
	for _, r := range byUser {
		out = append(out, r.finding(permissions.Objects))
	}
	slices.SortFunc(out, func(a, b doctor.Finding) int { return cmp.Compare(a.Subject, b.Subject) })
	return out
}

// itsOwn says whether a log is of a pod of the user's namespace: an API server
// logs what it refuses to others.
func itsOwn(l *facts.Log, user string) bool {
	namespace, account := rbac.AccountOf(user)
	return account != "" && (l.Pod == "" || strings.HasPrefix(l.Pod, namespace+"/"))
}

// over says whether what was refused is allowed by now.
func over(p *parts.Permissions, d rbac.Denial) bool {
	if d.Namespace != "" || d.Name != "" {
		return false
	}
	namespace, account := rbac.AccountOf(d.User)
	may, known := p.May(rbac.ServiceAccount(namespace, account), d.Request)
	return known && may
}

const excerptLines = 3

func (r *refusals) take(l *facts.Log, line facts.Line, d rbac.Denial, dated bool) {
	r.dated = r.dated || dated
	if !slices.Contains(r.logs, l) {
		r.logs = append(r.logs, l)
	}
	if l.Node != "" && !slices.Contains(r.nodes, l.Node) {
		r.nodes = append(r.nodes, l.Node)
	}
	if slices.Contains(r.requests, d.Request) {
		if len(r.lines[l]) == 0 {
			r.lines[l] = []string{line.Text}
		}
		return
	}
	r.requests = append(r.requests, d.Request)
	if len(r.lines[l]) < excerptLines {
		r.lines[l] = append(r.lines[l], line.Text)
	}
}

func (r *refusals) finding(o *facts.Objects) doctor.Finding {
	namespace, account := rbac.AccountOf(r.user)
	name := namespace + "/" + account
	slices.Sort(r.nodes)
	slices.SortFunc(r.requests, func(a, b rbac.Request) int { return cmp.Compare(a.String(), b.String()) })
	f := doctor.Finding{
		Severity: doctor.Warning, Layer: doctor.LayerAPI, Subject: "ServiceAccount " + name, Nodes: r.nodes,
		Title:   fmt.Sprintf("the API server refuses %s: %s", name, rbac.Summary(r.requests)),
		Detail:  []string{"It asks again and again, and goes on with what it knew before."},
		RestsOn: []string{doctor.Permission(name)},
		Certain: r.dated,
	}
	if r.isPart && slices.ContainsFunc(r.requests, func(q rbac.Request) bool { return slices.Contains(r.part.Requests(), q) }) {
		f.Severity = doctor.Critical
		f.Detail = append(f.Detail, fmt.Sprintf("%s cannot do without: it does not get %s.", r.part.Title, r.part.Loses))
		f.Breaks = []string{doctor.Permission(name)}
	}
	const mostLogs = 3
	for _, l := range r.logs[:min(len(r.logs), mostLogs)] {
		f.Evidence = append(f.Evidence, doctor.Excerpt(l.Record, r.lines[l]...))
	}
	if release, of := r.release(o, namespace, account); of {
		f.Remedy = append(f.Remedy, release.Restore())
	}
	f.Remedy = append(f.Remedy, doctor.Remedy{Text: "See what it may do, and let its installer put its role and binding back.", Commands: []string{
		printable.Command("kubectl", "auth", "can-i", "--list", "--as", r.user),
		printable.Command("kubectl", "auth", "can-i", r.requests[0].Verb, rbac.GroupResource(r.requests[0].Group, r.requests[0].Resource), "--as", r.user, "--all-namespaces"),
	}})
	return f
}

// release is that of the component, or of whoever else the account is for.
func (r *refusals) release(o *facts.Objects, namespace, account string) (parts.Release, bool) {
	part := r.part
	if !r.isPart {
		part = parts.Part{Namespace: namespace, Account: account}
	}
	return part.Release(o)
}
