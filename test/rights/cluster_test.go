// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	"github.com/fairlead-io/fairlead/internal/reflector"
	"github.com/fairlead-io/fairlead/test/kube"
	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/rig"
)

// cluster is a real API server in a namespace without a way out, since it dials
// the Services of webhooks and of aggregated APIs.
type cluster struct {
	*kube.Cluster
	ns     *lab.NetNS
	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
}

func start(t *testing.T) *cluster {
	t.Helper()
	ns := lab.NewNetNS(t, "cluster")
	at := netip.MustParseAddr("192.0.2.11")
	ns.Addr(t, "lo", at.String()+"/32")
	c := &cluster{Cluster: kube.StartAt(t, ns, at), ns: ns}
	var err error
	if c.client, err = dynamic.NewForConfig(c.REST); err != nil {
		t.Fatal(err)
	}
	c.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.Client.Discovery()))
	return c
}

// load makes the objects of files, with their status.
func (c *cluster) load(t *testing.T, files ...string) {
	t.Helper()
	for _, path := range files {
		text, err := os.ReadFile(filepath.Join("testdata", path))
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now().UTC().Format(metav1.RFC3339Micro)
		for data, err := range reflector.Documents([]byte(strings.ReplaceAll(string(text), `"NOW"`, `"`+now+`"`))) {
			if err == nil {
				err = c.create(t.Context(), data)
			}
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
		}
	}
}

// create makes one object. Its owners are there already, and named without the UID
// that only the server knows.
func (c *cluster) create(ctx context.Context, data json.RawMessage) error {
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal(data, &o.Object); err != nil {
		return err
	}
	owners := o.GetOwnerReferences()
	for i := range owners {
		owner, err := c.owner(ctx, &owners[i], o.GetNamespace())
		if err != nil {
			return fmt.Errorf("find the owner of %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		owners[i].UID = owner.GetUID()
	}
	o.SetOwnerReferences(owners)
	client, err := c.resource(o.GroupVersionKind(), o.GetNamespace())
	if err != nil {
		return err
	}
	status := o.Object["status"]
	made, err := client.Create(ctx, o, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) { // the server made it at its start
		made, err = client.Get(ctx, o.GetName(), metav1.GetOptions{})
	}
	if err != nil {
		return fmt.Errorf("create %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	if status == nil {
		return nil
	}
	made.Object["status"] = status
	_, err = client.UpdateStatus(ctx, made, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) { // a custom resource without the subresource has it already
		return nil
	}
	return err
}

func (c *cluster) owner(ctx context.Context, r *metav1.OwnerReference, namespace string) (*unstructured.Unstructured, error) {
	client, err := c.resource(schema.FromAPIVersionAndKind(r.APIVersion, r.Kind), namespace)
	if err != nil {
		return nil, err
	}
	return client.Get(ctx, r.Name, metav1.GetOptions{})
}

// resource waits for kinds that were defined just before.
func (c *cluster) resource(kind schema.GroupVersionKind, namespace string) (dynamic.ResourceInterface, error) {
	for deadline := time.Now().Add(rig.Patience); ; time.Sleep(100 * time.Millisecond) {
		mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err == nil && mapping.Scope.Name() == meta.RESTScopeNameRoot {
			return c.client.Resource(mapping.Resource), nil
		}
		if err == nil {
			return c.client.Resource(mapping.Resource).Namespace(namespace), nil
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("find the resource of %s: %w", kind, err)
		}
		c.mapper.Reset()
	}
}

// fairlead runs the program as the user who may do everything, and returns its
// exit status and what it printed.
func (c *cluster) fairlead(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	return c.run(t, rig.Program(), append(slices.Clone(args), "--kubeconfig", c.Kubeconfig)...)
}

func (c *cluster) run(t *testing.T, program string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	p := lab.Place{NetNS: c.ns}.Start(t, program, args...)
	err := p.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), p.Stdout(), p.Stderr()
	}
	if err != nil {
		t.Fatalf("%s %q: %v", program, args, err)
	}
	return 0, p.Stdout(), p.Stderr()
}
