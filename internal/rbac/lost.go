// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Loss is something that a user may do before, and no more after. A wildcard
// stays one: "*" as verb, group or resource is all of them, and */SUB the
// subresource of all.
type Loss struct {
	Verb, Group, Resource string
	URL                   string   // in place of Group and Resource: a path of the API server's
	Namespace             string   // "" is all, and what has none
	Names                 []string // nil is all

	// By are the grants that allowed it.
	By []Grant
	// Kept are the grants that go on to allow a part of it.
	Kept []Grant
}

// Covers says whether a request was allowed by what is lost, and is no more.
func (l *Loss) Covers(r Request) bool {
	if l.URL != "" || l.Namespace != "" && l.Namespace != r.Namespace {
		return false
	}
	rule := rbacv1.PolicyRule{Verbs: []string{l.Verb}, APIGroups: []string{l.Group}, Resources: []string{l.Resource}, ResourceNames: l.Names}
	return allows(rule, r) && !slices.ContainsFunc(l.Kept, func(g Grant) bool { return g.allows(r) })
}

// Lost is what a user may do under one policy, and not under another. A request
// is covered by one of the losses exactly if May allows it before and not after.
func Lost(before, after *Policy, u User) []Loss {
	if slices.Contains(u.Groups, masters) {
		return nil
	}
	had, has := before.Bindings(u), after.Bindings(u)
	left := leftOf(has)
	stays := make(map[Ref][]rbacv1.PolicyRule, len(has))
	for _, b := range has {
		stays[b.Ref] = b.rules
	}
	found := losses{at: map[lossKey]int{}}
	for _, b := range had {
		if rules, there := stays[b.Ref]; there && sameSlice(rules, b.rules) {
			continue
		}
		for _, rule := range b.rules {
			by := []Grant{{b.Ref, b.Role, rule}}
			for l := range parts(b.Ref.Namespace, rule) {
				if left.reduce(&l) {
					l.By = by
					found.add(l)
				}
			}
		}
	}
	for i := range found.all {
		found.all[i].Kept = left.overlapping(&found.all[i])
	}
	return found.all
}

func sameSlice(a, b []rbacv1.PolicyRule) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// losses are collected without repetition.
type losses struct {
	all []Loss
	at  map[lossKey]int
}

type lossKey struct{ verb, group, resource, url, namespace, names string }

func (s *losses) add(l Loss) {
	key := lossKey{l.Verb, l.Group, l.Resource, l.URL, l.Namespace, strings.Join(l.Names, "\x00")}
	if i, again := s.at[key]; again {
		s.all[i].By = slices.Concat(s.all[i].By, l.By)
		return
	}
	s.at[key] = len(s.all)
	s.all = append(s.all, l)
}

// parts yields what a rule allows, a verb of a resource each.
func parts(namespace string, rule rbacv1.PolicyRule) func(func(Loss) bool) {
	return func(yield func(Loss) bool) {
		for _, verb := range broadest(rule.Verbs) {
			for _, group := range broadest(rule.APIGroups) {
				for _, resource := range broadest(rule.Resources) {
					if !yield(Loss{Verb: verb, Group: group, Resource: resource, Namespace: namespace, Names: rule.ResourceNames}) {
						return
					}
				}
			}
			if namespace != "" { // paths have none, so that a RoleBinding gives none
				continue
			}
			for _, url := range broadest(rule.NonResourceURLs) {
				if !yield(Loss{Verb: verb, URL: url}) {
					return
				}
			}
		}
	}
}

// broadest is a list without what its "*" takes in.
func broadest(list []string) []string {
	if slices.Contains(list, "*") {
		return []string{"*"}
	}
	return list
}

// left are a user's grants by the namespace in which they count.
type left map[string][]Grant

func leftOf(bindings []Binding) left {
	out := left{}
	for _, b := range bindings {
		for _, rule := range b.rules {
			out[b.Ref.Namespace] = append(out[b.Ref.Namespace], Grant{b.Ref, b.Role, rule})
		}
	}
	return out
}

// reduce takes from a loss the names that are still allowed, and says whether
// any of it is lost. No two rules allow together what neither does alone, but
// for names: what is lost is one verb of one resource, or all of either.
func (s left) reduce(l *Loss) bool {
	if l.Names == nil {
		return !s.allow(l, nil)
	}
	l.Names = slices.DeleteFunc(slices.Clone(l.Names), func(name string) bool { return s.allow(l, []string{name}) })
	return len(l.Names) > 0
}

func (s left) allow(l *Loss, names []string) bool {
	whole := func(g Grant) bool {
		rule := &g.Rule
		if l.URL != "" {
			return contains(rule.Verbs, l.Verb) && coversURL(rule.NonResourceURLs, l.URL)
		}
		return contains(rule.Verbs, l.Verb) && contains(rule.APIGroups, l.Group) && covers(rule.Resources, l.Resource) &&
			(len(rule.ResourceNames) == 0 || names != nil && slices.Contains(rule.ResourceNames, names[0]))
	}
	return slices.ContainsFunc(s[""], whole) || l.Namespace != "" && slices.ContainsFunc(s[l.Namespace], whole)
}

// coversURL says whether a rule's paths take one in: a "*" at the end stands for
// all that begins like it.
func coversURL(list []string, url string) bool {
	return slices.ContainsFunc(list, func(s string) bool {
		prefix, all := strings.CutSuffix(s, "*")
		return s == url || all && strings.HasPrefix(url, prefix)
	})
}

// overlapping are the grants that allow a part of a loss.
func (s left) overlapping(l *Loss) []Grant {
	var out []Grant
	take := func(grants []Grant) {
		for _, g := range grants {
			if l.overlaps(&g.Rule) {
				out = append(out, g)
			}
		}
	}
	take(s[""])
	if l.Namespace != "" {
		take(s[l.Namespace])
		return out
	}
	for _, namespace := range slices.Sorted(maps.Keys(s)) {
		if namespace != "" {
			take(s[namespace])
		}
	}
	return out
}

func (l *Loss) overlaps(rule *rbacv1.PolicyRule) bool {
	if !meets(rule.Verbs, l.Verb) {
		return false
	}
	if l.URL != "" {
		prefix, all := strings.CutSuffix(l.URL, "*")
		return coversURL(rule.NonResourceURLs, l.URL) ||
			all && slices.ContainsFunc(rule.NonResourceURLs, func(s string) bool { return strings.HasPrefix(s, prefix) })
	}
	if !meets(rule.APIGroups, l.Group) || !meetsResource(rule.Resources, l.Resource) {
		return false
	}
	return l.Names == nil || len(rule.ResourceNames) == 0 ||
		slices.ContainsFunc(l.Names, func(name string) bool { return slices.Contains(rule.ResourceNames, name) })
}

func meets(list []string, s string) bool { return contains(list, s) || s == "*" && len(list) > 0 }

func meetsResource(list []string, resource string) bool {
	if covers(list, resource) || resource == "*" && len(list) > 0 {
		return true
	}
	sub, all := strings.CutPrefix(resource, "*/")
	return all && slices.ContainsFunc(list, func(s string) bool { return strings.HasSuffix(s, "/"+sub) })
}

// LossSummary names losses in few words, the verbs of a resource together.
func LossSummary(losses []Loss) string { return lossText(losses, most) }

// LossList names losses as LossSummary does, and as many as a page can bear.
func LossList(losses []Loss) string { return lossText(losses, 50) }

func lossText(losses []Loss, most int) string {
	var order []string
	verbs, namespaces := map[string][]string{}, map[string]bool{}
	for _, l := range losses {
		what := l.what(most)
		if _, again := verbs[what]; !again {
			order = append(order, what)
		}
		if !slices.Contains(verbs[what], l.Verb) {
			verbs[what] = append(verbs[what], l.Verb)
		}
		namespaces[l.Namespace] = true
	}
	for i, what := range order {
		order[i] = phrase(verbs[what], what)
	}
	text := strings.Join(few(order, most), ", ")
	switch {
	case len(namespaces) == 0 || namespaces[""]:
	case len(namespaces) == 1:
		text += " in namespace " + slices.Collect(maps.Keys(namespaces))[0]
	default:
		text += fmt.Sprintf(" in %d namespaces", len(namespaces))
	}
	return text
}

// what is the object of a loss, as people say it.
func (l *Loss) what(most int) string {
	name := whatOf(l.Group, l.Resource)
	switch {
	case l.URL == "*":
		name = "every path"
	case l.URL != "":
		name = l.URL
	case name == everything && len(l.Kept) == 0:
		name = anything
	}
	if len(l.Names) == 0 {
		return name
	}
	quoted := make([]string, len(l.Names))
	for i, n := range l.Names {
		quoted[i] = fmt.Sprintf("%q", n)
	}
	return name + " " + strings.Join(few(quoted, most), ", ")
}

// Who may no longer do anything is left with nothing; who may no longer do
// everything, with something.
const everything, anything = "everything", "anything"

// whatOf names resources, wildcards in words.
func whatOf(group, resource string) string {
	switch {
	case resource == "*" && group == "*":
		return everything
	case resource == "*" && group == "":
		return "everything of the core group"
	case resource == "*":
		return "everything of " + group
	case group == "*":
		return resource + " of every group"
	}
	return GroupResource(group, resource)
}

func phrase(verbs []string, what string) string {
	switch {
	case !slices.Contains(verbs, "*"):
		return strings.Join(verbs, "/") + " " + what
	case what == everything || what == anything:
		return "do " + what
	}
	return "do anything to " + what
}
