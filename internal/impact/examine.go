// SPDX-License-Identifier: Apache-2.0

package impact

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// examples is how many objects stand for a group.
const examples = 5

// Examine says what a delete would do.
func Examine(s *State, d *Deletion) Report {
	c := &Case{State: s, Deletion: d, needed: map[schema.GroupResource][]string{}}
	var r Report
	for _, judge := range judges {
		r.Consequences = append(r.Consequences, judge(c)...)
	}
	slices.SortStableFunc(r.Consequences, func(a, b Consequence) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), cmp.Compare(b.Rank, a.Rank), strings.Compare(a.Title, b.Title))
	})
	r.Groups = groups(d)
	r.Incomplete = c.incomplete()
	return r
}

// groups counts what goes by kind.
func groups(d *Deletion) []Group {
	var out []Group
	for _, objects := range d.byKind {
		g := Group{Resource: objects[0].Resource}
		var cascaded []*Object
		for _, o := range objects {
			if d.gone[o].By == nil {
				g.Named++
				g.Examples = appendExample(g.Examples, o)
				continue
			}
			g.Cascaded++
			cascaded = appendExample(cascaded, o)
		}
		g.Examples = append(g.Examples, cascaded[:min(len(cascaded), examples-len(g.Examples))]...)
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b Group) int {
		return cmp.Or(first(a.Named > 0, b.Named > 0),
			cmp.Compare(a.Resource.Group, b.Resource.Group), cmp.Compare(a.Resource.Resource, b.Resource.Resource))
	})
	return out
}

func appendExample(list []*Object, o *Object) []*Object {
	if len(list) < examples {
		list = append(list, o)
	}
	return list
}

// first puts what is true before what is not.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// incomplete says of each kind that could not be read what is therefore not
// known of this case.
func (c *Case) incomplete() []string {
	var out []string
	for _, gr := range c.Unknowns() {
		missing := slices.Compact(slices.Sorted(slices.Values(c.needed[gr])))
		if c.mayTake(gr) {
			missing = append(missing, "which of them go too")
		}
		if len(missing) > 0 {
			out = append(out, fmt.Sprintf("%s: %s; %s %s not known", gr, c.Unknown(gr), strings.Join(missing, " and "), verb(len(missing), "is", "are")))
		}
	}
	return append(out, c.notKnown...)
}

// mayTake says whether objects of a kind that could not be read may go with
// what goes, as owned by it or inside it.
func (c *Case) mayTake(gr schema.GroupResource) bool {
	if computed(gr.Group) || len(c.order) == 0 {
		return false
	}
	return c.Cascade != Orphan || len(c.Deleted(Namespaces)) > 0 || len(c.Deleted(Definitions)) > 0
}

// computed are the groups whose objects are measured when they are asked for:
// nothing owns them, and nothing is inside of anything.
func computed(group string) bool {
	return group == "metrics.k8s.io" || strings.HasSuffix(group, ".metrics.k8s.io")
}
