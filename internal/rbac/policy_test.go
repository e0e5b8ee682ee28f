// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

func rule(verbs, groups, resources string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: strings.Split(verbs, ","), APIGroups: strings.Split(groups, ","), Resources: strings.Split(resources, ","), ResourceNames: names}
}

func clusterRole(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
}

func clusterBinding(name, role string, subjects ...rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: role}, Subjects: subjects}
}

func account(namespace, name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
}

func TestMay(t *testing.T) {
	policy := New(
		[]*rbacv1.Role{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "reader"}, Rules: []rbacv1.PolicyRule{rule("get", "", "secrets")}}},
		[]*rbacv1.RoleBinding{
			{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "own"}, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "reader"}, Subjects: []rbacv1.Subject{account("", "till")}},
			{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "lent"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "watcher"}, Subjects: []rbacv1.Subject{account("kube-system", "guest")}},
		},
		[]*rbacv1.ClusterRole{
			clusterRole("watcher", rule("list,watch", ",discovery.k8s.io", "services,endpointslices")),
			clusterRole("scaler", rule("get,update", "*", "*/scale")),
			clusterRole("all", rule("*", "*", "*")),
			clusterRole("one", rule("get,create", "", "configmaps", "settings")),
		},
		[]*rbacv1.ClusterRoleBinding{
			clusterBinding("watchers", "watcher", account("kube-system", "proxy")),
			clusterBinding("scalers", "scaler", rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:auto"}),
			clusterBinding("admins", "all", rbacv1.Subject{Kind: rbacv1.UserKind, Name: "ada"}),
			clusterBinding("ones", "one", account("kube-system", "settled")),
			clusterBinding("lost", "gone", account("kube-system", "lost")),
		},
	)
	proxy, till, guest := ServiceAccount("kube-system", "proxy"), ServiceAccount("shop", "till"), ServiceAccount("kube-system", "guest")
	settled := ServiceAccount("kube-system", "settled")
	for name, tt := range map[string]struct {
		user    User
		request Request
		by      string // the binding; "" is none
	}{
		"a verb of a resource that a rule names":  {proxy, Request{Verb: "list", Group: "discovery.k8s.io", Resource: "endpointslices"}, "watchers"},
		"in one namespace what is allowed in all": {proxy, Request{Verb: "watch", Resource: "services", Namespace: "shop"}, "watchers"},
		"another verb":  {proxy, Request{Verb: "get", Resource: "services"}, ""},
		"another group": {proxy, Request{Verb: "list", Group: "apps", Resource: "services"}, ""},
		"a subresource of a resource that a rule names":             {proxy, Request{Verb: "list", Resource: "services/status"}, ""},
		"somebody else's account of the same name":                  {ServiceAccount("shop", "proxy"), Request{Verb: "list", Resource: "services"}, ""},
		"a role of its own namespace, for an account without one":   {till, Request{Verb: "get", Resource: "secrets", Namespace: "shop"}, "own"},
		"a role of another namespace":                               {till, Request{Verb: "get", Resource: "secrets", Namespace: "default"}, ""},
		"a role of its own namespace, asked of all":                 {till, Request{Verb: "get", Resource: "secrets"}, ""},
		"a ClusterRole that is bound in a namespace":                {guest, Request{Verb: "list", Resource: "services", Namespace: "shop"}, "lent"},
		"a ClusterRole that is bound in a namespace, asked of all":  {guest, Request{Verb: "list", Resource: "services"}, ""},
		"a subresource of every resource, for a group":              {ServiceAccount("auto", "hpa"), Request{Verb: "update", Group: "apps", Resource: "deployments/scale"}, "scalers"},
		"a resource where only its subresource is allowed":          {ServiceAccount("auto", "hpa"), Request{Verb: "update", Group: "apps", Resource: "deployments"}, ""},
		"everything, for a user":                                    {User{Name: "ada"}, Request{Verb: "delete", Group: "x", Resource: "y/z", Name: "n"}, "admins"},
		"the object that a rule names":                              {settled, Request{Verb: "get", Resource: "configmaps", Name: "settings"}, "ones"},
		"another object":                                            {settled, Request{Verb: "get", Resource: "configmaps", Name: "other"}, ""},
		"an object that is yet to be made, where a rule names some": {settled, Request{Verb: "create", Resource: "configmaps"}, ""},
		"a role that does not exist":                                {ServiceAccount("kube-system", "lost"), Request{Verb: "get", Resource: "pods"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			grant, may := policy.May(tt.user, tt.request)
			if may != (tt.by != "") || grant.Binding.Name != tt.by {
				t.Errorf("%s by %s: %v by %q, want %q", tt.request, tt.user.Name, may, grant.Binding.Name, tt.by)
			}
		})
	}

	t.Run("who is of system:masters may do everything, whatever the objects say", func(t *testing.T) {
		if _, may := policy.May(User{Name: "root", Groups: []string{"system:masters"}}, Request{Verb: "delete", Resource: "nodes"}); !may {
			t.Error("refused")
		}
	})
	t.Run("a binding whose role is gone is told apart from none", func(t *testing.T) {
		want := []Binding{{Ref: Ref{Kind: "ClusterRoleBinding", Name: "lost"}, Role: Ref{Kind: "ClusterRole", Name: "gone"}, Missing: true}}
		if diff := cmp.Diff(want, policy.Bindings(ServiceAccount("kube-system", "lost")), cmp.AllowUnexported(Binding{})); diff != "" {
			t.Error(diff)
		}
		if got := policy.Bindings(ServiceAccount("kube-system", "nobody")); len(got) != 0 {
			t.Errorf("%v", got)
		}
	})
	t.Run("what exists is known by kind, namespace and name", func(t *testing.T) {
		for ref, want := range map[Ref]bool{
			{"ClusterRole", "", "watcher"}: true, {"ClusterRole", "", "gone"}: false, {"Role", "shop", "reader"}: true, {"Role", "", "reader"}: false,
			{"ClusterRoleBinding", "", "lost"}: true, {"RoleBinding", "shop", "lent"}: true, {"RoleBinding", "default", "lent"}: false,
		} {
			if policy.Exists(ref) != want {
				t.Errorf("%s exists: %v", ref, !want)
			}
		}
	})
}

// genRule draws from so few words that rules and requests often meet.
var genRule = rapid.Custom(func(t *rapid.T) rbacv1.PolicyRule {
	some := func(label string, of ...string) []string {
		return rapid.SliceOfNDistinct(rapid.SampledFrom(of), 1, 2, rapid.ID[string]).Draw(t, label)
	}
	r := rbacv1.PolicyRule{Verbs: some("verbs", "get", "list", "*"), APIGroups: some("groups", "", "apps", "*"), Resources: some("resources", "pods", "pods/log", "*/log", "*")}
	if rapid.Bool().Draw(t, "named") {
		r.ResourceNames = some("names", "a", "b")
	}
	return r
})

var genRequest = rapid.Custom(func(t *rapid.T) Request {
	return Request{
		Verb:      rapid.SampledFrom([]string{"get", "list", "watch"}).Draw(t, "verb"),
		Group:     rapid.SampledFrom([]string{"", "apps"}).Draw(t, "group"),
		Resource:  rapid.SampledFrom([]string{"pods", "pods/log", "nodes"}).Draw(t, "resource"),
		Namespace: rapid.SampledFrom([]string{"", "shop"}).Draw(t, "namespace"),
		Name:      rapid.SampledFrom([]string{"", "a"}).Draw(t, "name"),
	}
})

func TestProperties(t *testing.T) {
	user := ServiceAccount("shop", "till")
	t.Run("another rule takes nothing away, and a deleted role takes all that it alone gave", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			rules := rapid.SliceOfN(genRule, 0, 4).Draw(t, "rules")
			more := genRule.Draw(t, "more")
			request := genRequest.Draw(t, "request")
			bound := []*rbacv1.ClusterRoleBinding{clusterBinding("b", "r", account("shop", "till"))}
			may := func(roles ...*rbacv1.ClusterRole) bool {
				_, may := New(nil, nil, roles, bound).May(user, request)
				return may
			}
			before, after, alone := may(clusterRole("r", rules...)), may(clusterRole("r", append(slices.Clone(rules), more)...)), may(clusterRole("r", more))
			if after != (before || alone) {
				t.Fatalf("%s: before %v, alone %v, together %v", request, before, alone, after)
			}
			if may(clusterRole("other", rules...)) {
				t.Fatalf("%s is allowed without the role", request)
			}
		})
	})
	t.Run("a role bound in a namespace gives there what it gives everywhere if it is bound for the cluster, and nothing elsewhere", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			roles := []*rbacv1.ClusterRole{clusterRole("r", genRule.Draw(t, "rule"))}
			request := genRequest.Draw(t, "request")
			wide := New(nil, nil, roles, []*rbacv1.ClusterRoleBinding{clusterBinding("b", "r", account("shop", "till"))})
			narrow := New(nil, []*rbacv1.RoleBinding{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "b"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "r"}, Subjects: []rbacv1.Subject{account("", "till")}}}, roles, nil)
			_, inWide := wide.May(user, request)
			_, inNarrow := narrow.May(user, request)
			if inNarrow != (inWide && request.Namespace == "shop") {
				t.Fatalf("%s: %v for the cluster, %v in the namespace", request, inWide, inNarrow)
			}
		})
	})
}
