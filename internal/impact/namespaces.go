// SPDX-License-Identifier: Apache-2.0

package impact

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// judgeNamespaces says what goes with namespaces as a whole. What those who stay
// lose by it is for the judges of the objects inside.
func judgeNamespaces(c *Case) []Consequence {
	var out []Consequence
	for _, root := range c.Roots {
		if refused(root) {
			out = append(out, Consequence{
				ID: "namespace-refused", Objects: []*Object{root},
				Title: "nothing inside " + root.String() + " goes: the API server refuses to delete it",
			})
		}
	}
	for _, o := range c.Deleted(Namespaces) {
		out = append(out, c.lostNamespace(o))
	}
	return out
}

func (c *Case) lostNamespace(o *Object) Consequence {
	out := Consequence{ID: "namespace-goes", Objects: []*Object{o}}
	all := c.Inside(o.Name)
	pods, inUse := usedInside(all)
	switch parts := c.componentsIn(o.Name); {
	case o.Deleting:
		out.Title = o.String() + " is being deleted already, and all inside it"
	case len(parts) > 0:
		worst := slices.MaxFunc(parts, func(a, b Running) int { return cmp.Compare(severityOf(&a.Component), severityOf(&b.Component)) })
		out.Severity, out.Rank, out.ID = severityOf(&worst.Component), pods, "component-namespace-goes"
		out.Title = fmt.Sprintf("%s: %s goes with all inside %s", worst.Sees, worst, o)
		for _, r := range parts {
			out.Detail = append(out.Detail, "it takes "+r.String()+": "+r.Sees)
		}
	case inUse:
		out.Severity, out.Rank = Breaks, pods
		out.Title = fmt.Sprintf("all inside %s goes for good: %s", o, contents(all))
	case slices.ContainsFunc(all, isOwn):
		out.Title = fmt.Sprintf("all inside %s goes for good, and nothing of it runs: %s", o, contents(all))
	default:
		out.Title = o.String() + " has nothing inside but what every namespace has"
	}
	return out
}

// usedInside counts the running pods among objects, and says whether they, or a
// claim with its data, are in use.
func usedInside(all []*Object) (pods int, inUse bool) {
	for _, o := range all {
		switch content := o.Content.(type) {
		case *corev1.Pod:
			if runs(content) {
				pods++
			}
		case *corev1.PersistentVolumeClaim:
			inUse = inUse || content.Status.Phase == corev1.ClaimBound
		}
	}
	return pods, inUse || pods > 0
}

// componentsIn are the components that run in a namespace and nowhere else.
func (c *Case) componentsIn(namespace string) []Running {
	return slices.DeleteFunc(slices.Clone(c.Components()), func(r Running) bool {
		return slices.ContainsFunc(r.Pods, func(p PodOf) bool { return p.Namespace != namespace })
	})
}

// isOwn says that somebody put an object into its namespace: not what every
// namespace is given, and not what is written along with other objects.
func isOwn(o *Object) bool {
	switch o.Resource.GroupResource() {
	case core("events"), in("events.k8s.io", "events"), endpoints, EndpointSlices, Leases:
		return false
	case ServiceAccounts:
		return o.Name != "default"
	case ConfigMaps:
		return o.Name != "kube-root-ca.crt"
	}
	return !slices.ContainsFunc(o.Owners, func(owner Owner) bool { return owner.Controller })
}

// contents counts objects by kind, those that people miss first of all first.
func contents(all []*Object) string {
	const most = 6
	kinds := map[string]int{}
	for _, o := range all {
		if o.Resource.GroupResource() == Pods || isOwn(o) {
			kinds[o.Resource.Kind]++
		}
	}
	var list []string
	for kind, n := range kinds {
		list = append(list, fmt.Sprintf("%d %s", n, kind))
	}
	order := []string{"Pod", "StatefulSet", "PersistentVolumeClaim", "Deployment", "Service", "Secret", "ConfigMap"}
	place := func(s string) int {
		_, kind, _ := strings.Cut(s, " ")
		if i := slices.Index(order, kind); i >= 0 {
			return i
		}
		return len(order)
	}
	slices.SortFunc(list, func(a, b string) int {
		if d := place(a) - place(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	if len(list) > most {
		list = append(list[:most-1], fmt.Sprintf("%d other kinds", len(list)-most+1))
	}
	return strings.Join(list, ", ")
}

// immortal are the namespaces that the admission plugin NamespaceLifecycle, which
// every API server has unless it is switched off, does not let go.
var immortal = []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic}

func refused(o *Object) bool {
	return o.Resource.GroupResource() == Namespaces && slices.Contains(immortal, o.Name)
}
