// SPDX-License-Identifier: Apache-2.0

package impacttest_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/impact"
	"github.com/fairlead-io/fairlead/internal/impact/impacttest"
	"github.com/fairlead-io/fairlead/test/kube"
	"github.com/fairlead-io/fairlead/test/lab"
)

// TestServer holds what Delete and the judges say against a real API server and
// the real garbage collector.
func TestServer(t *testing.T) {
	c := kube.Start(t)
	lab.Place{}.Start(t, c.Program("kube-controller-manager"), "--kubeconfig="+c.Kubeconfig, "--leader-elect=false", "--secure-port=0",
		"--controllers=garbage-collector-controller,namespace-controller", "--concurrent-gc-syncs=20")
	t.Run("owners", func(t *testing.T) { owners(t, c) })
	t.Run("namespaces", func(t *testing.T) { namespaces(t, c) })
	t.Run("definitions", func(t *testing.T) { definitions(t, c) })
	t.Run("a definition that serves no version", func(t *testing.T) { notServed(t, c) })
	t.Run("a finalizer", func(t *testing.T) { finalizer(t, c) })
}

// owners: objects that own each other at random, rings and owners in another
// namespace included, some of which are deleted in each of the three ways. What
// is left in the end is what Delete leaves.
func owners(t *testing.T, c *kube.Cluster) {
	for i, cascade := range []impact.Cascade{impact.Background, impact.Foreground, impact.Orphan, impact.Background, impact.Orphan} {
		t.Run(fmt.Sprintf("%d %s", i, cascade), func(t *testing.T) {
			t.Parallel()
			chance := rand.New(rand.NewPCG(7, uint64(i)))
			namespaces := []string{fmt.Sprint("a-", i), fmt.Sprint("b-", i)}
			tangle(t, c, namespaces, chance)
			live := settled(t, c, namespaces)
			s := impact.NewState(time.Now())
			for _, m := range live {
				s.Add(m)
			}
			objects := slices.SortedFunc(maps.Values(live), func(a, b *impact.Object) int { return strings.Compare(a.String(), b.String()) })
			var roots []*impact.Object
			for range 8 {
				roots = append(roots, objects[chance.IntN(len(objects))])
			}
			d := impact.Delete(s, roots, cascade)
			want := map[string]bool{}
			for name, o := range live {
				if _, gone := d.Gone(o); !gone {
					want[name] = true
				}
			}
			for _, root := range roots {
				c.Kubectl("delete", "configmap", root.Name, "-n", root.Namespace, "--cascade="+string(cascade), "--wait=false", "--ignore-not-found")
			}
			left := map[string]bool{}
			for name := range settled(t, c, namespaces) {
				left[name] = true
			}
			if diff := cmp.Diff(want, left); diff != "" {
				t.Errorf("deleting %v leaves others (- foreseen, + left):\n%s", roots, diff)
			}
			t.Logf("%d objects, %d roots, %d gone", len(live), len(roots), len(d.Objects()))
		})
	}
}

// tangle makes ConfigMaps, and then has each owned by up to three others.
func tangle(t *testing.T, c *kube.Cluster, namespaces []string, chance *rand.Rand) {
	t.Helper()
	const each = 30
	var made []*corev1.ConfigMap
	for _, namespace := range namespaces {
		c.Kubectl("create", "namespace", namespace)
		for i := range each {
			m, err := c.Client.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("m", i)}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			made = append(made, m)
		}
	}
	for i, m := range made {
		for range chance.IntN(4) {
			// Most owners are of the same namespace, as they ought to be.
			owner := made[i/each*each+chance.IntN(each)]
			if chance.IntN(10) == 0 {
				owner = made[chance.IntN(len(made))]
			}
			ref := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}
			if !slices.Contains(m.OwnerReferences, ref) {
				m.OwnerReferences = append(m.OwnerReferences, ref)
			}
		}
		if _, err := c.Client.CoreV1().ConfigMaps(m.Namespace).Update(t.Context(), m, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			t.Fatal(err)
		}
	}
}

// settled are the ConfigMaps once nothing was deleted for three seconds.
func settled(t *testing.T, c *kube.Cluster, namespaces []string) map[string]*impact.Object {
	t.Helper()
	const quiet, patience = 3 * time.Second, 90 * time.Second
	var last map[string]*impact.Object
	since, end := time.Now(), time.Now().Add(patience)
	for ; time.Since(since) < quiet; time.Sleep(200 * time.Millisecond) {
		now := configMaps(t.Context(), t, c, namespaces)
		if last == nil || len(now) != len(last) || slices.ContainsFunc(slices.Collect(maps.Values(now)), func(o *impact.Object) bool { return o.Deleting }) {
			since = time.Now()
		}
		if last = now; time.Now().After(end) {
			t.Fatalf("the garbage collector is not done after %s", patience)
		}
	}
	return last
}

func configMaps(ctx context.Context, t *testing.T, c *kube.Cluster, namespaces []string) map[string]*impact.Object {
	t.Helper()
	resource := &impact.Resource{GroupVersionResource: impact.ConfigMaps.WithVersion("v1"), Kind: "ConfigMap", Namespaced: true}
	out := map[string]*impact.Object{}
	for _, namespace := range namespaces {
		list, err := c.Client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			o := impact.NewObject(resource, &metav1.PartialObjectMetadata{ObjectMeta: list.Items[i].ObjectMeta})
			out[o.String()] = o
		}
	}
	return out
}

// namespaces: those that a report says are refused are those that the API
// server does not let go.
func namespaces(t *testing.T, c *kube.Cluster) {
	c.Kubectl("create", "namespace", "shop")
	for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease", "shop"} {
		s := impacttest.State(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+name+"}}")
		said := len(impacttest.Find(impacttest.Report(t, s, "Namespace/"+name), "namespace-refused")) > 0
		err := c.Client.CoreV1().Namespaces().Delete(t.Context(), name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsForbidden(err) != said {
			t.Errorf("%s: refused is foreseen as %v, and the API server says: %v", name, said, err)
		}
	}
}

const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: crontabs.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: crontabs, singular: crontab, kind: CronTab, listKind: CronTabList}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`

const crontab = `{apiVersion: example.com/v1, kind: CronTab, metadata: {name: nightly, namespace: default}}`

func establish(c *kube.Cluster) {
	c.Apply(definition)
	c.Kubectl("wait", "--for=condition=Established", "customresourcedefinition/crontabs.example.com", "--timeout=60s")
}

// definitions: the objects go with their definition, and it does not bring them
// back.
func definitions(t *testing.T, c *kube.Cluster) {
	establish(c)
	eventually(t, c, "create", "-f", written(t, crontab))
	foreseen(t, "goes with its definition", true)
	c.Kubectl("delete", "customresourcedefinition", "crontabs.example.com", "--timeout=60s")
	establish(c)
	if got := eventually(t, c, "get", "crontabs", "-A", "-o", "name"); got != "" {
		t.Errorf("a definition that is there again has %q", got)
	}
	c.Kubectl("delete", "customresourcedefinition", "crontabs.example.com", "--timeout=60s")
}

func foreseen(t *testing.T, what string, want bool) {
	t.Helper()
	s := impacttest.State(t, "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: crontabs.example.com}, spec: {group: example.com, names: {plural: crontabs, kind: CronTab}, versions: [{served: true}]}}\n---\n"+crontab)
	d := impacttest.Delete(t, s, impact.Background, "CustomResourceDefinition/crontabs.example.com")
	if gone := d.GoneKey(s, impacttest.Roots(t, s, "CronTab/default/nightly")[0].Key()); gone != want {
		t.Errorf("an object %s: %v is foreseen, want %v", what, gone, want)
	}
}

// notServed: what is stored of a kind that is not served cannot be listed, and
// goes with the definition all the same.
func notServed(t *testing.T, c *kube.Cluster) {
	establish(c)
	eventually(t, c, "create", "-f", written(t, crontab))
	c.Apply(strings.Replace(definition, "served: true", "served: false", 1))
	unlisted := func() bool {
		_, err := c.Client.CoreV1().RESTClient().Get().AbsPath("/apis/example.com/v1/crontabs").DoRaw(t.Context())
		return apierrors.IsNotFound(err)
	}
	until(t, "the kind is served no more", unlisted)
	c.Kubectl("delete", "customresourcedefinition", "crontabs.example.com", "--timeout=60s")
	establish(c)
	if got := eventually(t, c, "get", "crontabs", "-A", "-o", "name"); got != "" {
		t.Errorf("what nobody could see did not go: %q", got)
	}
	c.Kubectl("delete", "customresourcedefinition", "crontabs.example.com", "--timeout=60s")
}

// finalizer: a definition hangs on the finalizer of an object that nobody takes
// away, and goes once somebody does.
func finalizer(t *testing.T, c *kube.Cluster) {
	establish(c)
	held := strings.Replace(crontab, "name: nightly", "name: nightly, finalizers: [example.com/backup]", 1)
	eventually(t, c, "create", "-f", written(t, held))
	s := impacttest.State(t, "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: crontabs.example.com}, spec: {group: example.com, names: {plural: crontabs, kind: CronTab}, versions: [{served: true}]}}\n---\n"+held)
	found := impacttest.Find(impacttest.Report(t, s, "CustomResourceDefinition/crontabs.example.com"), "hangs")
	if len(found) != 1 || !strings.Contains(strings.Join(found[0].Detail, "\n"), "CustomResourceDefinition crontabs.example.com is not gone either") {
		t.Errorf("it is not foreseen that the definition hangs: %+v", found)
	}
	c.Kubectl("delete", "customresourcedefinition", "crontabs.example.com", "--wait=false")
	const hanging = "{.metadata.deletionTimestamp}{.metadata.finalizers}"
	until(t, "the object is being deleted", func() bool {
		return strings.Contains(c.Kubectl("get", "crontab", "nightly", "-o", "jsonpath="+hanging), "Z[\"example.com/backup\"]")
	})
	if got := c.Kubectl("get", "customresourcedefinition", "crontabs.example.com", "-o", "name"); got == "" {
		t.Error("the definition does not hang")
	}
	c.Kubectl("patch", "crontab", "nightly", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	c.Kubectl("wait", "--for=delete", "customresourcedefinition/crontabs.example.com", "--timeout=60s")
}

// written is a file with a text.
func written(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// eventually runs kubectl once the API serves the kind, which takes a moment
// after its definition is established.
func eventually(t *testing.T, c *kube.Cluster, args ...string) string {
	t.Helper()
	until(t, "crontabs are served", func() bool {
		_, err := c.Client.CoreV1().RESTClient().Get().AbsPath("/apis/example.com/v1/crontabs").DoRaw(t.Context())
		return err == nil
	})
	return c.Kubectl(args...)
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after a minute it is still not so that %s", what)
		}
	}
}
