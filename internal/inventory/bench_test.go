// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/fairlead-io/fairlead/internal/impact"
	"github.com/fairlead-io/fairlead/test/kube"
)

const (
	// accounts have a role, a binding and two pods each, and nothing in common.
	accounts = 2_500
	// others go with no one.
	others = 10_000
)

// BenchmarkCluster measures the parts of an answer on a real API server with
// 20 000 objects, on two cores that the API server and etcd share:
//
//   - named: what a selector names, 2 500 objects. Budget: 1 s.
//   - read: all lists. Budget: 20 s, 100 MB of memory kept (MB-kept), and 300 MB
//     taken from the system by all of it (MB-taken).
//   - judged: what goes, and what people would see of it, once the lists are
//     there, for 2 500 roles with their pods. Budget: 3 s.
func BenchmarkCluster(b *testing.B) {
	c := kube.Start(b)
	populate(b, c)
	getter := genericclioptions.NewConfigFlags(true)
	getter.KubeConfig = &c.Kubeconfig
	cache := b.TempDir()
	getter.CacheDir = &cache
	ctx := context.Background()
	args := Args{Words: []string{"clusterroles"}, LabelSelector: "many=yes"}
	var named *Named
	b.Run("named", func(b *testing.B) {
		for b.Loop() {
			var err error
			if named, err = Roots(ctx, getter, args); err != nil || len(named.Objects) != accounts {
				b.Fatal(err, len(named.Objects))
			}
		}
	})
	var state *impact.State
	b.Run("read", func(b *testing.B) {
		before := kept()
		for b.Loop() {
			var err error
			if state, err = Read(ctx, Config{REST: c.REST}); err != nil {
				b.Fatal(err)
			}
		}
		if n := len(state.Of(impact.Pods)); n != 2*accounts {
			b.Fatalf("%d pods were read", n)
		}
		b.ReportMetric(kept()-before, "MB-kept")
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		b.ReportMetric(float64(m.Sys)/1e6, "MB-taken")
	})
	b.Run("judged", func(b *testing.B) {
		for b.Loop() {
			roots, err := Complete(ctx, Config{REST: c.REST}, state, named.Objects)
			if err != nil {
				b.Fatal(err)
			}
			r := impact.Examine(state, impact.Delete(state, roots, impact.Background))
			if r.Worst() < impact.Breaks {
				b.Fatalf("%d consequences, none of them bad", len(r.Consequences))
			}
		}
	})
}

// kept is the memory in use, in megabytes.
func kept() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / 1e6
}

func populate(b *testing.B, c *kube.Cluster) {
	b.Helper()
	manyConfigMaps(b, c, "default", others)
	failures := make([]error, accounts)
	inParallel(accounts, func(i int) { failures[i] = populateAccount(c, i) })
	for _, err := range failures {
		if err != nil {
			b.Fatal(err)
		}
	}
}

func populateAccount(c *kube.Cluster, i int) error {
	ctx, name := context.Background(), fmt.Sprintf("many-%05d", i)
	meta := metav1.ObjectMeta{Name: name, Labels: map[string]string{"many": "yes"}}
	role := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"pods", "services"}, Verbs: []string{"get", "list", "watch"},
	}}}
	if _, err := c.Client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return err
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: name}},
	}
	if _, err := c.Client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return err
	}
	for replica := range 2 {
		if err := populatePod(c, fmt.Sprintf("%s-%d", name, replica), name); err != nil {
			return err
		}
	}
	return nil
}

// populatePod makes a pod that runs, as far as the API knows.
func populatePod(c *kube.Cluster, name, account string) error {
	ctx, pods := context.Background(), c.Client.CoreV1().Pods("default")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": account}},
		Spec: corev1.PodSpec{
			ServiceAccountName: account, NodeName: "n1",
			Containers: []corev1.Container{{Name: "main", Image: "main", Env: []corev1.EnvVar{{Name: "A", Value: "B"}}}},
			Volumes: []corev1.Volume{{Name: "settings", VolumeSource: corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "many-00000"}},
			}}},
		},
	}
	made, err := pods.Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	made.Status.Phase = corev1.PodRunning
	made.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	_, err = pods.UpdateStatus(ctx, made, metav1.UpdateOptions{})
	return err
}
