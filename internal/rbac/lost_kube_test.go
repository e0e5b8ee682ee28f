// SPDX-License-Identifier: Apache-2.0

package rbac_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/rbac"
	"github.com/fairlead-io/fairlead/test/kube"
	"github.com/fairlead-io/fairlead/test/lab"
)

// granted has rules of which others grant a part: by verb, by name, in a
// namespace, by a group and by aggregation.
const granted = `{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: l-wide}, rules: [{apiGroups: ["", apps], resources: ["*"], verbs: ["*"]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: l-get}, rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: l-named}, rules: [{apiGroups: [""], resources: [configmaps], resourceNames: [settings], verbs: [get]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: l-part, labels: {l-part: "true"}}, rules: [{apiGroups: [batch], resources: [jobs], verbs: [get]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: l-stays, labels: {l-part: "true"}}, rules: [{apiGroups: [batch], resources: [jobs], verbs: [list]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: l-sum}, aggregationRule: {clusterRoleSelectors: [{matchLabels: {l-part: "true"}}]}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: l-wide}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: l-wide}, subjects: [{kind: ServiceAccount, name: till, namespace: shop}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: l-named}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: l-named}, subjects: [{kind: Group, name: "system:serviceaccounts:shop", apiGroup: rbac.authorization.k8s.io}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: l-sum}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: l-sum}, subjects: [{kind: ServiceAccount, name: till, namespace: shop}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: l-get, namespace: shop}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: l-get}, subjects: [{kind: ServiceAccount, name: till, namespace: shop}]}
`

// TestLostIsWhatAnAPIServerRefuses deletes two roles on a real API server, where
// Kubernetes' own controller aggregates: what it allows before and refuses after
// is what was said to be lost.
func TestLostIsWhatAnAPIServerRefuses(t *testing.T) {
	cluster := kube.Start(t)
	startAggregation(t, cluster)
	cluster.Apply(granted)
	user := rbac.ServiceAccount("shop", "till")
	list, get := rbac.Request{Verb: "list", Group: "batch", Resource: "jobs"}, rbac.Request{Verb: "get", Group: "batch", Resource: "jobs"}
	eventually(t, "both parts are aggregated, and in force", func() bool { return reviewed(t, cluster, user, list) && reviewed(t, cluster, user, get) })

	before, roles := read(t, cluster)
	gone := map[rbac.Ref]bool{{Kind: "ClusterRole", Name: "l-wide"}: true, {Kind: "ClusterRole", Name: "l-part"}: true}
	rest := slices.DeleteFunc(slices.Clone(roles), func(r *rbacv1.ClusterRole) bool { return gone[rbac.Ref{Kind: "ClusterRole", Name: r.Name}] })
	losses := rbac.Lost(before, before.Without(gone, rbac.Aggregate(rest)), user)
	was := map[rbac.Request]bool{}
	for _, r := range asked() {
		was[r] = reviewed(t, cluster, user, r)
	}

	cluster.Kubectl("delete", "clusterrole", "l-wide", "l-part")
	eventually(t, "both are gone, from the aggregated role as well", func() bool {
		return !reviewed(t, cluster, user, get) && !reviewed(t, cluster, user, rbac.Request{Verb: "delete", Resource: "pods"})
	})
	lost := 0
	for _, r := range asked() {
		is := reviewed(t, cluster, user, r)
		covered := slices.ContainsFunc(losses, func(l rbac.Loss) bool { return l.Covers(r) })
		if covered != (was[r] && !is) {
			t.Errorf("%s: said to be lost: %v; the API server says before %v, after %v", r, covered, was[r], is)
		}
		if covered {
			lost++
		}
	}
	if lost < 10 || len(asked())-lost < 10 {
		t.Errorf("of %d requests %d are lost: they tell too little", len(asked()), lost)
	}
	if _, now := read(t, cluster); len(rbac.Aggregate(now)) != len(now) || !slices.Equal(rbac.Aggregate(now), now) {
		t.Error("the controller aggregates otherwise than Aggregate does")
	}
	t.Run("the token of an account that goes is taken for nobody's", func(t *testing.T) { accountGoes(t, cluster) })
}

func accountGoes(t *testing.T, cluster *kube.Cluster) {
	cluster.Kubectl("--namespace", "shop", "create", "serviceaccount", "till")
	config := rest.AnonymousClientConfig(cluster.REST)
	config.BearerToken = strings.TrimSpace(cluster.Kubectl("--namespace", "shop", "create", "token", "till"))
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	// RoleBinding shop/l-get still grants that.
	get := func() error {
		_, err := client.CoreV1().Pods("shop").Get(t.Context(), "none", metav1.GetOptions{})
		return err
	}
	eventually(t, "it may look for a pod", func() bool { return apierrors.IsNotFound(get()) })
	cluster.Kubectl("--namespace", "shop", "delete", "serviceaccount", "till")
	eventually(t, "its token is refused", func() bool { return apierrors.IsUnauthorized(get()) })
}

func startAggregation(t *testing.T, cluster *kube.Cluster) {
	t.Helper()
	lab.Place{}.Start(t, cluster.Program("kube-controller-manager"), "--kubeconfig="+cluster.Kubeconfig,
		"--controllers=clusterrole-aggregation-controller", "--leader-elect=false", "--secure-port=0")
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !is(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func reviewed(t *testing.T, cluster *kube.Cluster, u rbac.User, r rbac.Request) bool {
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

func asked() (all []rbac.Request) {
	for _, verb := range []string{"get", "list", "delete"} {
		for _, of := range []rbac.Request{{Resource: "pods"}, {Resource: "configmaps"}, {Group: "apps", Resource: "deployments/scale"}, {Group: "batch", Resource: "jobs"}} {
			for _, namespace := range []string{"", "shop", "default"} {
				for _, name := range []string{"", "settings"} {
					all = append(all, rbac.Request{Verb: verb, Group: of.Group, Resource: of.Resource, Namespace: namespace, Name: name})
				}
			}
		}
	}
	return all
}

// read is the policy of a cluster, with its ClusterRoles.
func read(t *testing.T, cluster *kube.Cluster) (*rbac.Policy, []*rbacv1.ClusterRole) {
	t.Helper()
	api, all := cluster.Client.RbacV1(), metav1.ListOptions{}
	roles, err := api.ClusterRoles().List(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	clusterBindings, err := api.ClusterRoleBindings().List(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	bindings, err := api.RoleBindings("").List(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	return rbac.New(nil, pointers(bindings.Items), pointers(roles.Items), pointers(clusterBindings.Items)), pointers(roles.Items)
}

func pointers[T any](items []T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}
