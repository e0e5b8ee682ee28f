// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// Cluster is the way to a cluster's objects.
type Cluster struct {
	client    dynamic.Interface
	discovery discovery.CachedDiscoveryInterface
	mapper    *restmapper.DeferredDiscoveryRESTMapper
}

// Connect makes the way to a cluster. It asks nothing yet.
func Connect(config *rest.Config) (*Cluster, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for %s: %w", config.Host, err)
	}
	direct, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for %s: %w", config.Host, err)
	}
	cached := memory.NewMemCacheClient(direct)
	return &Cluster{client: client, discovery: cached, mapper: restmapper.NewDeferredDiscoveryRESTMapper(cached)}, nil
}

// served is where objects of a kind are found.
type served struct {
	resource   schema.GroupVersionResource
	namespaced bool
	// coming is that the definition of the kind is wanted, too, and missing.
	coming bool
}

var errNotServed = errors.New("the API server does not serve")

// serves finds a kind, also of a group that does not answer: then the error
// says so.
func (c *Cluster) serves(kind schema.GroupVersionKind) (served, error) {
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err == nil {
		return served{resource: mapping.Resource, namespaced: mapping.Scope.Name() == meta.RESTScopeNameNamespace}, nil
	}
	if !meta.IsNoMatchError(err) {
		return served{}, fmt.Errorf("ask the API server where %s is: %w", kind.Kind, err)
	}
	version := kind.GroupVersion().String()
	if _, err := c.discovery.ServerResourcesForGroupVersion(version); err != nil && !apierrors.IsNotFound(err) && !errors.Is(err, memory.ErrCacheNotFound) {
		return served{}, fmt.Errorf("the API server cannot tell what %s has: %w", version, err)
	}
	return served{}, fmt.Errorf("%w %s of %s", errNotServed, kind.Kind, version)
}

// forget has kinds that were added be found.
func (c *Cluster) forget() { c.mapper.Reset() }

// names are those by which people call a kind.
func (c *Cluster) names(kind schema.GroupVersionKind) []string {
	names := []string{strings.ToLower(kind.Kind)}
	list, err := c.discovery.ServerResourcesForGroupVersion(kind.GroupVersion().String())
	if err != nil {
		return names
	}
	for _, r := range list.APIResources {
		if r.Kind == kind.Kind && !strings.Contains(r.Name, "/") {
			names = append(names, append(r.ShortNames, r.Name, r.SingularName)...)
		}
	}
	return names
}

func (c *Cluster) objects(s served, namespace string) dynamic.ResourceInterface {
	if s.namespaced {
		return c.client.Resource(s.resource).Namespace(namespace)
	}
	return c.client.Resource(s.resource)
}

// apply has the API server make an object, or say what would become of it.
func (c *Cluster) apply(ctx context.Context, s served, u *unstructured.Unstructured, options metav1.PatchOptions) (*unstructured.Unstructured, error) {
	body, err := u.MarshalJSON()
	if err != nil {
		return nil, err
	}
	options.FieldManager = cmp.Or(options.FieldManager, FieldManager)
	return c.objects(s, u.GetNamespace()).Patch(ctx, u.GetName(), types.ApplyPatchType, body, options)
}

// establishPatience bounds how long a new kind takes to be served.
const establishPatience = 30 * time.Second

// established waits until a definition is in force.
func (c *Cluster) established(ctx context.Context, s served, name string) error {
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, establishPatience, true, func(ctx context.Context) (bool, error) {
		u, err := c.objects(s, "").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		return slices.ContainsFunc(conditions, func(condition any) bool {
			fields, _ := condition.(map[string]any)
			return fields["type"] == "Established" && fields["status"] == "True"
		}), nil
	})
	if err != nil {
		return fmt.Errorf("it was created, but is not established: %w", err)
	}
	c.forget()
	return nil
}

// awaits waits for a kind whose definition has just been made.
func (c *Cluster) awaits(ctx context.Context, kind schema.GroupVersionKind) (s served, err error) {
	_ = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, establishPatience, true, func(context.Context) (bool, error) {
		if s, err = c.serves(kind); errors.Is(err, errNotServed) {
			c.forget()
			return false, nil
		}
		return true, nil
	})
	return s, err
}
