// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/fairlead-io/fairlead/internal/impact"
)

// kind is one kind of object with how it is read.
type kind struct {
	*impact.Resource
	// empty makes an object into which the API server's JSON is read; of a
	// PartialObjectMetadata it is asked for no more than that.
	empty func() metav1.Object
	// outdated says why the contents are not known; "" if they are.
	outdated string
}

// discover finds all kinds of objects that can be listed and deleted, each
// once, in the API server's order. It marks in the state the groups that are
// down.
func (r *reader) discover(state *impact.State) ([]kind, error) {
	r.doing("asking which kinds of objects there are")
	groups, lists, err := r.found.ServerGroupsAndResources()
	var failed *discovery.ErrGroupDiscoveryFailed
	switch {
	case errors.As(err, &failed):
		for gv, why := range failed.Groups {
			state.SetUnknown(schema.GroupResource{Group: gv.Group, Resource: "*"}, reason(why))
		}
	case err != nil:
		return nil, fmt.Errorf("ask %s which kinds of objects there are: %w", r.host, err)
	}
	served := map[string]*metav1.APIResourceList{}
	for _, l := range lists {
		served[l.GroupVersion] = l
	}
	var kinds []kind
	for _, g := range groups {
		kinds = append(kinds, kindsOf(g, served)...)
	}
	return kinds, nil
}

// kindsOf are the kinds of a group. The API server names first the version that
// it prefers.
func kindsOf(g *metav1.APIGroup, served map[string]*metav1.APIResourceList) []kind {
	var kinds []kind
	at := map[string]int{} // of a resource in kinds
	for _, v := range g.Versions {
		l := served[v.GroupVersion]
		if l == nil {
			continue
		}
		for i := range l.APIResources {
			if !deletable(&l.APIResources[i], g.Name) {
				continue
			}
			k := kindOf(&l.APIResources[i], g.Name, v.Version)
			if known, has := at[k.Resource.Resource]; !has {
				at[k.Resource.Resource] = len(kinds)
				kinds = append(kinds, k)
			} else if kinds[known].outdated != "" && k.outdated == "" {
				kinds[known] = k
			}
		}
	}
	return kinds
}

// deletable says that there are objects of a resource to be listed and deleted:
// parts of others are none, nor is what is only computed when it is asked for.
// Events go with nothing and carry nothing, and there are more of them than of
// all others.
func deletable(r *metav1.APIResource, group string) bool {
	events := r.Name == "events" && (group == "" || group == "events.k8s.io")
	return !events && !strings.Contains(r.Name, "/") && slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "delete")
}

func kindOf(r *metav1.APIResource, group, version string) kind {
	k := kind{
		Resource: &impact.Resource{
			GroupVersionResource: schema.GroupVersionResource{Group: group, Version: version, Resource: r.Name},
			Kind:                 r.Kind, Namespaced: r.Namespaced,
		},
		empty: metadataOnly,
	}
	judged, ok := impact.KindOf(k.GroupResource())
	switch {
	case !ok:
	case judged.Version == version:
		k.empty = judged.New
	default:
		k.outdated = fmt.Sprintf("this API server serves them as %s, and they can be judged as %s only", version, judged.Version)
	}
	return k
}

func metadataOnly() metav1.Object { return &metav1.PartialObjectMetadata{} }
