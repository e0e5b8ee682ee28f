// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"cmp"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Aggregate is what Kubernetes' controller makes of ClusterRoles: the rules of
// one with an aggregationRule become those of the roles that it selects, in the
// order of their names. A selected role may be an aggregated one itself; what
// roles that select each other have from nobody else is left out, although the
// controller may carry it around in their ring. A role whose rules stay is
// returned as it is.
func Aggregate(roles []*rbacv1.ClusterRole) []*rbacv1.ClusterRole {
	out := slices.Clone(roles)
	byName := slices.Clone(roles)
	slices.SortFunc(byName, func(a, b *rbacv1.ClusterRole) int { return cmp.Compare(a.Name, b.Name) })
	members := map[string][]*rbacv1.ClusterRole{}
	for _, r := range roles {
		if selected, valid := selectedBy(r, byName); valid {
			members[r.Name] = selected
		}
	}
	for i, r := range roles {
		if _, is := members[r.Name]; !is {
			continue
		}
		u := union{members: members, taken: map[string]bool{}, seen: map[string]bool{}}
		u.take(r)
		if !equality.Semantic.DeepEqual(u.rules, r.Rules) {
			changed := *r
			changed.Rules = u.rules
			out[i] = &changed
		}
	}
	return out
}

// selectedBy are the roles that an aggregated one selects. The controller leaves
// one alone that has a selector which is none.
func selectedBy(aggregated *rbacv1.ClusterRole, byName []*rbacv1.ClusterRole) (out []*rbacv1.ClusterRole, valid bool) {
	if aggregated.AggregationRule == nil {
		return nil, false
	}
	for i := range aggregated.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&aggregated.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			return nil, false
		}
		for _, r := range byName {
			if selector.Matches(labels.Set(r.Labels)) {
				out = append(out, r)
			}
		}
	}
	return out, true
}

// union collects the rules of roles, each role and each rule once.
type union struct {
	members map[string][]*rbacv1.ClusterRole
	taken   map[string]bool
	seen    map[string]bool
	rules   []rbacv1.PolicyRule
}

func (u *union) take(r *rbacv1.ClusterRole) {
	if u.taken[r.Name] {
		return
	}
	u.taken[r.Name] = true
	if selected, aggregated := u.members[r.Name]; aggregated {
		for _, m := range selected {
			u.take(m)
		}
		return
	}
	for _, rule := range r.Rules {
		if key := rule.String(); !u.seen[key] {
			u.seen[key] = true
			u.rules = append(u.rules, rule)
		}
	}
}
