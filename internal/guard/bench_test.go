// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/internal/impact"
	"github.com/fairlead-io/fairlead/internal/impact/impacttest"
)

// stacks is how many of stack make 20 000 objects.
const stacks = 2000

// stack is a part of a cluster: five pods, the Service that they serve with its
// slice, and their account with what it may do.
func stack(i int) []metav1.Object {
	name := fmt.Sprint("app-", i)
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Namespace: "apps", UID: types.UID(name)}
	}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: meta(name + "-a"), AddressType: discoveryv1.AddressTypeIPv4}
	slice.Labels = map[string]string{discoveryv1.LabelServiceName: name}
	out := []metav1.Object{
		&corev1.ServiceAccount{ObjectMeta: meta(name)},
		&rbacv1.Role{ObjectMeta: meta(name), Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}}}},
		&rbacv1.RoleBinding{
			ObjectMeta: meta(name), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: "apps"}},
		},
		&corev1.Service{ObjectMeta: meta(name), Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": name}}},
		slice,
	}
	for j := range 5 {
		pod := &corev1.Pod{ObjectMeta: meta(fmt.Sprint(name, "-", j)), Status: corev1.PodStatus{Phase: corev1.PodRunning}}
		pod.Labels = map[string]string{"app": name}
		pod.Spec = corev1.PodSpec{NodeName: fmt.Sprint("node-", i%100), ServiceAccountName: name, Containers: []corev1.Container{{Name: "app", Image: "example.com/app"}}}
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.%d.%d.%d", j, i/250, i%250+1)}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "apps", Name: pod.Name},
		})
		out = append(out, pod)
	}
	return out
}

// resourceOf is as what judges know an object of a stack.
func resourceOf(o metav1.Object) *impact.Resource {
	of := func(gr schema.GroupResource, kind string) *impact.Resource {
		return &impact.Resource{GroupVersionResource: gr.WithVersion("v1"), Kind: kind, Namespaced: true}
	}
	switch o.(type) {
	case *corev1.ServiceAccount:
		return of(impact.ServiceAccounts, "ServiceAccount")
	case *rbacv1.Role:
		return of(impact.Roles, "Role")
	case *rbacv1.RoleBinding:
		return of(impact.RoleBindings, "RoleBinding")
	case *corev1.Service:
		return of(impact.Services, "Service")
	case *discoveryv1.EndpointSlice:
		return of(impact.EndpointSlices, "EndpointSlice")
	}
	return of(impact.Pods, "Pod")
}

// clusterOf is a Cluster that has listed the objects of clusterYAML and of
// stacks.
func clusterOf(b *testing.B) *Cluster {
	b.Helper()
	c := newCluster((&journal{}).logger())
	lists := map[schema.GroupResource]*follower{}
	for _, kind := range Watched(false) {
		f := newFollower(kind, func() { signal(c.changed) })
		f.listed = true
		lists[kind.GroupResource()] = f
		c.followers = append(c.followers, f)
	}
	add := func(o *impact.Object) { lists[o.Resource.GroupResource()].objects[nameOf(o)] = o }
	for o := range impacttest.State(b, clusterYAML).All() {
		add(o)
	}
	for i := range stacks {
		for _, o := range stack(i) {
			add(impact.NewObject(resourceOf(o), o))
		}
	}
	c.refresh()
	return c
}

// BenchmarkReview is a question and its answer without the network, at 20 000
// objects, of which the API server sees no more than 5 ms at the median with
// everything else.
func BenchmarkReview(b *testing.B) {
	c := clusterOf(b)
	s, err := c.State()
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range []string{"ClusterRole/cilium", "ClusterRoleBinding/cilium", "Service/apps/app-7", "RoleBinding/apps/app-7", "Pod/apps/app-7-1", "ServiceAccount/apps/app-7"} {
		b.Run(strings.ReplaceAll(name, "/", "-"), func(b *testing.B) {
			body := reviewBody(b, request(b, s, name, dryRun))
			h := New(c, true, NewMetrics(func() bool { return true }), c.log).Handler()
			b.ReportAllocs()
			for b.Loop() {
				answer := ask(h, "POST", "/validate", "application/json", body)
				if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != 200 {
					b.Fatal(answer.Status, err)
				}
			}
		})
	}
}

// BenchmarkRefresh is what a change costs in the background, at 20 000 objects:
// 100 ms, which is a tenth of a core at one a second.
func BenchmarkRefresh(b *testing.B) {
	c := clusterOf(b)
	b.ReportAllocs()
	for b.Loop() {
		c.refresh()
	}
}

// deletes is how many objects BenchmarkDelete deletes of each sort.
const deletes = 300

// BenchmarkDelete deletes ClusterRoles on a real API server with 20 000 objects,
// in turns one about which the guard is asked and one about which it is not. The
// metric added-ms is what asking adds at the median: less than 5 ms. Filling the
// cluster takes minutes, so run it with -benchtime 1x.
func BenchmarkDelete(b *testing.B) {
	l := startLive(b)
	l.options.AllRBAC = false
	l.apply(b)
	l.populate(b)
	fill(b, l)
	var took [2][]time.Duration
	for b.Loop() {
		names := roles(b, l)
		for i, name := range names {
			began := time.Now()
			if err := l.Client.RbacV1().ClusterRoles().Delete(b.Context(), name, metav1.DeleteOptions{}); err != nil {
				b.Fatal(err)
			}
			took[i%2] = append(took[i%2], time.Since(began))
		}
	}
	b.ReportMetric(medianMS(took[0]), "asked-ms")
	b.ReportMetric(medianMS(took[1]), "unasked-ms")
	b.ReportMetric(medianMS(took[0])-medianMS(took[1]), "added-ms")
	if n := strings.Count(l.log.String(), `"object":"ClusterRole bench-`); n != len(took[0]) {
		b.Fatalf("the guard was asked %d times for %d deletes", n, len(took[0]))
	}
}

// roles creates ClusterRoles, every other one guarded, and waits for the guard to
// know them.
func roles(b *testing.B, l *live) []string {
	b.Helper()
	names := make([]string, 2*deletes)
	for i := range names {
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("bench-", i)}}
		if i%2 == 0 {
			role.Labels = map[string]string{Label: LabelOn}
		}
		if _, err := l.Client.RbacV1().ClusterRoles().Create(b.Context(), role, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
		names[i] = role.Name
	}
	l.knows(b, impact.Key{GroupResource: impact.ClusterRoles, Name: names[len(names)-1]}, true)
	return names
}

func medianMS(all []time.Duration) float64 {
	slices.Sort(all)
	return float64(all[len(all)/2].Microseconds()) / 1000
}

// fill creates the objects of all stacks, and waits for the guard to know them.
func fill(b *testing.B, l *live) {
	b.Helper()
	l.Kubectl("create", "namespace", "apps")
	numbers := make(chan int)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for i := range numbers {
				for _, o := range stack(i) {
					if err := create(b.Context(), l.Client, o); err != nil {
						b.Errorf("create %s: %v", o.GetName(), err)
					}
				}
			}
		})
	}
	for i := range stacks {
		numbers <- i
	}
	close(numbers)
	workers.Wait()
	eventually(b, "the guard knows all objects", func() error {
		s, err := l.cluster.State()
		if err != nil {
			return err
		}
		if n := len(s.Inside("apps")); n < 10*stacks {
			return fmt.Errorf("%d objects", n)
		}
		return nil
	})
}

func create(ctx context.Context, client kubernetes.Interface, o metav1.Object) (err error) {
	o.SetUID("")
	switch o := o.(type) {
	case *corev1.ServiceAccount:
		_, err = client.CoreV1().ServiceAccounts(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
	case *rbacv1.Role:
		_, err = client.RbacV1().Roles(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
	case *rbacv1.RoleBinding:
		_, err = client.RbacV1().RoleBindings(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
	case *corev1.Service:
		_, err = client.CoreV1().Services(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
	case *discoveryv1.EndpointSlice:
		_, err = client.DiscoveryV1().EndpointSlices(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
	case *corev1.Pod:
		_, err = client.CoreV1().Pods(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
	default:
		err = fmt.Errorf("nobody creates %T", o)
	}
	return err
}
