// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

func labelled(role *rbacv1.ClusterRole, labels ...string) *rbacv1.ClusterRole {
	role.Labels = map[string]string{}
	for _, l := range labels {
		role.Labels[l] = "true"
	}
	return role
}

func aggregated(name string, selects ...string) *rbacv1.ClusterRole {
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, AggregationRule: &rbacv1.AggregationRule{}}
	for _, l := range selects {
		role.AggregationRule.ClusterRoleSelectors = append(role.AggregationRule.ClusterRoleSelectors, metav1.LabelSelector{MatchLabels: map[string]string{l: "true"}})
	}
	return role
}

func TestAggregate(t *testing.T) {
	pods, nodes, secrets := rule("get", "", "pods"), rule("get", "", "nodes"), rule("get", "", "secrets")
	stale := aggregated("view", "to-view")
	stale.Rules = []rbacv1.PolicyRule{secrets}
	broken := aggregated("view")
	broken.Rules = []rbacv1.PolicyRule{secrets}
	broken.AggregationRule.ClusterRoleSelectors = []metav1.LabelSelector{{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}}
	everything := aggregated("view")
	everything.AggregationRule.ClusterRoleSelectors = []metav1.LabelSelector{{}}
	for name, tt := range map[string]struct {
		roles []*rbacv1.ClusterRole
		want  string // of view: what its rules are about
	}{
		"it has the rules of the roles that it selects": {[]*rbacv1.ClusterRole{aggregated("view", "to-view"), labelled(clusterRole("b", nodes), "to-view"), labelled(clusterRole("a", pods), "to-view"), clusterRole("c", secrets)}, "pods nodes"},
		"what stood in it and comes from nobody goes":   {[]*rbacv1.ClusterRole{stale, labelled(clusterRole("a", pods), "to-view")}, "pods"},
		"nobody is left":                                           {[]*rbacv1.ClusterRole{stale}, ""},
		"a rule of two roles stands once":                          {[]*rbacv1.ClusterRole{aggregated("view", "to-view"), labelled(clusterRole("a", pods), "to-view"), labelled(clusterRole("b", pods), "to-view")}, "pods"},
		"any of its selectors will do":                             {[]*rbacv1.ClusterRole{aggregated("view", "one", "two"), labelled(clusterRole("a", pods), "two"), labelled(clusterRole("b", nodes), "one")}, "nodes pods"},
		"an aggregated role of an aggregated role":                 {[]*rbacv1.ClusterRole{aggregated("view", "to-view"), labelled(aggregated("z", "to-z"), "to-view"), labelled(clusterRole("a", pods), "to-z")}, "pods"},
		"it does not select itself":                                {[]*rbacv1.ClusterRole{labelled(aggregated("view", "to-view"), "to-view"), labelled(clusterRole("a", pods), "to-view")}, "pods"},
		"an empty selector takes all":                              {[]*rbacv1.ClusterRole{everything, clusterRole("a", pods), clusterRole("b", nodes)}, "pods nodes"},
		"of a selector that is none it keeps what it has":          {[]*rbacv1.ClusterRole{broken, clusterRole("a", pods)}, "secrets"},
		"two that select each other have no more than others give": {[]*rbacv1.ClusterRole{labelled(stale.DeepCopy(), "to-other"), labelled(aggregated("other", "to-other"), "to-view")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			before := fmt.Sprint(tt.roles[0].Rules)
			got := Aggregate(tt.roles)
			var about []string
			for _, r := range got[0].Rules {
				about = append(about, r.Resources...)
			}
			if got := strings.Join(about, " "); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
			if fmt.Sprint(tt.roles[0].Rules) != before {
				t.Error("the role that was given changed")
			}
		})
	}
}

func TestAggregateProperties(t *testing.T) {
	labels := []string{"x", "y", "z"}
	gen := rapid.Custom(func(t *rapid.T) []*rbacv1.ClusterRole {
		var roles []*rbacv1.ClusterRole
		some := rapid.SliceOfDistinct(rapid.SampledFrom(labels), rapid.ID[string])
		for i := range rapid.IntRange(0, 6).Draw(t, "roles") {
			role := clusterRole(fmt.Sprintf("r%d", i), rapid.SliceOfN(genRule, 0, 2).Draw(t, "rules")...)
			if rapid.Bool().Draw(t, "aggregated") {
				rules := role.Rules
				role = aggregated(role.Name, some.Draw(t, "selects")...)
				role.Rules = rules
			}
			roles = append(roles, labelled(role, some.Draw(t, "labels")...))
		}
		return roles
	})
	t.Run("it changes nothing that it made itself, and no role that is not aggregated", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			roles := gen.Draw(t, "roles")
			once := Aggregate(roles)
			if twice := Aggregate(once); !slices.Equal(once, twice) {
				t.Fatalf("%v, then %v", once, twice)
			}
			for i, r := range roles {
				if r.AggregationRule == nil && once[i] != r {
					t.Fatalf("%s changed", r.Name)
				}
			}
		})
	})
	t.Run("whoever has an aggregated role may do what a selected role allows, and loses it with that role", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			member, rest := labelled(clusterRole("member", genRule.Draw(t, "rule")), "x"), labelled(clusterRole("rest", genRule.Draw(t, "other")), "x")
			request, user := genRequest.Draw(t, "request"), ServiceAccount("shop", "till")
			may := func(roles ...*rbacv1.ClusterRole) bool {
				_, may := New(nil, nil, Aggregate(append(roles, aggregated("sum", "x"))), []*rbacv1.ClusterRoleBinding{clusterBinding("b", "sum", account("shop", "till"))}).May(user, request)
				return may
			}
			if both := may(member, rest); both != (may(member) || may(rest)) || may() {
				t.Fatalf("%s: both %v, alone %v and %v, none %v", request, both, may(member), may(rest), may())
			}
		})
	})
}
