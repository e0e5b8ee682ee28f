// SPDX-License-Identifier: Apache-2.0

// Package rbac says who may do what, from the objects of Kubernetes'
// role-based access control, and what the components of a cluster's network
// cannot do without.
//
// It evaluates objects as the API server's authorizer does, and changes none.
// Where the objects come from may not enter, nor other authorizers: that
// nothing here allows a request does not say that the API server refuses it.
package rbac

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// masters is the group to which the API server denies nothing, whatever the
// objects say.
const masters = "system:masters"

// User is somebody who makes requests, as the API server sees him.
type User struct {
	Name   string
	Groups []string
}

// ServiceAccount is the user that a pod with this service account is.
func ServiceAccount(namespace, name string) User {
	return User{
		Name:   "system:serviceaccount:" + namespace + ":" + name,
		Groups: []string{"system:authenticated", "system:serviceaccounts", "system:serviceaccounts:" + namespace},
	}
}

// AccountOf is the namespace and the name of the service account that a user
// is; empty if he is none.
func AccountOf(user string) (namespace, name string) {
	rest, is := strings.CutPrefix(user, "system:serviceaccount:")
	if !is {
		return "", ""
	}
	namespace, name, _ = strings.Cut(rest, ":")
	return namespace, name
}

// Request is one thing that a user wants to do to a resource.
type Request struct {
	Verb     string
	Group    string // "" is the core group
	Resource string // also RESOURCE/SUBRESOURCE
	// Namespace is "" for a resource that has none, and for all namespaces.
	Namespace string
	Name      string // "" for all, and for one that is yet to be made
}

// String is as people say it: list endpointslices.discovery.k8s.io.
func (r Request) String() string {
	s := r.Verb + " " + GroupResource(r.Group, r.Resource)
	if r.Name != "" {
		s += fmt.Sprintf(" %q", r.Name)
	}
	if r.Namespace != "" {
		s += " in " + r.Namespace
	}
	return s
}

// GroupResource names a resource as kubectl does: RESOURCE[.GROUP][/SUBRESOURCE].
func GroupResource(group, resource string) string {
	if group == "" {
		return resource
	}
	resource, sub, has := strings.Cut(resource, "/")
	if !has {
		return resource + "." + group
	}
	return resource + "." + group + "/" + sub
}

// Ref names a role or a binding. Namespace is "" for those of the cluster.
type Ref struct {
	Kind, Namespace, Name string
}

// String is KIND NAME, or KIND NAMESPACE/NAME.
func (r Ref) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// Binding gives a user the rules of a role.
type Binding struct {
	Ref  Ref
	Role Ref
	// Missing is that there is no such role, so that the binding gives nothing.
	Missing bool

	rules []rbacv1.PolicyRule
}

// Grant is why a request is allowed. It is empty for who is allowed everything.
type Grant struct {
	Binding Ref
	Role    Ref
	Rule    rbacv1.PolicyRule
}

// Policy is what a set of objects allows. It keeps no part of them but rules
// and subjects.
type Policy struct {
	roles     map[Ref][]rbacv1.PolicyRule
	bySubject map[rbacv1.Subject][]Binding // kind, name, and of accounts the namespace
	byRole    map[Ref][]Ref                // the bindings to it
	subjects  map[Ref][]rbacv1.Subject     // of a binding

	gone    map[Ref]bool                // roles and bindings that do not count
	changed map[Ref][]rbacv1.PolicyRule // roles with other rules than those in roles
}

// New makes a policy of objects. The rules of an aggregated ClusterRole are
// those that stand in it, as for the API server.
func New(roles []*rbacv1.Role, roleBindings []*rbacv1.RoleBinding, clusterRoles []*rbacv1.ClusterRole, clusterRoleBindings []*rbacv1.ClusterRoleBinding) *Policy {
	p := &Policy{
		roles: map[Ref][]rbacv1.PolicyRule{}, bySubject: map[rbacv1.Subject][]Binding{},
		byRole: map[Ref][]Ref{}, subjects: map[Ref][]rbacv1.Subject{},
	}
	for _, r := range roles {
		p.roles[Ref{"Role", r.Namespace, r.Name}] = r.Rules
	}
	for _, r := range clusterRoles {
		p.roles[Ref{"ClusterRole", "", r.Name}] = r.Rules
	}
	for _, b := range clusterRoleBindings {
		p.bind(Ref{"ClusterRoleBinding", "", b.Name}, b.RoleRef, b.Subjects)
	}
	for _, b := range roleBindings {
		p.bind(Ref{"RoleBinding", b.Namespace, b.Name}, b.RoleRef, b.Subjects)
	}
	return p
}

func (p *Policy) bind(binding Ref, to rbacv1.RoleRef, subjects []rbacv1.Subject) {
	role := Ref{Kind: to.Kind, Name: to.Name}
	if to.Kind == "Role" {
		role.Namespace = binding.Namespace
	}
	rules, exists := p.roles[role]
	b := Binding{Ref: binding, Role: role, Missing: !exists, rules: rules}
	p.byRole[role] = append(p.byRole[role], binding)
	p.subjects[binding] = nil
	for _, s := range subjects {
		key := rbacv1.Subject{Kind: s.Kind, Name: s.Name}
		if s.Kind == rbacv1.ServiceAccountKind {
			key.Namespace = cmp.Or(s.Namespace, binding.Namespace)
		}
		p.bySubject[key] = append(p.bySubject[key], b)
		p.subjects[binding] = append(p.subjects[binding], key)
	}
}

// Without is the policy without some of its roles and bindings, and with other
// rules in some ClusterRoles. It costs as much as these, and not as the policy.
func (p *Policy) Without(gone map[Ref]bool, changed []*rbacv1.ClusterRole) *Policy {
	out := *p
	out.gone, out.changed = maps.Clone(p.gone), maps.Clone(p.changed)
	if out.gone == nil {
		out.gone = map[Ref]bool{}
	}
	maps.Copy(out.gone, gone)
	if out.changed == nil {
		out.changed = map[Ref][]rbacv1.PolicyRule{}
	}
	for _, r := range changed {
		out.changed[Ref{Kind: "ClusterRole", Name: r.Name}] = r.Rules
	}
	return &out
}

// Exists says whether there is such a role or binding.
func (p *Policy) Exists(r Ref) bool {
	_, role := p.roles[r]
	_, binding := p.subjects[r]
	return (role || binding) && !p.gone[r]
}

// Subjects are all that some binding names, in order: kind and name, and of
// service accounts the namespace.
func (p *Policy) Subjects() []rbacv1.Subject {
	var out []rbacv1.Subject
	for s := range p.bySubject {
		if len(p.naming(s)) > 0 {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, CompareSubjects)
	return out
}

// CompareSubjects orders subjects by kind, namespace and name.
func CompareSubjects(a, b rbacv1.Subject) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// SubjectsOf are those that a binding names. The slice is the Policy's.
func (p *Policy) SubjectsOf(binding Ref) []rbacv1.Subject { return p.subjects[binding] }

// BindingsTo are the bindings that name a role, whether it exists or not.
func (p *Policy) BindingsTo(role Ref) []Ref {
	return slices.DeleteFunc(slices.Clone(p.byRole[role]), func(b Ref) bool { return p.gone[b] })
}

// naming are the bindings that name a subject. The slice is not to be changed.
func (p *Policy) naming(s rbacv1.Subject) []Binding {
	all := p.bySubject[s]
	if len(p.gone) == 0 && len(p.changed) == 0 {
		return all
	}
	var out []Binding
	for _, b := range all {
		if p.gone[b.Ref] {
			continue
		}
		if rules, is := p.changed[b.Role]; is {
			b.rules = rules
		}
		if p.gone[b.Role] {
			b.Missing, b.rules = true, nil
		}
		out = append(out, b)
	}
	return out
}

// Bindings are those that name a user or one of his groups, those of the whole
// cluster first.
func (p *Policy) Bindings(u User) []Binding {
	out := slices.Clone(p.naming(rbacv1.Subject{Kind: rbacv1.UserKind, Name: u.Name}))
	if namespace, name := AccountOf(u.Name); name != "" {
		out = append(out, p.naming(rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name})...)
	}
	for _, g := range u.Groups {
		out = append(out, p.naming(rbacv1.Subject{Kind: rbacv1.GroupKind, Name: g})...)
	}
	slices.SortStableFunc(out, func(a, b Binding) int {
		return cmp.Or(cmp.Compare(a.Ref.Namespace, b.Ref.Namespace), cmp.Compare(a.Ref.Name, b.Ref.Name))
	})
	return slices.CompactFunc(out, func(a, b Binding) bool { return a.Ref == b.Ref })
}

// Rules are all rules that a user's bindings give him, each with what gives it;
// that of a RoleBinding counts in its namespace alone. Whoever is of
// system:masters needs none.
func (p *Policy) Rules(u User) []Grant {
	var out []Grant
	for _, b := range p.Bindings(u) {
		for _, rule := range b.rules {
			out = append(out, Grant{b.Ref, b.Role, rule})
		}
	}
	return out
}

// May says whether a user may do something, and what allows it.
func (p *Policy) May(u User, r Request) (Grant, bool) {
	if slices.Contains(u.Groups, masters) {
		return Grant{}, true
	}
	for _, b := range p.Bindings(u) {
		for _, rule := range b.rules {
			if g := (Grant{b.Ref, b.Role, rule}); g.allows(r) {
				return g, true
			}
		}
	}
	return Grant{}, false
}

func (g *Grant) allows(r Request) bool {
	return (g.Binding.Namespace == "" || g.Binding.Namespace == r.Namespace) && allows(g.Rule, r)
}

func allows(rule rbacv1.PolicyRule, r Request) bool {
	return contains(rule.Verbs, r.Verb) && contains(rule.APIGroups, r.Group) && covers(rule.Resources, r.Resource) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, r.Name))
}

func contains(list []string, s string) bool {
	return slices.Contains(list, "*") || slices.Contains(list, s)
}

// covers says whether a rule's resources take one in: a resource does not take
// in its subresources, and */SUB is that subresource of all.
func covers(list []string, resource string) bool {
	if contains(list, resource) {
		return true
	}
	_, sub, has := strings.Cut(resource, "/")
	return has && slices.Contains(list, "*/"+sub)
}
