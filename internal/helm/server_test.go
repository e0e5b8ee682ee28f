// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	helmtest "github.com/fairlead-io/fairlead/test/helm"
	"github.com/fairlead-io/fairlead/test/kube"
	"github.com/fairlead-io/fairlead/test/lab"
)

// TestReleasesOfTheRealHelm reads what helm itself has stored on an API server.
func TestReleasesOfTheRealHelm(t *testing.T) {
	cluster := kube.Start(t)
	helm := helmtest.New(t, cluster, lab.Place{})
	helm.Install("kube-system", "cilium", "cilium")
	helm.Run("upgrade", "cilium", helmtest.Chart(t, "cilium"), "-n", "kube-system", "--set", "operator.replicas=1")
	helm.Install("shop", "shop", "shop")
	ctx, client := t.Context(), cluster.Client

	t.Run("the deployed revision is found", func(t *testing.T) {
		r, err := Find(ctx, client, "kube-system", "cilium", 0)
		if err != nil {
			t.Fatal(err)
		}
		if r.Revision != 2 || r.Status != StatusDeployed || r.Chart != "cilium" || r.ChartVersion != "1.16.5" || r.Modified.IsZero() {
			t.Errorf("release = %+v", r)
		}
		if want := helm.Run("get", "manifest", "cilium", "-n", "kube-system"); strings.TrimSpace(r.Manifest) != strings.TrimSpace(want) {
			t.Errorf("manifest:\n%s\nhelm says:\n%s", r.Manifest, want)
		}
	})
	t.Run("an earlier one by its number", func(t *testing.T) {
		r, err := Find(ctx, client, "kube-system", "cilium", 1)
		if err != nil || r.Status != "superseded" || !strings.Contains(r.Manifest, "replicas: 2") {
			t.Errorf("release %+v, error %v", r, err)
		}
	})
	t.Run("definitions and hooks stand apart", func(t *testing.T) {
		r, err := Find(ctx, client, "shop", "shop", 0)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(r.Definitions, "prices.shop.example.com") || strings.Contains(r.Manifest, "CustomResourceDefinition") {
			t.Errorf("definitions:\n%s", r.Definitions)
		}
		if !slices.Equal(r.Hooks, []string{"ConfigMap announce"}) || strings.Contains(r.Manifest, "announce") {
			t.Errorf("hooks = %q", r.Hooks)
		}
	})
	t.Run("all are listed without their contents", func(t *testing.T) {
		all, err := List(ctx, client, "")
		if err != nil {
			t.Fatal(err)
		}
		var have []string
		for _, i := range all {
			have = append(have, fmt.Sprintf("%s/%s: %s", i.Namespace, i.Name, i.numbers()))
		}
		if want := []string{"kube-system/cilium: 2 (deployed), 1 (superseded)", "shop/shop: 1 (deployed)"}; !slices.Equal(have, want) {
			t.Errorf("have %q, want %q", have, want)
		}
	})
	t.Run("in ConfigMaps as well", func(t *testing.T) {
		secret, err := client.CoreV1().Secrets("kube-system").Get(ctx, "sh.helm.release.v1.cilium.v2", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: secret.Name, Namespace: "default", Labels: secret.Labels},
			Data: map[string]string{"release": string(secret.Data["release"])}}
		if _, err := client.CoreV1().ConfigMaps("default").Create(ctx, config, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if r, err := Find(ctx, client, "default", "cilium", 0); err != nil || r.Revision != 2 {
			t.Errorf("release %+v, error %v", r, err)
		}
	})
	t.Run("in parts", func(t *testing.T) { testParts(t, cluster) })
	t.Run("what cannot be read says why", func(t *testing.T) { testTroubles(t, cluster) })
	t.Run("who may not list them is told what is forbidden", func(t *testing.T) {
		config, err := clientcmd.BuildConfigFromFlags("", cluster.LimitedKubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		const want = `secrets is forbidden: User "limited" cannot list resource "secrets"`
		if _, err := List(t.Context(), client, "shop"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	})
}

// parts stores a release as those do who split it, by the name of each part.
func parts(t *testing.T, cluster *kube.Cluster, namespace string, data map[string]map[string][]byte) {
	t.Helper()
	cluster.Kubectl("create", "namespace", namespace)
	for name, fields := range data {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{"status": StatusDeployed}},
			Type: "helm.sh/release.v1", Data: fields}
		if _, err := cluster.Client.CoreV1().Secrets(namespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func release(data []byte) map[string][]byte { return map[string][]byte{"release": data} }

func testParts(t *testing.T, cluster *kube.Cluster) {
	data := encoded(zipped(whole))
	third := len(data) / 3
	a, b, c := data[:third], data[third:2*third], data[2*third:]
	const first = "sh.helm.release.v1.shop.v3"
	for namespace, kind := range map[string]struct {
		parts map[string]map[string][]byte
		want  string // of the error
	}{
		"numbered":  {map[string]map[string][]byte{first: release(a), first + ".2": release(b), first + ".3": release(c)}, ""},
		"partial":   {map[string]map[string][]byte{first: release(a), "sh.helm.partial.v1.shop.v3-1": release(b), "sh.helm.partial.v1.shop.v3-2": release(c)}, ""},
		"gap":       {map[string]map[string][]byte{first: release(a), first + ".3": release(c)}, "a part of the release is missing: the one before secrets/" + first + ".3"},
		"no-end":    {map[string]map[string][]byte{first: release(a), first + ".2": release(b)}, "2 parts were found: one after them may be missing"},
		"listed":    {map[string]map[string][]byte{first: {"chunk": zipped(whole)[:99], "extraChunks": []byte(`["more"]`)}, "more": {"chunk": zipped(whole)[99:]}}, ""},
		"not-there": {map[string]map[string][]byte{first: {"chunk": a, "extraChunks": []byte(`["more","most"]`)}, "more": {"chunk": b}}, "a part of the release is missing: secrets/most, part 3 of 3"},
		"no-list":   {map[string]map[string][]byte{first: {"chunk": a, "extraChunks": []byte(`7`)}}, "extraChunks of secrets/" + first + " is no list of names"},
	} {
		t.Run(namespace, func(t *testing.T) {
			parts(t, cluster, namespace, kind.parts)
			r, err := Find(t.Context(), cluster.Client, namespace, "shop", 0)
			if kind.want == "" && (err != nil || r.Manifest == "") {
				t.Errorf("release %+v, error %v", r, err)
			}
			if kind.want != "" && (err == nil || !strings.Contains(err.Error(), kind.want)) {
				t.Errorf("error %v, want %s", err, kind.want)
			}
		})
	}
}

func testTroubles(t *testing.T, cluster *kube.Cluster) {
	const first = "sh.helm.release.v1.shop.v3"
	parts(t, cluster, "corrupt", map[string]map[string][]byte{first: release([]byte("!"))})
	parts(t, cluster, "foreign", map[string]map[string][]byte{first: {"password": []byte("hunter2")}})
	parts(t, cluster, "another", map[string]map[string][]byte{"sh.helm.release.v1.shop.v4": release(encoded(zipped(whole)))})
	parts(t, cluster, "empty", nil)
	parts(t, cluster, "pending", map[string]map[string][]byte{first: release(encoded(zipped(whole)))})
	cluster.Kubectl("label", "secret", first, "-n", "pending", "--overwrite", "status=pending-upgrade")
	cluster.Kubectl("create", "configmap", "old.v1", "-n", "kube-system")
	cluster.Kubectl("label", "configmap", "old.v1", "-n", "kube-system", "OWNER=TILLER", "NAME=old")
	for _, c := range []struct {
		namespace, name string
		revision        int
		want            error
		says            string
	}{
		{"corrupt", "shop", 0, ErrCorrupt, "it is no base64"},
		{"foreign", "shop", 0, ErrForeign, "secrets/" + first + " of type helm.sh/release.v1"},
		{"another", "shop", 0, ErrCorrupt, `it says to be revision 3 of "shop"`},
		{"pending", "shop", 0, ErrNotDeployed, "only 3 (pending-upgrade)"},
		{"pending", "shop", 9, ErrNotFound, "with a revision 9: there are 3 (pending-upgrade)"},
		{"pending", "shelf", 0, ErrNotFound, "the namespace has shop"},
		{"empty", "shop", 0, ErrNotFound, "the namespace has none"},
		{"empty", "old", 0, ErrHelm2, "helm get manifest old"},
	} {
		t.Run(c.namespace+"/"+c.name, func(t *testing.T) {
			_, err := Find(t.Context(), cluster.Client, c.namespace, c.name, c.revision)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("error %v, want %v with %s", err, c.want, c.says)
			}
		})
	}
}
