// SPDX-License-Identifier: Apache-2.0

package impact

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// judgeDefinitions says what goes with CustomResourceDefinitions, and whose
// objects can no longer be converted.
func judgeDefinitions(c *Case) []Consequence {
	return append(c.lostKinds(), c.lostConversions()...)
}

// lostKind is a CustomResourceDefinition that goes.
type lostKind struct {
	*Object
	kind      string
	resource  schema.GroupResource
	instances []*Object
	unseen    bool // there may be more than these
}

func (c *Case) lostKinds() []Consequence {
	var out []Consequence
	ofComponent := map[string][]lostKind{}
	for _, o := range c.Deleted(Definitions) {
		k := c.lostKind(o)
		component := c.definesFor(k.resource.Group)
		switch {
		case component != nil:
			ofComponent[component.ID] = append(ofComponent[component.ID], k)
		default:
			out = append(out, k.consequence())
		}
	}
	for _, component := range c.Components() {
		if lost := ofComponent[component.ID]; len(lost) > 0 {
			out = append(out, lostByComponent(component, lost))
		}
	}
	return out
}

func (c *Case) lostKind(o *Object) lostKind {
	plural, group, _ := strings.Cut(o.Name, ".") // so the API server wants the name
	k := lostKind{Object: o, kind: plural, resource: in(group, plural)}
	if d, ok := o.Content.(*Definition); ok {
		k.resource = d.Instances()
		if d.Spec.Names.Kind != "" {
			k.kind = d.Spec.Names.Kind
		}
		if k.unseen = !d.Served(); k.unseen {
			c.NotKnown(o.String() + " serves no version of its kind: objects of it that are stored cannot be listed, and go unseen")
		}
	}
	k.instances = c.Of(k.resource)
	k.unseen = k.unseen || c.Unknown(k.resource) != ""
	c.Need(k.resource, "how many of them go with their CustomResourceDefinition")
	return k
}

// Served says whether the API serves the kind in some version.
func (d *Definition) Served() bool {
	for _, v := range d.Spec.Versions {
		if v.Served {
			return true
		}
	}
	return false
}

// definesFor is the first component that runs and whose own API group it is.
func (c *Case) definesFor(group string) *Running {
	for _, r := range c.Components() {
		if slices.Contains(r.groups(), group) {
			return &r
		}
	}
	return nil
}

// backAgain is what putting the definition back does not do.
const backAgain = "creating the CustomResourceDefinition again brings back the kind and none of its objects"

func (k lostKind) consequence() Consequence {
	n := len(k.instances)
	if n == 0 {
		what := "of which there is no object"
		if k.unseen {
			what = "and whatever objects there are of it vanish"
		}
		return Consequence{
			ID: "kind-goes", Objects: []*Object{k.Object},
			Title: fmt.Sprintf("the API no longer knows %s, %s", k.resource, what),
		}
	}
	return Consequence{
		Severity: Breaks, Rank: n, ID: "instances-vanish", Objects: []*Object{k.Object},
		Title:  fmt.Sprintf("%s vanish%s: the API no longer knows %s", count(n, k.kind+" object"), verb(n, "es", ""), k.resource),
		Detail: []string{"it takes " + some(k.instances), backAgain},
	}
}

func lostByComponent(r Running, lost []lostKind) Consequence {
	out := Consequence{Severity: severityOf(&r.Component), Rank: len(r.Pods), ID: "component-kinds-vanish"}
	total := 0
	for _, k := range lost {
		total += len(k.instances)
		out.Objects = append(out.Objects, k.Object)
		if len(k.instances) > 0 {
			out.Detail = append(out.Detail, "it takes "+some(k.instances))
		}
	}
	what := count(len(lost), "kind") + " of its own"
	if len(lost) == 1 {
		what = "its own kind " + lost[0].kind
	}
	out.Title = fmt.Sprintf("%s: %s loses %s with %s", r.Sees, r, what, count(total, "object"))
	out.Detail = append(out.Detail, backAgain)
	for _, pod := range r.Pods {
		out.Affected = append(out.Affected, pod.String())
	}
	slices.Sort(out.Affected)
	return out
}

// lostConversions are the kinds whose objects a webhook converts that has no
// backend any more: in no other version than the stored one can they be read,
// nor written, and neither can they be deleted with their namespace.
func (c *Case) lostConversions() []Consequence {
	if !c.touchesServing() {
		return nil
	}
	var out []Consequence
	for o, d := range Contents[*Definition](c.State, Definitions) {
		if !c.stays(o) || d.Spec.Conversion.Strategy != "Webhook" {
			continue
		}
		by := c.lostConverter(d)
		if by == nil {
			continue
		}
		instances := c.Of(d.Instances())
		out = append(out, Consequence{
			Severity: Breaks, Rank: len(instances), ID: "conversion-lost", Objects: by,
			Title: fmt.Sprintf("%s of kind %s can no longer be read or written in every version: nobody converts between them",
				count(len(instances), "object"), d.Spec.Names.Kind),
			Affected: []string{o.String()},
			Detail:   []string{"lists, watches and deletes of namespaces that need another version than the stored one fail until the webhook answers again"},
		})
	}
	return out
}

// lostConverter is what goes and leaves nobody who converts a kind.
func (c *Case) lostConverter(d *Definition) []*Object {
	to := d.Spec.Conversion.Webhook.ClientConfig.Service
	if to == nil {
		return nil
	}
	return c.lostBackend(Key{Services, to.Namespace, to.Name})
}

// lostBackend is what goes and leaves nobody who answers behind a Service, and
// nothing that brings somebody back; nil if there is still, or never was, one.
func (c *Case) lostBackend(service Key) []*Object {
	if f := c.fate(service); f.ends() && f.forGood() {
		return f.causes()
	}
	return nil
}
