// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-io/fairlead/internal/impact"
	"github.com/fairlead-io/fairlead/test/kube"
)

const cluster = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Secret
metadata: {name: card-key, namespace: shop, labels: {team: pay}}
stringData: {key: hunter2}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, finalizers: [example.org/wait]}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web, env: [{name: KEY, value: hunter2}]}]}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: shop}
spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}
---
apiVersion: v1
kind: Event
metadata: {name: started, namespace: shop}
involvedObject: {kind: Pod, name: web, namespace: shop}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ships.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {plural: ships, singular: ship, kind: Ship, listKind: ShipList}
  versions:
  - {name: v2, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
  - {name: v1, served: true, storage: false, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ghosts.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {plural: ghosts, singular: ghost, kind: Ghost, listKind: GhostList}
  versions:
  - {name: v1, served: false, storage: true, schema: {openAPIV3Schema: {type: object}}}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.down.example.org}
spec:
  group: down.example.org
  version: v1
  groupPriorityMinimum: 100
  versionPriority: 10
  insecureSkipTLSVerify: true
  service: {namespace: shop, name: nobody}
`

const instances = `
apiVersion: example.org/v1
kind: Ship
metadata: {name: ketch, namespace: shop}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: rigging
  namespace: shop
  ownerReferences: [{apiVersion: example.org/v1, kind: Ship, name: ketch, uid: UID, controller: true}]
`

// fill gives a cluster one of everything that is special.
func fill(t *testing.T) *kube.Cluster {
	t.Helper()
	c := kube.Start(t)
	c.Apply(cluster)
	c.Kubectl("wait", "--for=condition=Established", "crd/ships.example.org", "--timeout=30s")
	ship, rigging, _ := strings.Cut(instances, "---")
	c.Apply(ship)
	uid := c.Kubectl("get", "ship", "-n", "shop", "ketch", "-o", "jsonpath={.metadata.uid}")
	c.Apply(strings.Replace(rigging, "UID", uid, 1))
	return c
}

func get(t *testing.T, s *impact.State, gr schema.GroupResource, namespace, name string) *impact.Object {
	t.Helper()
	o, ok := s.Get(impact.Key{GroupResource: gr, Namespace: namespace, Name: name})
	if !ok {
		t.Fatalf("%s %s/%s was not read", gr, namespace, name)
	}
	return o
}

func TestRead(t *testing.T) {
	c := fill(t)
	var mu sync.Mutex
	var told []string
	s, err := Read(t.Context(), Config{REST: c.REST, Doing: func(what string) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, what)
	}})
	if err != nil {
		t.Fatal(err)
	}
	ships := schema.GroupResource{Group: "example.org", Resource: "ships"}

	t.Run("what judges read is there in its type", func(t *testing.T) {
		service := get(t, s, impact.Services, "shop", "web").Content.(*corev1.Service)
		if service.Spec.Selector["app"] != "web" || service.Spec.Ports[0].Port != 80 {
			t.Errorf("the Service was read as %+v", service.Spec)
		}
		definition := get(t, s, impact.Definitions, "", "ships.example.org").Content.(*impact.Definition)
		if definition.Spec.Group != "example.org" || len(definition.Spec.Versions) != 2 || !definition.Spec.Versions[0].Served {
			t.Errorf("the definition was read as %+v", definition.Spec)
		}
		down := get(t, s, impact.APIServices, "", "v1.down.example.org").Content.(*impact.APIService)
		if down.Spec.Service == nil || down.Spec.Service.Name != "nobody" || len(down.Status.Conditions) == 0 {
			t.Errorf("the APIService was read as %+v", down)
		}
		for _, kind := range impact.Kinds() {
			if why := s.Unknown(kind.GroupResource()); why != "" {
				t.Errorf("%s: %s", kind.GroupResource(), why)
			}
			for _, o := range s.Of(kind.GroupResource()) {
				if o.Content == nil || o.UID == "" {
					t.Errorf("%s has no content or no UID", o)
				}
			}
		}
	})
	t.Run("objects of every other kind are there once, by the version that the API server prefers", func(t *testing.T) {
		ketch := get(t, s, ships, "shop", "ketch")
		if ketch.Resource.Version != "v2" || ketch.Resource.Kind != "Ship" || !ketch.Resource.Namespaced || ketch.Content != nil {
			t.Errorf("the Ship was read as %+v of %+v", ketch, ketch.Resource)
		}
		if n := len(s.Of(ships)); n != 1 {
			t.Errorf("%d Ships, want 1", n)
		}
		rigging := get(t, s, impact.ConfigMaps, "shop", "rigging")
		if len(rigging.Owners) != 1 || rigging.Owners[0].UID != ketch.UID || !rigging.Owners[0].Controller {
			t.Errorf("the ConfigMap's owners were read as %+v", rigging.Owners)
		}
		if web := get(t, s, impact.Deployments, "shop", "web"); !slices.Equal(web.Finalizers, []string{"example.org/wait"}) {
			t.Errorf("the Deployment's finalizers were read as %q", web.Finalizers)
		}
	})
	t.Run("what lies on the way and is no object is left out", func(t *testing.T) {
		for _, gr := range []schema.GroupResource{{Resource: "events"}, {Group: "events.k8s.io", Resource: "events"}, {Resource: "componentstatuses"}} {
			if n := len(s.Of(gr)); n != 0 {
				t.Errorf("%d %s were read", n, gr)
			}
		}
	})
	t.Run("Secrets are known by name, and text that may be one is not kept", func(t *testing.T) {
		secret := get(t, s, impact.Secrets, "shop", "card-key").Content.(*metav1.PartialObjectMetadata)
		if secret.Labels["team"] != "pay" {
			t.Errorf("the labels are %v", secret.Labels)
		}
		for o := range s.All() {
			if text := fmt.Sprintf("%+v", o.Content); strings.Contains(text, "hunter2") || strings.Contains(text, base64.StdEncoding.EncodeToString([]byte("hunter2"))) {
				t.Errorf("%s tells a secret: %s", o, text)
			}
		}
	})
	t.Run("a group whose server is down is not known", func(t *testing.T) {
		unknown(t, s, schema.GroupResource{Group: "down.example.org", Resource: "*"}, "the server behind their API group does not answer")
	})
	t.Run("objects that no version serves are not known", func(t *testing.T) {
		unknown(t, s, schema.GroupResource{Group: "example.org", Resource: "ghosts"}, "serves no version")
	})
	t.Run("progress is told", func(t *testing.T) {
		last := told[len(told)-1]
		if !strings.Contains(last, "kinds, ") || !strings.Contains(last, "objects so far") {
			t.Errorf("the last that was told is %q", last)
		}
	})
}

func unknown(t *testing.T, s *impact.State, gr schema.GroupResource, why string) {
	t.Helper()
	if have := s.Unknown(gr); have == "" || !strings.Contains(have, why) {
		t.Errorf("%s: unknown because of %q, want %q; unknown are %v", gr, have, why, s.Unknowns())
	}
}

func TestReadWithFewRights(t *testing.T) {
	c := fill(t)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "looks"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"list"},
	}}}
	if _, err := c.Client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Kubectl("create", "clusterrolebinding", "looks", "--clusterrole=looks", "--user="+kube.Limited)
	config, err := clientcmd.BuildConfigFromFlags("", c.LimitedKubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Read(t.Context(), Config{REST: config})
	if err != nil {
		t.Fatal(err)
	}
	get(t, s, impact.Services, "shop", "web")
	if why := s.Unknown(impact.Services); why != "" {
		t.Errorf("Services may be listed, and are unknown: %s", why)
	}
	unknown(t, s, impact.Pods, "does not let you list them")
	unknown(t, s, impact.Secrets, "does not let you list them")
}

// between lets something happen before a list's second page, and may change
// the request for it.
type between struct {
	next http.RoundTripper
	do   func(*http.Request)
}

func (b between) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Has("continue") {
		b.do(r)
	}
	return b.next.RoundTrip(r)
}

func through(config *rest.Config, do func(*http.Request)) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return between{next, do} })
	return config
}

// age makes the token of a request one of long ago, as it is after the pauses of
// a slow list.
func age(t *testing.T, r *http.Request) {
	query := r.URL.Query()
	token, err := base64.RawURLEncoding.DecodeString(query.Get("continue"))
	if err != nil {
		t.Error(err)
	}
	_, start, _ := strings.Cut(string(token), `"start":`)
	query.Set("continue", base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":2,"start":`+start)))
	r.URL.RawQuery = query.Encode()
}

func manyConfigMaps(t testing.TB, c *kube.Cluster, namespace string, n int) {
	t.Helper()
	failures := make([]error, n)
	inParallel(n, func(i int) {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("many-%05d", i), Labels: map[string]string{"many": "yes"}}}
		_, failures[i] = c.Client.CoreV1().ConfigMaps(namespace).Create(context.Background(), o, metav1.CreateOptions{})
	})
	for _, err := range failures {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestReadInPages(t *testing.T) {
	c := kube.Start(t)
	manyConfigMaps(t, c, "default", 2*pageSize+1)
	here := func(s *impact.State) int { return len(s.Of(impact.ConfigMaps)) }
	s, err := Read(t.Context(), Config{REST: c.REST})
	if err != nil {
		t.Fatal(err)
	}
	all := here(s)
	if all < 2*pageSize+1 {
		t.Fatalf("%d ConfigMaps were read, want %d", all, 2*pageSize+1)
	}

	old := func(r *http.Request) { age(t, r) }
	namespace, err := c.Client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.Compact(namespace.ResourceVersion)

	t.Run("a list that expires between its pages is begun again", func(t *testing.T) {
		var once sync.Once
		s, err := Read(t.Context(), Config{REST: through(c.REST, func(r *http.Request) { once.Do(func() { old(r) }) })})
		if err != nil {
			t.Fatal(err)
		}
		if n := here(s); n != all || s.Unknown(impact.ConfigMaps) != "" {
			t.Errorf("%d ConfigMaps, want %d; %s", n, all, s.Unknown(impact.ConfigMaps))
		}
	})
	t.Run("of a list that always expires the beginning is known", func(t *testing.T) {
		s, err := Read(t.Context(), Config{REST: through(c.REST, old)})
		if err != nil {
			t.Fatal(err)
		}
		if n := here(s); n != pageSize {
			t.Errorf("%d ConfigMaps, want the first page", n)
		}
		unknown(t, s, impact.ConfigMaps, "expired")
	})
	t.Run("objects that come and go meanwhile are no trouble", func(t *testing.T) {
		var once sync.Once
		s, err := Read(t.Context(), Config{REST: through(c.REST, func(*http.Request) {
			once.Do(func() { c.Kubectl("delete", "configmap", fmt.Sprintf("many-%05d", 2*pageSize), "many-00001") })
		})})
		if err != nil {
			t.Fatal(err)
		}
		if n := here(s); n < all-2 || s.Unknown(impact.ConfigMaps) != "" {
			t.Errorf("%d ConfigMaps of %d; %s", n, all, s.Unknown(impact.ConfigMaps))
		}
	})
	t.Run("an API server that goes away leaves everything unknown", func(t *testing.T) {
		var once sync.Once
		s, err := Read(t.Context(), Config{REST: through(c.REST, func(*http.Request) { once.Do(c.StopAPIServer) })})
		if err != nil {
			t.Fatal(err)
		}
		unknown(t, s, impact.ConfigMaps, "")
		if _, err := Read(t.Context(), Config{REST: c.REST}); err == nil || !strings.Contains(err.Error(), "ask https://127.0.0.1") {
			t.Errorf("without the API server: %v", err)
		}
	})
	t.Run("who stops waiting gets no half a cluster", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if s, err := Read(ctx, Config{REST: c.REST}); err == nil {
			t.Errorf("a state of %d kinds unknown", len(s.Unknowns()))
		}
	})
}
