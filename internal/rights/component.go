// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead/internal/rbac"
)

// ComponentsOf are the components that are known to be a user: by a certificate
// of their own, by the pods of a service account, or, where there are none, by
// the name that installers give to the account.
func ComponentsOf(user rbac.User, pods []corev1.Pod) []rbac.Component {
	which := func(is func(*rbac.Component) bool) []rbac.Component {
		return slices.DeleteFunc(rbac.Components(), func(c rbac.Component) bool { return !is(&c) })
	}
	_, account := rbac.AccountOf(user.Name)
	if account == "" {
		return which(func(c *rbac.Component) bool { return c.User == user.Name })
	}
	found := which(func(c *rbac.Component) bool {
		return slices.ContainsFunc(pods, func(p corev1.Pod) bool { return c.Runs(p.Labels, &p.Spec) })
	})
	if len(found) > 0 {
		return found
	}
	return which(func(c *rbac.Component) bool { return c.Account == account })
}
