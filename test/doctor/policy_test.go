// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/rbac"
	"github.com/fairlead-io/fairlead/test/kube"
)

// rolesYAML has each way in which a rule can be narrow, and in which a binding
// can.
const rolesYAML = `{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: t-watcher}, rules: [{apiGroups: ["", apps], resources: [pods, deployments], verbs: [list, watch]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: t-logs}, rules: [{apiGroups: [""], resources: ["*/log"], verbs: [get]}, {apiGroups: [""], resources: [configmaps], resourceNames: [settings], verbs: ["*"]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: t-apps}, rules: [{apiGroups: [apps], resources: ["*"], verbs: [get, list]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: t-own, namespace: shop}, rules: [{apiGroups: [""], resources: [pods], verbs: [delete]}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: t-sum}
aggregationRule: {clusterRoleSelectors: [{matchLabels: {t-part: "true"}}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: t-watchers}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: t-watcher}, subjects: [{kind: ServiceAccount, name: till, namespace: shop}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: t-all}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: t-logs}, subjects: [{kind: Group, name: "system:serviceaccounts:shop", apiGroup: rbac.authorization.k8s.io}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: t-gone}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: t-nobody-made}, subjects: [{kind: ServiceAccount, name: till, namespace: shop}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: t-lent, namespace: shop}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: t-apps}, subjects: [{kind: ServiceAccount, name: guest, namespace: kube-system}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: t-own, namespace: shop}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: t-own}, subjects: [{kind: ServiceAccount, name: till, namespace: shop}]}
`

// TestPolicyIsTheAPIServers asks a real API server every question to which its
// objects have a different answer, and package rbac the same.
func TestPolicyIsTheAPIServers(t *testing.T) {
	cluster := kube.Start(t)
	cluster.Apply(rolesYAML)
	policy := policyOf(t, cluster)
	reviewed := func(u rbac.User, r rbac.Request) bool {
		t.Helper()
		resource, sub, _ := strings.Cut(r.Resource, "/")
		review, err := cluster.Client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: u.Name, Groups: u.Groups, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: r.Verb, Group: r.Group, Resource: resource, Subresource: sub, Namespace: r.Namespace, Name: r.Name,
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return review.Status.Allowed
	}
	// The last object that was made is in force, and so are those before it.
	last := rbac.Request{Verb: "delete", Resource: "pods", Namespace: "shop"}
	for deadline := time.Now().Add(20 * time.Second); !reviewed(rbac.ServiceAccount("shop", "till"), last); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the roles are never in force")
		}
	}
	allowed, asked := 0, 0
	for _, user := range []rbac.User{rbac.ServiceAccount("shop", "till"), rbac.ServiceAccount("kube-system", "guest"), rbac.ServiceAccount("shop", "other"), {Name: "root", Groups: []string{"system:masters"}}} {
		for _, r := range questions() {
			asked++
			_, may := policy.May(user, r)
			want := reviewed(user, r)
			if may != want {
				t.Errorf("%s by %s: %v, and the API server says %v", r, user.Name, may, want)
			}
			if want {
				allowed++
			}
		}
	}
	if allowed < 50 || asked-allowed < 50 {
		t.Errorf("of %d questions %d are allowed: they tell too little", asked, allowed)
	}
}

func questions() (all []rbac.Request) {
	for _, verb := range []string{"get", "list", "delete"} {
		for _, of := range []rbac.Request{{Resource: "pods"}, {Resource: "pods/log"}, {Resource: "configmaps"}, {Group: "apps", Resource: "deployments"}, {Group: "apps", Resource: "deployments/scale"}} {
			for _, namespace := range []string{"", "shop", "default"} {
				for _, name := range []string{"", "settings"} {
					all = append(all, rbac.Request{Verb: verb, Group: of.Group, Resource: of.Resource, Namespace: namespace, Name: name})
				}
			}
		}
	}
	return all
}

func policyOf(t *testing.T, cluster *kube.Cluster) *rbac.Policy {
	t.Helper()
	ctx, api, all := t.Context(), cluster.Client.RbacV1(), metav1.ListOptions{}
	roles, err := api.Roles("").List(ctx, all)
	if err != nil {
		t.Fatal(err)
	}
	roleBindings, err := api.RoleBindings("").List(ctx, all)
	if err != nil {
		t.Fatal(err)
	}
	clusterRoles, err := api.ClusterRoles().List(ctx, all)
	if err != nil {
		t.Fatal(err)
	}
	clusterRoleBindings, err := api.ClusterRoleBindings().List(ctx, all)
	if err != nil {
		t.Fatal(err)
	}
	return rbac.New(pointers[rbacv1.Role](roles.Items), pointers[rbacv1.RoleBinding](roleBindings.Items),
		pointers[rbacv1.ClusterRole](clusterRoles.Items), pointers[rbacv1.ClusterRoleBinding](clusterRoleBindings.Items))
}

func pointers[T any](items []T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}
