// SPDX-License-Identifier: Apache-2.0

package impact

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// judgeFinalizers says what would not go although it is deleted, and what lets
// it go.
func judgeFinalizers(c *Case) []Consequence {
	var out []Consequence
	for _, h := range c.held() {
		out = append(out, c.hangs(h))
	}
	return append(out, c.hangingNamespaces()...)
}

// held are objects of a kind that go and have one finalizer.
type held struct {
	finalizer string
	resource  schema.GroupResource
	objects   []*Object
}

func (c *Case) held() []held {
	type key struct {
		finalizer string
		resource  schema.GroupResource
	}
	found := map[key][]*Object{}
	for _, o := range c.Objects() {
		for _, finalizer := range o.Finalizers {
			if !builtIn(finalizer) {
				k := key{finalizer, o.Resource.GroupResource()}
				found[k] = append(found[k], o)
			}
		}
	}
	var out []held
	for k, objects := range found {
		out = append(out, held{k.finalizer, k.resource, objects})
	}
	slices.SortFunc(out, func(a, b held) int {
		return cmp.Or(strings.Compare(a.finalizer, b.finalizer), strings.Compare(a.resource.String(), b.resource.String()))
	})
	return out
}

// builtIn says that the control plane itself takes a finalizer away.
func builtIn(finalizer string) bool {
	switch finalizer {
	case "foregroundDeletion", "orphan", "kubernetes", "customresourcecleanup.apiextensions.k8s.io":
		return true
	}
	domain, _, _ := strings.Cut(finalizer, "/")
	return slices.Contains([]string{
		"kubernetes.io", "batch.kubernetes.io", "resource.kubernetes.io", "networking.k8s.io", "storage.k8s.io",
	}, domain)
}

// hangs says what becomes of objects that are held.
func (c *Case) hangs(h held) Consequence {
	by, before, after := c.releasers(h)
	out := Consequence{Rank: len(h.objects), ID: "waits", Objects: h.objects}
	what := some(h.objects)
	switch {
	case len(after) > 0 || by.outside && len(before) == 0:
		if len(after) == 0 {
			out.Detail = []string{"no pod that does so is seen here: if nothing outside of the cluster does either, this hangs"}
		}
		out.Title = fmt.Sprintf("%s goes only after %s took the finalizer %s away", what, by.title, h.finalizer)
		if by.does != "" {
			out.Severity, out.Title = Breaks, out.Title+": "+by.does
		}
		return out
	case len(before) > 0:
		out.Title = fmt.Sprintf("%s hangs: %s (%s), which takes the finalizer %s away, goes too or may no longer do it", what, by.title, some(before), h.finalizer)
		out.Detail = []string{"delete these objects first, wait until they are gone, and then delete the controller and its rights"}
	default:
		out.Title = fmt.Sprintf("%s hangs: nothing that runs takes the finalizer %s away", what, h.finalizer)
		out.Detail = []string{"start the controller again, or do by hand what it would do and take the finalizer away with kubectl patch"}
	}
	out.Severity, out.ID = Breaks, "hangs"
	if around := c.around(h.objects); len(around) > 0 {
		out.Detail = append(out.Detail, "so "+some(around)+" is not gone either")
	}
	return out
}

// releasers are who takes a finalizer away, and its pods before and after the
// delete.
func (c *Case) releasers(h held) (by controller, before, after []PodOf) {
	who := "who takes the finalizer " + h.finalizer + " away"
	by, known := controllerOf(h.finalizer)
	switch {
	case known:
		c.Need(Pods, who)
		before = c.podsNamed(by.runs)
		return by, before, slices.DeleteFunc(slices.Clone(before), func(p PodOf) bool { return !c.stays(p.Object) })
	case ofKubernetes(h.resource.Group):
		// Many may write such objects; who of them set the finalizer is not known.
		return controller{title: "whoever set it", outside: true}, nil, nil
	}
	for _, gr := range append([]schema.GroupResource{Pods}, accessKinds...) {
		c.Need(gr, who)
		by.outside = by.outside || c.Unknown(gr) != ""
	}
	by.title = "its controller"
	before, after = c.writers(h.resource.Group)
	return by, before, after
}

// around are the namespaces and definitions that go, and so wait for objects.
func (c *Case) around(objects []*Object) []*Object {
	var out []*Object
	for _, o := range objects {
		if cause, _ := c.Gone(o); cause.Why == inside || cause.Why == instanceOf {
			out = append(out, cause.By)
		}
		if n, ok := c.Get(Key{Namespaces, "", o.Namespace}); ok && !c.stays(n) {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b *Object) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(out)
}

// hangingNamespaces says which namespaces stay in deletion because not all that
// may be inside can be listed: an API group does not answer, or no more.
func (c *Case) hangingNamespaces() []Consequence {
	deleted := c.Deleted(Namespaces)
	if len(deleted) == 0 {
		return nil
	}
	c.Need(APIServices, "whether namespaces would hang in deletion")
	var out []Consequence
	for o, service := range Contents[*APIService](c.State, APIServices) {
		if service.Spec.Service == nil || !c.stays(o) {
			continue
		}
		why := "does not answer"
		if service.available() {
			key := Key{Services, service.Spec.Service.Namespace, service.Spec.Service.Name}
			if len(c.lostBackend(key)) == 0 {
				continue
			}
			why = fmt.Sprintf("answers no more once Service %s/%s has no endpoints", key.Namespace, key.Name)
		}
		out = append(out, Consequence{
			Severity: Breaks, Rank: len(deleted), ID: "namespace-hangs", Objects: deleted,
			Title:    fmt.Sprintf("%s hangs in deletion: the API group %s %s, and what it has inside cannot be listed", some(deleted), service.Spec.Group, why),
			Affected: []string{o.String()},
			Detail:   []string{"the namespace goes once the group answers again, or once " + o.String() + " is deleted"},
		})
	}
	return out
}

// available says whether the API server reaches who serves the group; what has
// no such condition yet is not known to be unreachable.
func (a *APIService) available() bool {
	for _, condition := range a.Status.Conditions {
		if condition.Type == "Available" && condition.Status == "False" {
			return false
		}
	}
	return true
}
