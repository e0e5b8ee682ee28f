// SPDX-License-Identifier: Apache-2.0

package rbacmissing

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/doctor/parts"
	"github.com/fairlead-io/fairlead/internal/printable"
	"github.com/fairlead-io/fairlead/internal/rbac"
)

// fault is what is wrong with a part's role and binding.
type fault struct {
	role, binding     rbac.Ref // those that should be there
	noRole, noBinding bool
	known             bool // whether it is known which of them are missing
	bindingSpokenFor  bool // there is such a binding, for others
}

// faultOf finds out whether a role or a binding is missing, or only a rule.
func (k *known) faultOf(p *parts.Part, lacking []rbac.Request) fault {
	f := fault{role: rbac.Ref{Kind: "ClusterRole", Name: p.Role}, binding: rbac.Ref{Kind: "ClusterRoleBinding", Name: p.Binding}}
	if k.Policy == nil {
		return k.faultOfLogs(p, f, lacking)
	}
	f.known = true
	own := k.bindings(p)
	for _, b := range own {
		if b.Missing {
			f.role, f.binding, f.noRole = b.Role, b.Ref, true
			return f
		}
	}
	if grant, some := k.someGrant(p); some {
		f.role, f.binding = grant.Role, grant.Binding
		return f
	}
	f.noRole = !k.Policy.Exists(f.role)
	f.noBinding = !slices.ContainsFunc(own, func(b rbac.Binding) bool { return b.Role == f.role })
	f.bindingSpokenFor = f.noBinding && k.Policy.Exists(f.binding)
	return f
}

// bindings are those of the cluster that name the part's account itself: what
// groups are bound to is for everybody.
func (k *known) bindings(p *parts.Part) []rbac.Binding {
	return slices.DeleteFunc(k.Policy.Bindings(rbac.User{Name: p.User().Name}), func(b rbac.Binding) bool { return b.Ref.Namespace != "" })
}

// someGrant is why the part may do a thing that it needs, whatever its role is
// called here.
func (k *known) someGrant(p *parts.Part) (rbac.Grant, bool) {
	for _, r := range p.Requests() {
		if grant, may := k.Policy.May(p.User(), r); may {
			return grant, true
		}
	}
	return rbac.Grant{}, false
}

// faultOfLogs knows of a role that is gone if the API server's refusals name it.
func (k *known) faultOfLogs(p *parts.Part, f fault, lacking []rbac.Request) fault {
	for _, r := range lacking {
		if d, denied := k.denials[parts.Asked{User: p.User().Name, Request: r}]; denied && len(d.missing) > 0 {
			f.role, f.noRole, f.known = d.missing[0], true, true
		}
	}
	return f
}

// why is the fault in words; "" if roles and bindings are all there.
func (f *fault) why(p *parts.Part) string {
	switch {
	case !f.known:
		return ""
	case f.noRole && f.noBinding && !f.bindingSpokenFor:
		return fmt.Sprintf("%s and %s do not exist", f.role, f.binding)
	case f.noRole && !f.noBinding:
		return fmt.Sprintf("%s does not exist, and a binding names it", f.role)
	case f.noRole:
		return fmt.Sprintf("%s does not exist", f.role)
	case f.noBinding:
		return fmt.Sprintf("no ClusterRoleBinding gives %s to %s", f.role, p.Name())
	}
	return fmt.Sprintf("no rule of %s allows it", f.role)
}

func (k *known) finding(p *parts.Part, lacking []rbac.Request) doctor.Finding {
	fault := k.faultOf(p, lacking)
	what, loses := "may not "+rbac.Summary(lacking), "It does not hear of what changes there."
	if len(lacking) == len(p.Requests()) {
		what, loses = "may do nothing of what it needs", fmt.Sprintf("It does not get %s.", p.Loses)
	}
	title := fmt.Sprintf("%s (%s) %s", p.Title, p.Name(), what)
	if why := fault.why(p); why != "" {
		title += ": " + why
	}
	return doctor.Finding{
		Severity: doctor.Critical, Layer: doctor.LayerAPI, Subject: "ServiceAccount " + p.Name(), Nodes: p.Nodes(),
		Title: title,
		Detail: []string{
			loses,
			"What it knew before it goes on with, so its pods are Running, and what breaks are things that are new.",
		},
		Evidence: k.evidence(p, &fault, lacking),
		Remedy:   k.remedy(p, &fault, lacking),
		Breaks:   []string{doctor.Permission(p.Name())},
		Certain:  true,
	}
}

const excerptLines = 4

func (k *known) evidence(p *parts.Part, f *fault, lacking []rbac.Request) []doctor.Evidence {
	var out []doctor.Evidence
	if k.Policy != nil {
		out = append(out, k.lists(p, f)...)
	}
	if e, has := k.answers(p, lacking); has {
		out = append(out, e)
	}
	if e, has := k.lines(p); has {
		out = append(out, e)
	}
	return out
}

// lists are what the lists of roles and bindings show.
func (k *known) lists(p *parts.Part, f *fault) []doctor.Evidence {
	roles := k.Objects.List("clusterroles.rbac.authorization.k8s.io")
	bindings := k.Objects.List("clusterrolebindings.rbac.authorization.k8s.io")
	role := fmt.Sprintf("none of %d is named %s", len(k.Objects.ClusterRoles), f.role.Name)
	if !f.noRole {
		role = fmt.Sprintf("%s is there", f.role.Name)
	}
	bound := fmt.Sprintf("none of %d names the account %s", len(k.Objects.ClusterRoleBindings), p.Name())
	var names []string
	for _, b := range k.bindings(p) {
		names = append(names, fmt.Sprintf("%s binds it to %s", b.Ref, b.Role))
	}
	if len(names) > 0 {
		bound = strings.Join(names[:min(len(names), excerptLines)], "\n")
	}
	return []doctor.Evidence{doctor.Excerpt(roles, role), doctor.Excerpt(bindings, bound)}
}

// answers are what the API server said to reviews.
func (k *known) answers(p *parts.Part, lacking []rbac.Request) (doctor.Evidence, bool) {
	var lines []string
	var first facts.Access
	for _, r := range lacking {
		if a, has := k.Review(parts.Asked{User: p.User().Name, Request: r}); has {
			if lines == nil {
				first = a
			}
			lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s as %s: no %s", r, a.User, a.Reason)))
		}
	}
	if lines == nil {
		return doctor.Evidence{}, false
	}
	return doctor.Excerpt(first.Record, lines[:min(len(lines), excerptLines)]...), true
}

// lines are what the part itself logged.
func (k *known) lines(p *parts.Part) (doctor.Evidence, bool) {
	var all []denial
	for key, d := range k.denials {
		if key.User == p.User().Name {
			all = append(all, d)
		}
	}
	if all == nil {
		return doctor.Evidence{}, false
	}
	slices.SortFunc(all, func(a, b denial) int {
		if a.log != b.log {
			return strings.Compare(a.log.Record.Path, b.log.Record.Path)
		}
		return a.line.Number - b.line.Number
	})
	var lines []string
	for _, d := range all {
		if d.log == all[0].log && len(lines) < excerptLines {
			lines = append(lines, d.line.Text)
		}
	}
	return doctor.Excerpt(all[0].log.Record, lines...), true
}

func (k *known) remedy(p *parts.Part, f *fault, lacking []rbac.Request) []doctor.Remedy {
	out := k.restore(p, f)
	out = append(out, doctor.Remedy{Text: "Put back as much as gets it going, for this account alone.", Commands: []string{apply(k.manifest(p, f, lacking))}}, k.repair(p))
	if restart := p.Restart(); restart != "" {
		out = append(out, doctor.Remedy{Text: "Start it anew, and wait until it runs.", Commands: []string{restart, strings.Replace(restart, "rollout restart", "rollout status", 1)}})
	}
	return out
}

// restore puts back, from where it is known, what is missing as a whole. What
// lacks a rule only is there, and left alone.
func (k *known) restore(p *parts.Part, f *fault) []doctor.Remedy {
	whole := f.noRole || f.noBinding || !f.known
	release, of := p.Release(k.Objects)
	switch {
	case of && whole:
		return []doctor.Remedy{release.Restore()}
	case of:
		return []doctor.Remedy{release.Compare()}
	}
	if recorded, has := parts.RestoreRecorded(k.c, f.role, f.binding); has && whole {
		return []doctor.Remedy{recorded}
	}
	return nil
}

func apply(manifest string) string { return "kubectl apply --filename - <<'EOF'\n" + manifest + "EOF" }

// manifest is what is missing. A role or a binding that is there is left alone:
// to apply it would take away what it gives to others.
func (k *known) manifest(p *parts.Part, f *fault, lacking []rbac.Request) string {
	role, binding := f.role.Name, f.binding.Name
	if !f.noRole && !f.noBinding {
		role, binding = role+"-restored", binding+"-restored"
		return rbac.RoleManifest(role, rbac.Rules(lacking)) + "---\n" + rbac.BindingManifest(binding, role, p.Namespace, p.Account)
	}
	if f.bindingSpokenFor {
		binding += "-restored"
	}
	var all []string
	if f.noRole {
		all = append(all, rbac.RoleManifest(role, p.Restoration()))
	}
	if f.noBinding {
		all = append(all, rbac.BindingManifest(binding, role, p.Namespace, p.Account))
	}
	return strings.Join(all, "---\n")
}

// repair is what its installer does; of a chart only the version that runs.
func (k *known) repair(p *parts.Part) doctor.Remedy {
	command := strings.ReplaceAll(p.Repair, "NAMESPACE", p.Namespace)
	if !strings.Contains(command, "VERSION") {
		return doctor.Remedy{Text: "Let its installer put back the whole, and what other components lost.", Commands: []string{command}}
	}
	version := imageVersion(p)
	if version == "" {
		return doctor.Remedy{
			Text:     "Let its Helm release put back the whole, in the version that is installed: helm upgrade RELEASE CHART --version VERSION --reuse-values.",
			Commands: []string{printable.Command("helm", "list", "--namespace", p.Namespace)},
		}
	}
	return doctor.Remedy{Text: "Let its Helm release put back the whole, in the version that runs.", Commands: []string{strings.ReplaceAll(command, "VERSION", version)}}
}

var tag = regexp.MustCompile(`:v?(\d+\.\d+\.\d+)(?:@|$)`)

// imageVersion is the version of the image that the part runs.
func imageVersion(p *parts.Part) string {
	if m := tag.FindStringSubmatch(p.Image()); m != nil {
		return m[1]
	}
	return ""
}
