// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"fmt"
	"slices"
	"strings"
)

// Filter picks objects by their kind and, unless it is empty, by their name.
type Filter struct{ Kind, Name string }

// groupNames stand for all kinds of a group.
var groupNames = map[string]string{"rbac": "rbac.authorization.k8s.io"}

// ParseFilter reads KIND[/NAME]. The kind is written as with kubectl, and rbac
// stands for roles and their bindings.
func ParseFilter(text string) (Filter, error) {
	kind, name, named := strings.Cut(text, "/")
	if kind == "" || named && name == "" || strings.Contains(name, "/") {
		return Filter{}, fmt.Errorf("%q names no objects: write KIND or KIND/NAME, as clusterroles or clusterrole/cilium, or rbac", text)
	}
	return Filter{strings.ToLower(kind), name}, nil
}

// String is the filter as it is written.
func (f Filter) String() string {
	if f.Name == "" {
		return f.Kind
	}
	return f.Kind + "/" + f.Name
}

func (f Filter) picks(names []string, group, name string) bool {
	if f.Name != "" && f.Name != name {
		return false
	}
	if whole, isGroup := groupNames[f.Kind]; isGroup {
		return group == whole
	}
	kind, wanted, qualified := strings.Cut(f.Kind, ".")
	return slices.Contains(names, kind) && (!qualified || wanted == group)
}

// matches says whether one of the filters picks an item, and notes which do.
// Without filters all are picked.
func (p *planning) matches(item *Item, filters []Filter, met []bool) bool {
	if len(filters) == 0 {
		return true
	}
	kind := item.object.GroupVersionKind()
	names := p.names(kind)
	if d, defined := p.defined[kind.GroupKind()]; defined {
		names = append(names, append(d.short, d.plural, d.singular)...)
	}
	any := false
	for i, f := range filters {
		if f.picks(names, kind.Group, item.Name) {
			met[i], any = true, true
		}
	}
	return any
}
