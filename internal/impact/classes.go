// SPDX-License-Identifier: Apache-2.0

package impact

import (
	"fmt"
	"slices"
	"strings"
)

// judgeClasses says who names priority, runtime and Ingress classes that go.
func judgeClasses(c *Case) []Consequence {
	var out []Consequence
	for _, o := range c.Deleted(PriorityClasses) {
		out = append(out, c.priorityGone(o))
	}
	for _, o := range c.Deleted(RuntimeClasses) {
		out = append(out, c.refusedWithout(o, "runtime-class-gone"))
	}
	for _, o := range c.Deleted(IngressClasses) {
		out = append(out, c.ingressClassGone(o))
	}
	return out
}

func (c *Case) priorityGone(o *Object) Consequence {
	if strings.HasPrefix(o.Name, "system-") {
		return Consequence{
			Severity: Note, ID: "priority-class-gone", Objects: []*Object{o},
			Title: "the API server does not let " + o.String() + " go",
		}
	}
	return c.refusedWithout(o, "priority-class-gone")
}

// refusedWithout is of a class without which the API server takes no pod that
// names it.
func (c *Case) refusedWithout(o *Object, id string) Consequence {
	c.needUsers("which pods name classes that go")
	q := Consequence{Severity: Note, ID: id, Objects: []*Object{o}, Title: "nothing that runs names " + o.String()}
	users := c.users(o.Key())
	if len(users) == 0 {
		return q
	}
	q.Affected, q.Rank = names(users), max(1, podsOf(users))
	q.Title = fmt.Sprintf("new pods of %s are refused: they name %s", some(users), o)
	q.Severity = Breaks
	if !slices.ContainsFunc(users, func(u user) bool { return u.Resource.GroupResource() != Pods }) {
		// A pod that runs needs its class no more, and nothing makes it again.
		q.Severity = Note
		q.Title = fmt.Sprintf("%s cannot be created again as %s: %s %s", some(users), verb(len(users), "it is", "they are"), verb(len(users), "it names", "they name"), o)
	}
	return q
}

func (c *Case) ingressClassGone(o *Object) Consequence {
	c.Need(Ingresses, "which of them are of classes that go")
	users := c.users(o.Key())
	q := Consequence{Severity: Note, ID: "ingress-class-gone", Objects: []*Object{o}, Title: "no Ingress is of " + o.String()}
	if isDefault(o, "ingressclass.kubernetes.io/is-default-class") {
		q.Detail = []string{"It is the default: new Ingresses that name no class get none."}
	}
	if len(users) > 0 {
		q.Severity, q.Rank, q.Affected = Breaks, len(users), names(users)
		q.Title = fmt.Sprintf("%s may no longer be served: %s of %s", some(users), verb(len(users), "it is", "they are"), o)
	}
	return q
}

func isDefault(o *Object, annotation string) bool {
	return o.Content != nil && o.Content.GetAnnotations()[annotation] == "true"
}
