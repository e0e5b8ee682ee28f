// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/fairlead-io/fairlead/internal/impact"
)

// binding is a RoleBinding or a ClusterRoleBinding.
type binding struct {
	object   *impact.Object
	role     rbacv1.RoleRef
	subjects []rbacv1.Subject
}

func bindingOf(o *impact.Object) (binding, bool) {
	switch b := o.Content.(type) {
	case *rbacv1.ClusterRoleBinding:
		return binding{o, b.RoleRef, b.Subjects}, true
	case *rbacv1.RoleBinding:
		return binding{o, b.RoleRef, b.Subjects}, true
	}
	return binding{}, false
}

// lastGrants says for whom one other binding is then the last that gives the
// same role, if the object is a binding: nothing breaks yet, and the next
// delete would.
func lastGrants(s *impact.State, d *impact.Deletion, o *impact.Object) []string {
	gone, is := bindingOf(o)
	if !is {
		return nil
	}
	left := same(s, d, gone)
	var out []string
	for _, subject := range gone.subjects {
		var holders []binding
		for _, b := range left {
			if slices.ContainsFunc(b.subjects, func(other rbacv1.Subject) bool { return b.account(other) == gone.account(subject) }) {
				holders = append(holders, b)
			}
		}
		if len(holders) == 1 {
			out = append(out, fmt.Sprintf("%s is then the last that gives %s %s to %s", holders[0].object, gone.role.Kind, gone.role.Name, gone.account(subject)))
		}
	}
	return out[:min(len(out), mostTold)]
}

// same are the bindings of the same role that stay, and hold wherever the one
// that goes does.
func same(s *impact.State, d *impact.Deletion, gone binding) []binding {
	candidates := s.Of(impact.ClusterRoleBindings)
	if gone.object.Namespace != "" {
		candidates = slices.Concat(candidates, s.Of(impact.RoleBindings))
	}
	var out []binding
	for _, o := range candidates {
		b, ok := bindingOf(o)
		if !ok || b.role.Name != gone.role.Name || b.role.Kind != gone.role.Kind || o.Namespace != "" && o.Namespace != gone.object.Namespace {
			continue
		}
		if _, goes := d.Gone(o); !goes {
			out = append(out, b)
		}
	}
	return out
}

// account names a subject as people do. An account without a namespace is one
// of the binding's.
func (b binding) account(s rbacv1.Subject) string {
	if s.Kind != rbacv1.ServiceAccountKind {
		return s.Kind + " " + s.Name
	}
	if s.Namespace == "" {
		s.Namespace = b.object.Namespace
	}
	return s.Kind + " " + s.Namespace + "/" + s.Name
}
