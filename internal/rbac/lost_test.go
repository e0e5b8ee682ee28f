// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"fmt"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

func group(name string) rbacv1.Subject { return rbacv1.Subject{Kind: rbacv1.GroupKind, Name: name} }

func roleBinding(namespace, name, kind, role string, subjects ...rbacv1.Subject) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		RoleRef:    rbacv1.RoleRef{Kind: kind, Name: role}, Subjects: subjects,
	}
}

func TestLost(t *testing.T) {
	till := account("shop", "till")
	roles := []*rbacv1.ClusterRole{
		clusterRole("pods", rule("get,list", "", "pods")),
		clusterRole("get-pods", rule("get", "", "pods")),
		clusterRole("all", rule("*", "*", "*")),
		clusterRole("cilium", rule("*", "cilium.io", "*")),
		clusterRole("scale", rule("update", "apps", "*/scale")),
		clusterRole("named", rule("get", "", "secrets", "a", "b", "c")),
		clusterRole("a", rule("get", "", "secrets", "a")),
		clusterRole("b", rule("get", "", "secrets", "b")),
		clusterRole("metrics", rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics", "/healthz/*"}}),
		clusterRole("healthz", rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/healthz*"}}),
		clusterRole("many", rule("list", "", "pods,nodes,services,secrets,events")),
	}
	cluster := func(role string, to rbacv1.Subject) *rbacv1.ClusterRoleBinding {
		return clusterBinding("to-"+role, role, to)
	}
	for name, tt := range map[string]struct {
		bound   []*rbacv1.ClusterRoleBinding
		lent    []*rbacv1.RoleBinding
		without []string // bindings and roles
		want    string
	}{
		"nothing goes":                                   {bound: []*rbacv1.ClusterRoleBinding{cluster("pods", till)}, want: ""},
		"the only binding":                               {bound: []*rbacv1.ClusterRoleBinding{cluster("pods", till)}, without: []string{"ClusterRoleBinding to-pods"}, want: "get/list pods"},
		"the role under a binding":                       {bound: []*rbacv1.ClusterRoleBinding{cluster("pods", till)}, without: []string{"ClusterRole pods"}, want: "get/list pods"},
		"another binding grants a part of it":            {bound: []*rbacv1.ClusterRoleBinding{cluster("pods", till), cluster("get-pods", till)}, without: []string{"ClusterRole pods"}, want: "list pods"},
		"another binding grants all of it":               {bound: []*rbacv1.ClusterRoleBinding{cluster("get-pods", till), cluster("pods", till)}, without: []string{"ClusterRole get-pods"}, want: ""},
		"a group's binding grants all of it":             {bound: []*rbacv1.ClusterRoleBinding{cluster("get-pods", till), cluster("pods", group("system:serviceaccounts:shop"))}, without: []string{"ClusterRole get-pods"}, want: ""},
		"everything, but for what another still grants":  {bound: []*rbacv1.ClusterRoleBinding{cluster("all", till), cluster("pods", till)}, without: []string{"ClusterRole all"}, want: "do everything"},
		"everything still grants it":                     {bound: []*rbacv1.ClusterRoleBinding{cluster("all", till), cluster("pods", till), cluster("cilium", till)}, without: []string{"ClusterRole pods", "ClusterRole cilium"}, want: ""},
		"a wildcard stays one":                           {bound: []*rbacv1.ClusterRoleBinding{cluster("cilium", till)}, without: []string{"ClusterRole cilium"}, want: "do anything to everything of cilium.io"},
		"a subresource of all":                           {bound: []*rbacv1.ClusterRoleBinding{cluster("scale", till)}, without: []string{"ClusterRole scale"}, want: "update *.apps/scale"},
		"objects by name":                                {bound: []*rbacv1.ClusterRoleBinding{cluster("named", till)}, without: []string{"ClusterRole named"}, want: `get secrets "a", "b", "c"`},
		"some names are granted by two others":           {bound: []*rbacv1.ClusterRoleBinding{cluster("named", till), cluster("a", till), cluster("b", till)}, without: []string{"ClusterRole named"}, want: `get secrets "c"`},
		"paths":                                          {bound: []*rbacv1.ClusterRoleBinding{cluster("metrics", till)}, without: []string{"ClusterRole metrics"}, want: "get /metrics, get /healthz/*"},
		"paths that another's wildcard takes in":         {bound: []*rbacv1.ClusterRoleBinding{cluster("metrics", till), cluster("healthz", till)}, without: []string{"ClusterRole metrics"}, want: "get /metrics"},
		"many things are cut":                            {bound: []*rbacv1.ClusterRoleBinding{cluster("many", till)}, without: []string{"ClusterRole many"}, want: "list pods, list nodes, list services, 2 more"},
		"in one namespace":                               {lent: []*rbacv1.RoleBinding{roleBinding("shop", "lent", "ClusterRole", "pods", till)}, without: []string{"RoleBinding shop/lent"}, want: "get/list pods in namespace shop"},
		"in two namespaces":                              {lent: []*rbacv1.RoleBinding{roleBinding("shop", "lent", "ClusterRole", "pods", till), roleBinding("bank", "lent", "ClusterRole", "pods", till)}, without: []string{"ClusterRole pods"}, want: "get/list pods in 2 namespaces"},
		"in a namespace what stays in all":               {bound: []*rbacv1.ClusterRoleBinding{cluster("get-pods", till)}, lent: []*rbacv1.RoleBinding{roleBinding("shop", "lent", "ClusterRole", "pods", till)}, without: []string{"RoleBinding shop/lent"}, want: "list pods in namespace shop"},
		"in all what stays in a namespace":               {bound: []*rbacv1.ClusterRoleBinding{cluster("pods", till)}, lent: []*rbacv1.RoleBinding{roleBinding("shop", "lent", "ClusterRole", "get-pods", till)}, without: []string{"ClusterRole pods"}, want: "get/list pods"},
		"paths are never given in a namespace":           {lent: []*rbacv1.RoleBinding{roleBinding("shop", "lent", "ClusterRole", "metrics", till)}, without: []string{"ClusterRole metrics"}, want: ""},
		"what a binding to no role gives":                {bound: []*rbacv1.ClusterRoleBinding{cluster("none", till)}, without: []string{"ClusterRoleBinding to-none"}, want: ""},
		"two bindings that gave the same go, said once":  {bound: []*rbacv1.ClusterRoleBinding{clusterBinding("one", "pods", till), clusterBinding("two", "pods", till)}, without: []string{"ClusterRole pods"}, want: "get/list pods"},
		"one of two bindings that give the same":         {bound: []*rbacv1.ClusterRoleBinding{clusterBinding("one", "pods", till), clusterBinding("two", "pods", till)}, without: []string{"ClusterRoleBinding one"}, want: ""},
		"the binding of somebody else":                   {bound: []*rbacv1.ClusterRoleBinding{cluster("pods", account("bank", "till"))}, without: []string{"ClusterRole pods"}, want: ""},
		"the binding of a group that the account is not": {bound: []*rbacv1.ClusterRoleBinding{cluster("pods", group("system:serviceaccounts:bank"))}, without: []string{"ClusterRole pods"}, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			before := New(nil, tt.lent, roles, tt.bound)
			gone := map[Ref]bool{}
			for _, r := range refs(before) {
				gone[r] = slices.Contains(tt.without, r.String())
			}
			if got := LossSummary(Lost(before, before.Without(gone, nil), ServiceAccount("shop", "till"))); got != tt.want {
				t.Errorf("it lost %q, want %q", got, tt.want)
			}
		})
	}

	t.Run("who is of system:masters loses nothing", func(t *testing.T) {
		before := New(nil, nil, roles, []*rbacv1.ClusterRoleBinding{cluster("all", group("system:masters"))})
		if got := Lost(before, New(nil, nil, nil, nil), User{Name: "root", Groups: []string{"system:masters"}}); got != nil {
			t.Errorf("%v", got)
		}
	})
	t.Run("what allowed it is named, and what goes on to allow a part", func(t *testing.T) {
		before := New(nil, nil, roles, []*rbacv1.ClusterRoleBinding{cluster("all", till), cluster("pods", till)})
		got := Lost(before, before.Without(map[Ref]bool{{Kind: "ClusterRole", Name: "all"}: true}, nil), ServiceAccount("shop", "till"))
		if len(got) != 1 || len(got[0].By) != 1 || got[0].By[0].Role.Name != "all" || len(got[0].Kept) != 1 || got[0].Kept[0].Role.Name != "pods" {
			t.Errorf("%+v", got)
		}
	})
	t.Run("a role with other rules gives these", func(t *testing.T) {
		before := New(nil, nil, roles, []*rbacv1.ClusterRoleBinding{cluster("pods", till)})
		after := before.Without(nil, []*rbacv1.ClusterRole{clusterRole("pods", rule("get", "", "pods"))})
		if got := LossSummary(Lost(before, after, ServiceAccount("shop", "till"))); got != "list pods" {
			t.Error(got)
		}
	})
}

// refs are all roles and bindings of a policy.
func refs(p *Policy) (all []Ref) {
	for r := range p.roles {
		all = append(all, r)
	}
	for r := range p.subjects {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b Ref) int { return slices.Compare([]string{a.String()}, []string{b.String()}) })
	return all
}

// genPolicy draws roles of all kinds that are bound to one account, to its
// groups and to somebody else, in all namespaces and in one.
var genPolicy = rapid.Custom(func(t *rapid.T) *Policy {
	var roles []*rbacv1.Role
	var clusterRoles []*rbacv1.ClusterRole
	var roleBindings []*rbacv1.RoleBinding
	var clusterBindings []*rbacv1.ClusterRoleBinding
	to := rapid.SampledFrom([]rbacv1.Subject{account("shop", "till"), group("system:serviceaccounts"), group("system:serviceaccounts:shop"), account("shop", "other")})
	for i := range rapid.IntRange(0, 4).Draw(t, "roles") {
		name := fmt.Sprintf("r%d", i)
		rules := rapid.SliceOfN(genRule, 0, 3).Draw(t, "rules")
		if rapid.Bool().Draw(t, "in a namespace") {
			roles = append(roles, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Rules: rules})
			roleBindings = append(roleBindings, roleBinding("shop", name, "Role", name, to.Draw(t, "to")))
			continue
		}
		clusterRoles = append(clusterRoles, clusterRole(name, rules...))
		if rapid.Bool().Draw(t, "bound in a namespace") {
			namespace := rapid.SampledFrom([]string{"shop", "bank"}).Draw(t, "where")
			roleBindings = append(roleBindings, roleBinding(namespace, name+"-lent", "ClusterRole", name, to.Draw(t, "to")))
		}
		if rapid.Bool().Draw(t, "bound") {
			clusterBindings = append(clusterBindings, clusterBinding(name, name, to.Draw(t, "to")))
		}
	}
	return New(roles, roleBindings, clusterRoles, clusterBindings)
})

func TestLostIsWhatWasAllowedAndIsNoMore(t *testing.T) {
	user := ServiceAccount("shop", "till")
	covered := func(losses []Loss, r Request) bool {
		return slices.ContainsFunc(losses, func(l Loss) bool { return l.Covers(r) })
	}
	check := func(t *rapid.T, before, after *Policy) {
		losses := Lost(before, after, user)
		for range 20 {
			r := genRequest.Draw(t, "request")
			_, was := before.May(user, r)
			_, is := after.May(user, r)
			if covered(losses, r) != (was && !is) {
				t.Fatalf("%s: before %v, after %v, lost %+v", r, was, is, losses)
			}
		}
	}
	t.Run("of any two policies", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) { check(t, genPolicy.Draw(t, "before"), genPolicy.Draw(t, "after")) })
	})
	t.Run("of a policy without some of it", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			before := genPolicy.Draw(t, "before")
			gone := map[Ref]bool{}
			for _, r := range refs(before) {
				gone[r] = rapid.Bool().Draw(t, r.String())
			}
			check(t, before, before.Without(gone, nil))
		})
	})
}

func TestWithout(t *testing.T) {
	t.Run("it is the policy that the rest of the objects makes", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			role := clusterRole("r", genRule.Draw(t, "rule"))
			changed := clusterRole("r", genRule.Draw(t, "changed"))
			other := clusterRole("other", genRule.Draw(t, "other"))
			bindings := []*rbacv1.ClusterRoleBinding{clusterBinding("b", "r", account("shop", "till")), clusterBinding("c", "other", account("shop", "till"), group("g"))}
			before := New(nil, nil, []*rbacv1.ClusterRole{role, other}, bindings)
			request := genRequest.Draw(t, "request")
			for name, pair := range map[string][2]*Policy{
				"a role":         {before.Without(map[Ref]bool{{Kind: "ClusterRole", Name: "r"}: true}, nil), New(nil, nil, []*rbacv1.ClusterRole{other}, bindings)},
				"a binding":      {before.Without(map[Ref]bool{{Kind: "ClusterRoleBinding", Name: "c"}: true}, nil), New(nil, nil, []*rbacv1.ClusterRole{role, other}, bindings[:1])},
				"a role's rules": {before.Without(nil, []*rbacv1.ClusterRole{changed}), New(nil, nil, []*rbacv1.ClusterRole{changed, other}, bindings)},
				"one by one":     {before.Without(map[Ref]bool{{Kind: "ClusterRole", Name: "r"}: true}, nil).Without(map[Ref]bool{{Kind: "ClusterRoleBinding", Name: "c"}: true}, nil), New(nil, nil, []*rbacv1.ClusterRole{other}, bindings[:1])},
			} {
				_, got := pair[0].May(ServiceAccount("shop", "till"), request)
				_, want := pair[1].May(ServiceAccount("shop", "till"), request)
				if got != want || !slices.Equal(pair[0].Subjects(), pair[1].Subjects()) || !slices.Equal(pair[0].BindingsTo(Ref{Kind: "ClusterRole", Name: "other"}), pair[1].BindingsTo(Ref{Kind: "ClusterRole", Name: "other"})) {
					t.Fatalf("without %s: %s %v, want %v", name, request, got, want)
				}
			}
		})
	})
}

func TestRules_ofAUser(t *testing.T) {
	policy := New(nil, []*rbacv1.RoleBinding{roleBinding("shop", "lent", "ClusterRole", "b", account("", "till"))},
		[]*rbacv1.ClusterRole{clusterRole("a", rule("get", "", "pods"), rule("list", "", "nodes")), clusterRole("b", rule("watch", "", "pods"))},
		[]*rbacv1.ClusterRoleBinding{clusterBinding("all", "a", group("system:serviceaccounts"))})
	var got []string
	for _, g := range policy.Rules(ServiceAccount("shop", "till")) {
		got = append(got, g.Binding.String()+" "+g.Role.Name+" "+g.Rule.Verbs[0])
	}
	if want := []string{"ClusterRoleBinding all a get", "ClusterRoleBinding all a list", "RoleBinding shop/lent b watch"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := fmt.Sprint(policy.Subjects()), fmt.Sprint([]rbacv1.Subject{group("system:serviceaccounts"), account("shop", "till")}); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A user with 10 000 bindings in as many namespaces, 90 000 losses: budget 500 ms.
func BenchmarkLost(b *testing.B) {
	var bindings []*rbacv1.RoleBinding
	for i := range 10_000 {
		bindings = append(bindings, roleBinding(fmt.Sprintf("n%d", i), "edit", "ClusterRole", "edit", account("shop", "till")))
	}
	before := New(nil, bindings, []*rbacv1.ClusterRole{clusterRole("edit", rule("get,list,watch", "", "pods,services,secrets"))}, nil)
	after := before.Without(map[Ref]bool{{Kind: "ClusterRole", Name: "edit"}: true}, nil)
	for b.Loop() {
		if got := Lost(before, after, ServiceAccount("shop", "till")); len(got) != 90_000 {
			b.Fatalf("%d losses", len(got))
		}
	}
}
