// SPDX-License-Identifier: Apache-2.0

package recorder

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/journal"
)

// wish is a kind that is recorded if the API server has it.
type wish struct {
	group, resource string
	namespace       string // only there; empty: everywhere
}

// defaults are what Services rest on, who may do what, and what the networks
// that are known add. Leases of the control plane tell which of its parts were
// alive; those of nodes tell nothing else, ten times a minute.
var defaults = []wish{
	{resource: "services"},
	{group: "discovery.k8s.io", resource: "endpointslices"},
	{resource: "nodes"},
	{group: "coordination.k8s.io", resource: "leases", namespace: metav1.NamespaceSystem},
	{group: "rbac.authorization.k8s.io", resource: "clusterroles"},
	{group: "rbac.authorization.k8s.io", resource: "clusterrolebindings"},
	{group: "rbac.authorization.k8s.io", resource: "roles"},
	{group: "rbac.authorization.k8s.io", resource: "rolebindings"},
	{group: "networking.k8s.io", resource: "networkpolicies"},
	{group: "cilium.io", resource: "ciliumnetworkpolicies"},
	{group: "cilium.io", resource: "ciliumclusterwidenetworkpolicies"},
	{group: "cilium.io", resource: "ciliumendpoints"},
	{group: "cilium.io", resource: "ciliumidentities"},
	{group: "cilium.io", resource: "ciliumnodes"},
	{group: "crd.projectcalico.org", resource: "networkpolicies"},
	{group: "crd.projectcalico.org", resource: "globalnetworkpolicies"},
	{group: "crd.projectcalico.org", resource: "ippools"},
	{group: "crd.projectcalico.org", resource: "felixconfigurations"},
	{group: "crd.projectcalico.org", resource: "bgpconfigurations"},
	{group: "crd.antrea.io", resource: "clusternetworkpolicies"},
	{group: "crd.antrea.io", resource: "networkpolicies"},
}

// served is a kind that the API server has and that can be followed.
type served struct {
	journal.Kind
	namespaced bool
	names      []string // besides the resource: its kind, singular and short names
}

// catalogue is all that an API server has. Of groups that did not answer it
// cannot tell.
type catalogue struct {
	kinds  []served
	broken map[string]error // by group
}

// discover asks an API server for what it has.
func discover(ctx context.Context, config *rest.Config) (catalogue, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	config = rest.CopyConfig(config)
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return bounded{rt, ctx} })
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return catalogue{}, fmt.Errorf("making a client for %s: %w", config.Host, err)
	}
	lists, err := client.ServerPreferredResources()
	c := catalogue{broken: map[string]error{}}
	if groups, partly := discovery.GroupDiscoveryFailedErrorGroups(err); partly {
		for version, wrong := range groups {
			c.broken[version.Group] = wrong
		}
	} else if err != nil {
		return catalogue{}, fmt.Errorf("ask which kinds there are: %w", err)
	}
	for _, list := range lists {
		if err := c.add(list); err != nil {
			return catalogue{}, err
		}
	}
	return c, nil
}

func (c *catalogue) add(list *metav1.APIResourceList) error {
	version, err := schema.ParseGroupVersion(list.GroupVersion)
	if err != nil {
		return fmt.Errorf("ask which kinds there are: %w", err)
	}
	for _, r := range list.APIResources {
		if strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "watch") {
			continue
		}
		c.kinds = append(c.kinds, served{
			Kind:       journal.Kind{Group: version.Group, Version: version.Version, Resource: r.Name, Kind: r.Kind},
			namespaced: r.Namespaced,
			names:      append([]string{strings.ToLower(r.Kind), r.SingularName}, r.ShortNames...),
		})
	}
	return nil
}

// bounded has requests end with ctx, where the client does not ask for one.
type bounded struct {
	http.RoundTripper
	ctx context.Context
}

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	context.AfterFunc(b.ctx, cancel)
	return b.RoundTripper.RoundTrip(r.WithContext(ctx))
}

// find returns the kind of a group and resource.
func (c catalogue) find(group, resource string) (served, bool) {
	i := slices.IndexFunc(c.kinds, func(k served) bool { return k.Group == group && k.Resource == resource })
	if i < 0 {
		return served{}, false
	}
	return c.kinds[i], true
}

// named returns the kind that a user calls so, as kubectl would: by resource,
// kind or short name, with or without the group.
func (c catalogue) named(name string) (served, error) {
	resource, group, qualified := strings.Cut(strings.ToLower(name), ".")
	var found []served
	for _, k := range c.kinds {
		called := k.Resource == resource || slices.Contains(k.names, resource)
		if called && (!qualified || k.Group == group) {
			found = append(found, k)
		}
	}
	// The core group has the right of way, as with kubectl.
	if i := slices.IndexFunc(found, func(k served) bool { return k.Group == "" }); i >= 0 {
		return found[i], nil
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return served{}, c.unknown(name, group)
	}
	var names []string
	for _, k := range found {
		names = append(names, groupResource(k.Kind).String())
	}
	return served{}, fmt.Errorf("--kind %s may be any of %s: name the group", name, strings.Join(names, ", "))
}

func (c catalogue) unknown(name, group string) error {
	if err := c.broken[group]; err != nil {
		return fmt.Errorf("--kind %s: the API server could not tell what group %s has: %w", name, group, err)
	}
	return fmt.Errorf("--kind %s: the API server has no kind of this name that can be watched (kubectl api-resources lists them)", name)
}

// targets are what is to be followed of all that there is.
func (c catalogue) targets(cfg Config) ([]target, error) {
	var all []target
	if !cfg.Only {
		for _, w := range defaults {
			if k, ok := c.find(w.group, w.resource); ok {
				all = append(all, c.spread(k, w.namespace, cfg.Namespaces)...)
			}
		}
	}
	for _, name := range cfg.Kinds {
		k, err := c.named(name)
		if err != nil {
			return nil, err
		}
		all = slices.DeleteFunc(all, func(t target) bool { return groupResource(t.Kind) == groupResource(k.Kind) })
		all = append(all, c.spread(k, "", cfg.Namespaces)...)
	}
	return all, nil
}

// spread asks for a kind in each of some namespaces, or in all.
func (c catalogue) spread(k served, only string, namespaces []string) []target {
	if !k.namespaced || only != "" || len(namespaces) == 0 {
		return []target{{Kind: k.Kind, namespace: only}}
	}
	var all []target
	for _, namespace := range namespaces {
		all = append(all, target{Kind: k.Kind, namespace: namespace})
	}
	return all
}
