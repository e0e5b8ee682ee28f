// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"slices"

	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/rbac"
)

// Permissions are what is known of who may do what.
type Permissions struct {
	// Objects are the newest, if possible of a sample with all roles; nil if
	// nothing is known of the API.
	Objects *facts.Objects
	// Policy is what the roles allow; nil: not all of them are known.
	Policy *rbac.Policy

	reviews map[Asked]facts.Access
}

// Asked is a request of a user's.
type Asked struct {
	User string
	rbac.Request
}

// PermissionsOf reads what a case tells of permissions.
func PermissionsOf(c *facts.Case) *Permissions {
	p := &Permissions{reviews: map[Asked]facts.Access{}}
	for _, s := range slices.Backward(c.Samples) {
		if s.Objects != nil && (p.Objects == nil || !rolesKnown(p.Objects) && rolesKnown(s.Objects)) {
			p.Objects = s.Objects
		}
	}
	if o := p.Objects; rolesKnown(o) {
		p.Policy = rbac.New(o.Roles, o.RoleBindings, o.ClusterRoles, o.ClusterRoleBindings)
	}
	for _, s := range c.Samples { // the newest answer to each counts
		for _, a := range s.Access {
			p.reviews[Asked{a.User, rbac.Request{Verb: a.Verb, Group: a.Group, Resource: a.Resource, Namespace: a.Namespace, Name: a.Name}}] = a
		}
	}
	return p
}

// rolesKnown says whether all is known that can allow a thing in all
// namespaces.
func rolesKnown(o *facts.Objects) bool {
	return o.Complete("clusterroles.rbac.authorization.k8s.io") && o.Complete("clusterrolebindings.rbac.authorization.k8s.io")
}

// Review is what the API server said to a request's review.
func (p *Permissions) Review(a Asked) (facts.Access, bool) {
	review, has := p.reviews[a]
	return review, has
}

// May says whether a user may do something in all namespaces, as far as that is
// known. Another authorizer may allow what no role does.
func (p *Permissions) May(u rbac.User, r rbac.Request) (may, known bool) {
	review, reviewed := p.reviews[Asked{u.Name, r}]
	if p.Policy == nil || reviewed && review.Allowed {
		return review.Allowed, reviewed
	}
	_, may = p.Policy.May(u, r)
	return may, true
}
