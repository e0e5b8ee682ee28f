// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/impact"
	"github.com/fairlead-io/fairlead/test/kube"
)

// asAdmin is the way to a cluster, in a namespace; "" is that of the kubeconfig.
func asAdmin(t *testing.T, c *kube.Cluster, namespace string) *genericclioptions.ConfigFlags {
	t.Helper()
	getter, cache := genericclioptions.NewConfigFlags(true), t.TempDir()
	getter.KubeConfig, getter.CacheDir, getter.Namespace = &c.Kubeconfig, &cache, &namespace
	return getter
}

func names(objects []*impact.Object) (names []string) {
	for _, o := range objects {
		name := strings.ToLower(o.Resource.Kind)
		if o.Resource.Group != "" {
			name += "." + o.Resource.Group
		}
		names = append(names, name+"/"+o.Name)
	}
	return names
}

// What is named is what kubectl itself would delete, in its order.
func TestRootsAreKubectls(t *testing.T) {
	c := fill(t)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.yaml":           "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n",
		"more/b.json":      `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"card-key","namespace":"shop"}}`,
		"more/ignored.txt": "nothing",
		"all.yaml": "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: example.org/v1, kind: Ship, metadata: {name: ketch}}\n" +
			"- {apiVersion: v1, kind: Namespace, metadata: {name: shop}}\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	for _, test := range []struct {
		flags []string // of kubectl, with the same meaning as
		args  Args
		n     int
	}{
		{[]string{"service", "web"}, Args{Words: []string{"service", "web"}}, 1},
		{[]string{"svc/web", "deploy/web", "hpa/web"}, Args{Words: []string{"svc/web", "deploy/web", "hpa/web"}}, 3},
		{[]string{"hpa.v1.autoscaling", "web"}, Args{Words: []string{"hpa.v1.autoscaling", "web"}}, 1},
		{[]string{"ships.v1.example.org", "ketch"}, Args{Words: []string{"ships.v1.example.org", "ketch"}}, 1},
		{[]string{"configmaps,secrets", "--all"}, Args{Words: []string{"configmaps,secrets"}, All: true}, 2},
		{[]string{"all", "--all"}, Args{Words: []string{"all"}, All: true}, 3},
		{[]string{"secrets", "-l", "team in (pay)"}, Args{Words: []string{"secrets"}, LabelSelector: "team in (pay)"}, 1},
		{[]string{"services", "-A", "--field-selector", "metadata.name!=web"},
			Args{Words: []string{"services"}, AllNamespaces: true, FieldSelector: "metadata.name!=web"}, 1},
		{[]string{"clusterroles", "-l", "rbac.authorization.k8s.io/aggregate-to-view=true"},
			Args{Words: []string{"clusterroles"}, LabelSelector: "rbac.authorization.k8s.io/aggregate-to-view=true"}, 1},
		{[]string{"-f", dir}, Args{Files: resource.FilenameOptions{Filenames: []string{dir}}}, 3},
		{[]string{"-f", dir, "-R"}, Args{Files: resource.FilenameOptions{Filenames: []string{dir}, Recursive: true}}, 4},
		{[]string{"-f", file("all.yaml"), "-f", file("a.yaml")},
			Args{Files: resource.FilenameOptions{Filenames: []string{file("all.yaml"), file("a.yaml")}}}, 3},
	} {
		t.Run(strings.ReplaceAll(strings.Join(test.flags, " "), dir, "DIR"), func(t *testing.T) {
			namespace, command := "shop", []string{"delete", "--dry-run=client", "-o", "name"}
			if test.args.AllNamespaces {
				namespace = ""
			} else {
				command = append(command, "-n", namespace)
			}
			doing := ""
			test.args.Doing = func(what string) { doing = what }
			found, err := Roots(t.Context(), asAdmin(t, c, namespace), test.args)
			if err != nil || len(found.Troubles) > 0 {
				t.Fatal(err, found)
			}
			if want := fmt.Sprintf(": %d objects so far", test.n); !strings.HasSuffix(doing, want) {
				t.Errorf("it said %q, want %q", doing, want)
			}
			have := names(found.Objects)
			want := strings.Fields(c.Kubectl(append(command, test.flags...)...))
			if !slices.Equal(have, want) {
				t.Errorf("have %q, kubectl has %q", have, want)
			}
			if len(have) != test.n {
				t.Errorf("%d objects, want %d: %q", len(have), test.n, have)
			}
			for _, o := range found.Objects {
				if o.UID == "" {
					t.Errorf("%s is not the one that there is", o)
				}
			}
		})
	}
}

func TestRootsThatAreNotThere(t *testing.T) {
	c := fill(t)
	found, err := Roots(t.Context(), asAdmin(t, c, "shop"), Args{Words: []string{"service", "lost", "web"}})
	if err != nil {
		t.Fatal(err)
	}
	if have := names(found.Objects); !slices.Equal(have, []string{"service/web"}) {
		t.Errorf("found %q", have)
	}
	if len(found.Troubles) != 1 || !apierrors.IsNotFound(found.Troubles[0]) {
		t.Errorf("troubles: %v", found.Troubles)
	}
	found, err = Roots(t.Context(), asAdmin(t, c, "shop"), Args{Words: []string{"services"}, All: true, AllNamespaces: true})
	if err != nil || len(found.Objects) > 0 || len(found.Troubles) != 1 || !strings.Contains(found.Troubles[0].Error(), "does not go with") {
		t.Errorf("of one namespace and of all: %+v, %v", found, err)
	}
	nowhere := filepath.Join(t.TempDir(), "nowhere.yaml")
	if err := os.WriteFile(nowhere, []byte("{apiVersion: v1, kind: Service, metadata: {name: web}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args Args
		want string
	}{
		"what is only computed": {Args{Words: []string{"componentstatuses"}, All: true}, "delete componentstatuses: the API server makes them up when it is asked, and deletes none"},
		"an empty name":         {Args{Words: []string{"service", ""}}, "the name of an object of services is empty"},
		"a file's object without a namespace, in all": {Args{Files: resource.FilenameOptions{Filenames: []string{nowhere}}, AllNamespaces: true},
			"Service web in " + nowhere + " says no namespace, and neither does --all-namespaces: give its own with --namespace"},
	} {
		namespace := "shop"
		if test.args.AllNamespaces {
			namespace = ""
		}
		found, err := Roots(t.Context(), asAdmin(t, c, namespace), test.args)
		if err != nil || len(found.Objects) > 0 || len(found.Troubles) != 1 || found.Troubles[0].Error() != test.want {
			t.Errorf("%s: %+v, %v; want the trouble %q", name, found, err, test.want)
		}
	}
	for name, test := range map[string]struct {
		args Args
		want string
	}{
		"a kind that there is not":                  {Args{Words: []string{"sails", "main"}}, `the server doesn't have a resource type "sails"`},
		"a kind that is not served":                 {Args{Words: []string{"ghosts.example.org", "main"}}, `the server doesn't have a resource type "ghosts"`},
		"standard input twice":                      {Args{Files: resource.FilenameOptions{Filenames: []string{"-", "-"}}}, "standard input cannot be used for multiple arguments"},
		"a name in all namespaces":                  {Args{Words: []string{"pod", "web"}, AllNamespaces: true}, "a resource cannot be retrieved by name across all namespaces"},
		"a folder of manifests and a kustomization": {Args{Files: resource.FilenameOptions{Filenames: []string{"-"}, Kustomize: "."}}, "only one of -f or -k can be specified"},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := Roots(t.Context(), asAdmin(t, c, "shop"), test.args)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("found %+v, %v; want %s", found, err, test.want)
			}
		})
	}
}

// TestRootsTellNothingOfADocument that is no object: it may be a secret.
func TestRootsTellNothingOfADocument(t *testing.T) {
	c := fill(t)
	for text, want := range map[string]string{
		"apiVersion: v1\ndata: {password: aHVudGVyMg==}\n":              "unable to decode \"standard input\": Object 'Kind' is missing",
		"kind: Secret\nstringData: {password: aHVudGVyMg==}\n":          "an object in standard input has no name",
		"kind: List\nitems: [{stringData: {password: aHVudGVyMg==}}]\n": "is missing",
	} {
		args := Args{Files: resource.FilenameOptions{Filenames: []string{"-"}}, Stdin: strings.NewReader(text)}
		found, err := Roots(t.Context(), asAdmin(t, c, "shop"), args)
		if err != nil || len(found.Troubles) != 1 {
			t.Errorf("%s: found %+v, %v", text, found, err)
			continue
		}
		if trouble := found.Troubles[0].Error(); !strings.Contains(trouble, want) || strings.Contains(trouble, "aHVudGVyMg") {
			t.Errorf("%s: %s; want %s", text, trouble, want)
		}
	}
}

func TestRootsInPages(t *testing.T) {
	c := kube.Start(t)
	const n = 2*pageSize + 1
	manyConfigMaps(t, c, "default", n)
	namespace, err := c.Client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.Compact(namespace.ResourceVersion)
	args := Args{Words: []string{"configmaps"}, LabelSelector: "many"}
	for name, test := range map[string]struct {
		do      func() func(*http.Request)
		expires bool
	}{
		"all pages are taken": {func() func(*http.Request) { return func(*http.Request) {} }, false},
		"a list that expires is begun again": {func() func(*http.Request) {
			var once sync.Once
			return func(r *http.Request) { once.Do(func() { age(t, r) }) }
		}, false},
		"a list that always expires is no list": {func() func(*http.Request) { return func(r *http.Request) { age(t, r) } }, true},
	} {
		t.Run(name, func(t *testing.T) {
			getter, do := asAdmin(t, c, ""), test.do()
			getter.WrapConfigFn = func(config *rest.Config) *rest.Config { return through(config, do) }
			found, err := Roots(t.Context(), getter, args)
			switch {
			case test.expires && (err == nil || !strings.Contains(err.Error(), "expired 3 times")):
				t.Errorf("found %v, %v", found, err)
			case !test.expires && err != nil:
				t.Error(err)
			case !test.expires && len(found.Objects) != n:
				t.Errorf("%d objects, want %d", len(found.Objects), n)
			}
		})
	}
}

// A state is read after what is to be deleted was named, and may lack some of it.
func TestComplete(t *testing.T) {
	c := fill(t)
	cfg := Config{REST: c.REST}
	found, err := Roots(t.Context(), asAdmin(t, c, "shop"), Args{Words: []string{"service/web", "secret/card-key", "event/started"}})
	if err != nil || len(found.Objects) != 3 {
		t.Fatal(err, found)
	}
	c.Kubectl("delete", "secret", "-n", "shop", "card-key")
	state, err := Read(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	roots, err := Complete(t.Context(), cfg, state, found.Objects)
	if err != nil {
		t.Fatal(err)
	}
	if have := names(roots); !slices.Equal(have, []string{"service/web", "event/started"}) {
		t.Errorf("the roots are %q: a Secret that went is none, and an Event is one", have)
	}
	if roots[0] != get(t, state, impact.Services, "shop", "web") {
		t.Error("the Service is not the one of the state")
	}
	get(t, state, schema.GroupResource{Resource: "events"}, "shop", "started")

	// Of a user who may not list Services everywhere nothing is known of them but
	// what is named.
	blind := impact.NewState(state.Now)
	roots, err = Complete(t.Context(), cfg, blind, found.Objects[:1])
	if err != nil {
		t.Fatal(err)
	}
	if service, ok := roots[0].Content.(*corev1.Service); !ok || service.Spec.Selector["app"] != "web" {
		t.Errorf("the Service was read as %s", fmt.Sprint(roots[0].Content))
	}
}
