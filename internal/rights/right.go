// SPDX-License-Identifier: Apache-2.0

// Package rights says what users of a cluster's API need, have and used, each
// with where that is known from, and what of it does not fit together.
//
// It is given policies, records of audit logs, lines of logs and what is known
// of components, and decides nothing of what a rule allows: package rbac does.
// Clients, files, clocks and printing may not enter; package source reads.
package rights

import (
	"cmp"
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/internal/rbac"
)

// Right is one verb on one resource, or on one path. As in rules, "*" stands
// for all.
type Right struct {
	rbac.Request
	// Path is of what is no resource, as /healthz, or /healthz/*; then there is
	// nothing else but the verb.
	Path string
}

// String is as people say it.
func (r Right) String() string {
	if r.Path != "" {
		return r.Verb + " " + r.Path
	}
	return r.Request.String()
}

// Wild says whether it stands for more than one right.
func (r Right) Wild() bool {
	return r.Verb == "*" || r.Group == "*" || r.Resource == "*" || strings.HasPrefix(r.Resource, "*/") || strings.HasSuffix(r.Path, "*")
}

// Rule is rights on one resource, or one path, that differ in nothing but verb
// and name.
type Rule struct {
	Verbs     []string `json:"verbs"`
	Group     string   `json:"group"` // "" is the core group
	Resource  string   `json:"resource,omitempty"`
	Path      string   `json:"path,omitempty"`
	Namespace string   `json:"namespace,omitempty"` // "": all, or the resource has none
	Names     []string `json:"names,omitempty"`     // none: all
}

// Target is what the verbs are for: RESOURCE[.GROUP][/SUBRESOURCE], or a path.
func (r Rule) Target() string {
	return cmp.Or(r.Path, rbac.GroupResource(r.Group, r.Resource))
}

// marked is a rule of whose rights the same is to be said.
type marked[M comparable] struct {
	Rule
	mark M
}

// summed makes rules of rights, each of those that have the same mark, in the
// order of their targets.
func summed[M comparable](rights map[Right]M) []marked[M] {
	type same struct {
		right Right // without what differs
		mark  M
	}
	verbs := map[same][]string{}
	for r, mark := range rights {
		verb := r.Verb
		r.Verb = ""
		verbs[same{r, mark}] = append(verbs[same{r, mark}], verb)
	}
	type alike struct {
		same
		verbs string
		named bool
	}
	names := map[alike][]string{}
	for s, v := range verbs {
		slices.SortFunc(v, byVerb)
		name := s.right.Name
		s.right.Name = ""
		key := alike{s, strings.Join(v, " "), name != ""}
		names[key] = append(names[key], name)
	}
	var out []marked[M]
	for key, all := range names {
		r := key.right
		rule := Rule{Verbs: strings.Fields(key.verbs), Group: r.Group, Resource: r.Resource, Path: r.Path, Namespace: r.Namespace}
		if key.named {
			slices.Sort(all)
			rule.Names = all
		}
		out = append(out, marked[M]{rule, key.mark})
	}
	slices.SortFunc(out, func(a, b marked[M]) int { return compareRules(a.Rule, b.Rule) })
	return out
}

func compareRules(a, b Rule) int {
	return cmp.Or(
		cmp.Compare(a.Path, b.Path), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Namespace, b.Namespace),
		slices.Compare(a.Names, b.Names), slices.CompareFunc(a.Verbs, b.Verbs, byVerb))
}

// verbOrder is the order in which people write verbs: those that read first.
var verbOrder = []string{"*", "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}

func byVerb(a, b string) int {
	place := func(verb string) int {
		if i := slices.Index(verbOrder, verb); i >= 0 {
			return i
		}
		return len(verbOrder)
	}
	return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a, b))
}
