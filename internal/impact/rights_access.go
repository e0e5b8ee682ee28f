// SPDX-License-Identifier: Apache-2.0

package impact

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/internal/rbac"
)

// accessKinds are the kinds of which access control is made.
var accessKinds = []schema.GroupResource{ClusterRoles, ClusterRoleBindings, Roles, RoleBindings}

// access is what the objects of access control say as they stand.
type access struct {
	policy *rbac.Policy
	roles  []*rbacv1.ClusterRole
	// aggregates says that some ClusterRole has the rules of others.
	aggregates bool
}

var accessNow = newIndex(func(s *State) access {
	a := access{roles: contentsOf[*rbacv1.ClusterRole](s, ClusterRoles)}
	a.policy = rbac.New(contentsOf[*rbacv1.Role](s, Roles), contentsOf[*rbacv1.RoleBinding](s, RoleBindings),
		a.roles, contentsOf[*rbacv1.ClusterRoleBinding](s, ClusterRoleBindings))
	a.aggregates = slices.ContainsFunc(a.roles, func(r *rbacv1.ClusterRole) bool { return r.AggregationRule != nil })
	return a
})

func contentsOf[T metav1.Object](s *State, gr schema.GroupResource) []T {
	var out []T
	for _, content := range Contents[T](s, gr) {
		out = append(out, content)
	}
	return out
}

// account is a service account by name.
type account struct{ namespace, name string }

func (a account) String() string  { return a.namespace + "/" + a.name }
func (a account) user() rbac.User { return rbac.ServiceAccount(a.namespace, a.name) }

// residents are who comes to the API server as which account.
type residents struct {
	pods map[account][]PodOf // running, and using it
	// components are those of which such pods are, as indexes of rbac.Components.
	components map[account][]int
	running    int // pods in all
}

var residentsNow = newIndex(func(s *State) residents {
	r := residents{pods: map[account][]PodOf{}, components: map[account][]int{}}
	for o, pod := range Contents[*corev1.Pod](s, Pods) {
		if !runs(pod) {
			continue
		}
		r.running++
		if !isStatic(pod) && rbac.UsesAccount(&pod.Spec) {
			r.pods[accountOf(pod)] = append(r.pods[accountOf(pod)], PodOf{o, pod})
		}
	}
	at := map[string]int{}
	for i, k := range rbac.Components() {
		at[k.ID] = i
	}
	for _, k := range s.Components() {
		for _, p := range k.Pods {
			a, i := accountOf(p.Pod), at[k.ID]
			if len(r.pods[a]) > 0 && rbac.UsesAccount(&p.Pod.Spec) && !slices.Contains(r.components[a], i) {
				r.components[a] = append(r.components[a], i)
			}
		}
	}
	return r
})

func accountOf(p *corev1.Pod) account {
	return account{p.Namespace, cmp.Or(p.Spec.ServiceAccountName, "default")}
}

// departure is what goes of access control, and what is left.
type departure struct {
	*Case
	access
	after *rbac.Policy
	// gone are the roles and bindings that go, and byRole those that make an
	// aggregated role lose rules.
	gone     map[rbac.Ref]*Object
	byRole   map[rbac.Ref][]*Object
	accounts map[account]*Object // that go
}

// departureOf is nil if nothing of access control goes.
func departureOf(c *Case) *departure {
	d := &departure{Case: c, gone: map[rbac.Ref]*Object{}, accounts: map[account]*Object{}}
	for _, gr := range [...]struct {
		kind    string
		objects []*Object
	}{
		{"ClusterRole", c.Deleted(ClusterRoles)}, {"ClusterRoleBinding", c.Deleted(ClusterRoleBindings)},
		{"Role", c.Deleted(Roles)}, {"RoleBinding", c.Deleted(RoleBindings)},
	} {
		for _, o := range gr.objects {
			d.gone[rbac.Ref{Kind: gr.kind, Namespace: o.Namespace, Name: o.Name}] = o
		}
	}
	for _, o := range c.Deleted(ServiceAccounts) {
		d.accounts[account{o.Namespace, o.Name}] = o
	}
	if len(d.gone) == 0 && len(d.accounts) == 0 {
		return nil
	}
	d.access = accessNow.of(c.State)
	gone := make(map[rbac.Ref]bool, len(d.gone))
	for r := range d.gone {
		gone[r] = true
	}
	changed := d.reaggregated()
	d.after = d.policy.Without(gone, changed)
	return d
}

// reaggregated are the aggregated roles that stay and lose rules with a role
// that goes. What stands in one and comes from no role is no loss of this delete.
func (d *departure) reaggregated() []*rbacv1.ClusterRole {
	d.byRole = map[rbac.Ref][]*Object{}
	if !d.aggregates || len(d.Deleted(ClusterRoles)) == 0 {
		return nil
	}
	var rest []*rbacv1.ClusterRole
	for _, r := range d.roles {
		if d.gone[clusterRole(r.Name)] == nil {
			rest = append(rest, r)
		}
	}
	full := map[string]*rbacv1.ClusterRole{}
	for _, r := range rbac.Aggregate(d.roles) {
		full[r.Name] = r
	}
	var changed []*rbacv1.ClusterRole
	for i, r := range rbac.Aggregate(rest) {
		if r.AggregationRule == nil || len(r.Rules) == len(full[r.Name].Rules) {
			continue
		}
		given, kept := texts(full[r.Name].Rules), texts(r.Rules)
		goes := func(rule rbacv1.PolicyRule) bool { text := rule.String(); return given[text] && !kept[text] }
		less := *rest[i]
		less.Rules = slices.DeleteFunc(slices.Clone(less.Rules), goes)
		changed = append(changed, &less)
		for _, o := range d.Deleted(ClusterRoles) {
			if role, ok := o.Content.(*rbacv1.ClusterRole); ok && slices.ContainsFunc(role.Rules, goes) {
				d.byRole[clusterRole(r.Name)] = append(d.byRole[clusterRole(r.Name)], o)
			}
		}
	}
	return changed
}

func texts(rules []rbacv1.PolicyRule) map[string]bool {
	out := make(map[string]bool, len(rules))
	for _, r := range rules {
		out[r.String()] = true
	}
	return out
}

func clusterRole(name string) rbac.Ref { return rbac.Ref{Kind: "ClusterRole", Name: name} }

// touched are the subjects of bindings that go, or whose role goes or loses
// rules, and the accounts that go and are bound to something.
func (d *departure) touched() []rbacv1.Subject {
	found := map[rbacv1.Subject]bool{}
	take := func(binding rbac.Ref) {
		for _, s := range d.policy.SubjectsOf(binding) {
			found[plain(s)] = true
		}
	}
	for ref := range d.gone {
		take(ref)
		for _, b := range d.policy.BindingsTo(ref) {
			take(b)
		}
	}
	for ref := range d.byRole {
		for _, b := range d.policy.BindingsTo(ref) {
			take(b)
		}
	}
	for a := range d.accounts {
		s := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: a.namespace, Name: a.name}
		if len(d.policy.Bindings(rbac.User{Name: a.user().Name})) > 0 {
			found[s] = true
		}
	}
	delete(found, rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "system:masters"})
	return slices.SortedFunc(maps.Keys(found), rbac.CompareSubjects)
}

// plain is the account, where a subject names one as a user.
func plain(s rbacv1.Subject) rbacv1.Subject {
	if s.Kind == rbacv1.UserKind {
		if namespace, name := rbac.AccountOf(s.Name); name != "" {
			return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
		}
	}
	return s
}

// userOf is a subject as one who makes requests. Of a user the groups are not
// known but for that which all have; whoever is of a group has it too.
func userOf(s rbacv1.Subject) rbac.User {
	const authenticated = "system:authenticated"
	switch {
	case s.Kind == rbacv1.ServiceAccountKind:
		return rbac.ServiceAccount(s.Namespace, s.Name)
	case s.Kind == rbacv1.UserKind:
		return rbac.User{Name: s.Name, Groups: []string{authenticated}}
	case s.Name == authenticated || s.Name == "system:unauthenticated":
		return rbac.User{Groups: []string{s.Name}}
	case strings.HasPrefix(s.Name, "system:serviceaccounts:"):
		return rbac.User{Groups: []string{s.Name, "system:serviceaccounts", authenticated}}
	}
	return rbac.User{Groups: []string{s.Name, authenticated}}
}

// lost is what a user may do now, and not after. The token of an account that
// goes is taken for nobody's.
func (d *departure) lost(u rbac.User) []rbac.Loss {
	if namespace, name := rbac.AccountOf(u.Name); name != "" && d.accounts[account{namespace, name}] != nil {
		return rbac.Lost(d.policy, rbac.New(nil, nil, nil, nil), u)
	}
	return rbac.Lost(d.policy, d.after, u)
}

// causes are the objects that go and by which something is lost: ClusterRoles
// first, then their bindings, what is of a namespace, and accounts.
func (d *departure) causes(losses []rbac.Loss, accounts ...account) []*Object {
	found := map[*Object]bool{}
	for _, l := range losses {
		for _, g := range l.By {
			found[d.gone[g.Binding]] = true
			found[d.gone[g.Role]] = true
			for _, o := range d.byRole[g.Role] {
				found[o] = true
			}
		}
	}
	for _, a := range accounts {
		found[d.accounts[a]] = true
	}
	delete(found, nil)
	order := []string{"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount"}
	return slices.SortedFunc(maps.Keys(found), func(a, b *Object) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Resource.Kind), slices.Index(order, b.Resource.Kind)), cmp.Compare(a.String(), b.String()))
	})
}

// here are the pods that stay, run and come to the API server as an account.
func (d *departure) here(a account) []PodOf {
	return slices.DeleteFunc(slices.Clone(residentsNow.of(d.State).pods[a]), func(p PodOf) bool { return !d.stays(p.Object) })
}

// members are the accounts of a group under which pods run.
func (d *departure) members(group string) []account {
	namespace, one := strings.CutPrefix(group, "system:serviceaccounts:")
	if !one && group != "system:serviceaccounts" && group != "system:authenticated" {
		return nil
	}
	var out []account
	for a := range residentsNow.of(d.State).pods {
		if (!one || a.namespace == namespace) && len(d.here(a)) > 0 {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b account) int { return cmp.Compare(a.String(), b.String()) })
	return out
}
