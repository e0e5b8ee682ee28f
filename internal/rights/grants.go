// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/rbac"
)

// everyone is who has proven who he is, and nothing more. What he may do is
// nobody's own right.
var everyone = rbac.User{Groups: []string{"system:authenticated", "system:serviceaccounts"}}

// masters is the group to which the API server denies nothing.
const masters = "system:masters"

// Access is what a policy allows one user.
type Access struct {
	policy *rbac.Policy
	user   rbac.User
}

// NewAccess is what a policy allows a user.
func NewAccess(policy *rbac.Policy, user rbac.User) *Access { return &Access{policy, user} }

// Everything says whether the user is one to whom nothing is denied, whatever
// the policy has.
func (a *Access) Everything() bool { return slices.Contains(a.user.Groups, masters) }

// Allows says whether the user has a right.
func (a *Access) Allows(r Right) bool { return allows(a.policy, a.user, r) }

// Everyones says whether it is everyone's right.
func (a *Access) Everyones(r Right) bool { return allows(a.policy, everyone, r) }

func allows(policy *rbac.Policy, user rbac.User, r Right) bool {
	if r.Path == "" {
		_, may := policy.May(user, r.Request)
		return may
	}
	return slices.Contains(user.Groups, masters) || slices.ContainsFunc(policy.Rules(user), func(g rbac.Grant) bool {
		return g.Binding.Namespace == "" && slices.ContainsFunc(g.Rule.NonResourceURLs, func(path string) bool {
			return (slices.Contains(g.Rule.Verbs, r.Verb) || slices.Contains(g.Rule.Verbs, "*")) && coversPath(path, r.Path)
		})
	})
}

// coversPath says whether a path of a rule takes one in: it is that path, or
// ends with a star behind what the other begins with.
func coversPath(rule, path string) bool {
	prefix, wild := strings.CutSuffix(rule, "*")
	return rule == path || wild && strings.HasPrefix(path, prefix)
}

// granted is a right with what gives it.
type granted struct {
	Right
	binding, role rbac.Ref
}

// own are the rights that bindings give the user, and not everyone.
func (a *Access) own() []granted {
	common := map[rbac.Ref]bool{}
	for _, b := range a.policy.Bindings(everyone) {
		common[b.Ref] = true
	}
	var all []granted
	for _, g := range a.policy.Rules(a.user) {
		if common[g.Binding] {
			continue
		}
		for _, r := range rightsOf(g.Rule, g.Binding.Namespace) {
			all = append(all, granted{r, g.Binding, g.Role})
		}
	}
	return all
}

// rightsOf are the rights of a rule that is bound in a namespace, or everywhere.
func rightsOf(rule rbacv1.PolicyRule, namespace string) (all []Right) {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	for _, verb := range rule.Verbs {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range names {
					all = append(all, Right{Request: rbac.Request{Verb: verb, Group: group, Resource: resource, Namespace: namespace, Name: name}})
				}
			}
		}
		if namespace != "" {
			continue // a path lies in no namespace, and a RoleBinding gives none
		}
		for _, path := range rule.NonResourceURLs {
			all = append(all, Right{Request: rbac.Request{Verb: verb}, Path: path})
		}
	}
	return all
}

// policyRule is the rule that allows a right, and no other.
func (r Right) policyRule() rbacv1.PolicyRule {
	if r.Path != "" {
		return rbacv1.PolicyRule{Verbs: []string{r.Verb}, NonResourceURLs: []string{r.Path}}
	}
	rule := rbacv1.PolicyRule{Verbs: []string{r.Verb}, APIGroups: []string{r.Group}, Resources: []string{r.Resource}}
	if r.Name != "" {
		rule.ResourceNames = []string{r.Name}
	}
	return rule
}

// alone is the access of somebody who has a right and no other, by which one
// sees what it allows.
func (r Right) alone() *Access {
	const name = "alone"
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: name}}
	roles := []*rbacv1.ClusterRole{{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{r.policyRule()}}}
	user := rbac.User{Name: name}
	if r.Namespace == "" {
		return NewAccess(rbac.New(nil, nil, roles, []*rbacv1.ClusterRoleBinding{{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: ref, Subjects: subjects}}), user)
	}
	return NewAccess(rbac.New(nil, []*rbacv1.RoleBinding{{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: name}, RoleRef: ref, Subjects: subjects}}, roles, nil), user)
}
