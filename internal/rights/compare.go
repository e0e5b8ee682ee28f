// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/audit"
	"github.com/fairlead-io/fairlead/internal/rbac"
)

// Case is what is known of one user.
type Case struct {
	Access *Access
	// Uses are what he asked for, and Needs what else is known that he needs.
	Uses  []Use
	Needs *Needs
	// Hidden is why the log would not show that a right is used; "": it would.
	Hidden func(Right) string
}

// Comparison is what of a user's rights does not fit what he uses and needs.
type Comparison struct {
	TooLittle []Lack   `json:"tooLittle"`
	TooMuch   []Excess `json:"tooMuch"`
}

// Lack is what he has no right to, and why he should have it.
type Lack struct {
	Rule
	Why  []string  `json:"why"`
	Last time.Time `json:"last,omitzero"` // when he asked for it
}

// Excess is what he has a right to, and did not use.
type Excess struct {
	Rule
	Binding string `json:"binding"`
	Role    string `json:"role"`
	// UsedFor is what a wildcard was used for, in few words; "": nothing.
	UsedFor string `json:"usedFor,omitempty"`
	// Essential is what of a wildcard no version of the component can work without.
	Essential string `json:"essential,omitempty"`
	// Hidden is why the log cannot say that it was not used.
	Hidden string `json:"hidden,omitempty"`
}

// Compare finds what is too little and what is too much. What everybody may do
// is never too much, nor is what a component cannot work without, and a list beside
// a watch that is used: it shows nothing more, and clients fall back on it.
func Compare(c Case) Comparison {
	return Comparison{TooLittle: c.lacks(), TooMuch: c.excesses()}
}

// reason is why a right is needed.
type reason struct {
	why  string
	last time.Time
}

const (
	wasRefused = "asked for and refused"
	wasAllowed = "used, and no longer granted"
	neededBy   = "needed by "
)

func (c Case) lacks() []Lack {
	const parted = "\x00"
	found := map[Right]reason{}
	add := func(r Right, why string, last time.Time) {
		known := found[r]
		switch {
		case slices.Contains(strings.Split(known.why, parted), why):
			why = known.why
		case known.why != "":
			why = known.why + parted + why
		}
		found[r] = reason{why, latest(known.last, last)}
	}
	for _, u := range c.Uses {
		// Names beyond those that are told apart: if no right covers all names, one
		// cannot tell for which of them there is one.
		if u.More || c.Access.Allows(u.Right) {
			continue
		}
		if !u.Allowed.IsZero() {
			add(u.Right, wasAllowed, u.Allowed)
		}
		if u.Refused > 0 {
			add(u.Right, wasRefused, u.LastRefused)
		}
	}
	if c.Needs != nil {
		for r, sources := range c.Needs.sources {
			if !c.Access.Allows(r) {
				add(r, neededBy+strings.Join(sources, ", "), time.Time{})
			}
		}
	}
	// Rights that differ in nothing but when they were asked for last are one rule.
	lasts, whys := map[Right]time.Time{}, map[Right]string{}
	for r, why := range found {
		lasts[r], whys[r] = why.last, why.why
	}
	out := []Lack{}
	for _, m := range summed(whys) {
		l := Lack{Rule: m.Rule, Why: strings.Split(m.mark, parted)}
		for _, r := range m.rights() {
			l.Last = latest(l.Last, lasts[r])
		}
		out = append(out, l)
	}
	return out
}

// rights are those of which a rule is the sum.
func (r Rule) rights() []Right {
	return rightsOf(r.policyRule(), r.Namespace)
}

// surplus is what is said of a right that was not used, or not for all that it
// gives.
type surplus struct {
	binding, role              rbac.Ref
	usedFor, essential, hidden string
}

func (c Case) excesses() []Excess {
	// Two bindings may give the same: each is too much for itself.
	byGrant := map[[2]rbac.Ref]map[Right]surplus{}
	var order [][2]rbac.Ref
	for _, g := range c.Access.own() {
		used, essential := c.usedOf(g.Right), c.essentialOf(g.Right)
		if !g.Wild() && (len(used) > 0 || len(essential) > 0 || c.watches(g.Right)) {
			continue
		}
		s := surplus{binding: g.binding, role: g.role, usedFor: rbac.Summary(used), essential: rbac.Summary(essential)}
		if len(used) == 0 && c.Hidden != nil {
			s.hidden = c.Hidden(g.Right)
		}
		by := [2]rbac.Ref{g.binding, g.role}
		if byGrant[by] == nil {
			byGrant[by] = map[Right]surplus{}
			order = append(order, by)
		}
		byGrant[by][g.Right] = s
	}
	out := []Excess{}
	for _, by := range order {
		for _, m := range summed(byGrant[by]) {
			out = append(out, Excess{Rule: m.Rule, Binding: m.mark.binding.String(), Role: m.mark.role.String(), UsedFor: m.mark.usedFor, Essential: m.mark.essential, Hidden: m.mark.hidden})
		}
	}
	slices.SortStableFunc(out, func(a, b Excess) int { return compareRules(a.Rule, b.Rule) })
	return out
}

// watches says that a right is one to list what is watched.
func (c Case) watches(r Right) bool {
	if r.Verb != "list" {
		return false
	}
	r.Verb = "watch"
	return len(c.usedOf(r)) > 0
}

// essentialOf is what a right allows of that without which no version of the
// component works.
func (c Case) essentialOf(r Right) (out []rbac.Request) {
	if c.Needs == nil {
		return nil
	}
	alone := r.alone()
	for need, sources := range c.Needs.sources {
		if slices.Contains(sources, Essential) && alone.Allows(need) {
			out = append(out, need.Request)
		}
	}
	slices.SortFunc(out, func(a, b rbac.Request) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Verb, b.Verb))
	})
	return out
}

// usedOf are the requests that a right allows of those that were allowed, each
// without its name.
func (c Case) usedOf(r Right) (used []rbac.Request) {
	alone := r.alone()
	for _, u := range c.Uses {
		if u.Allowed.IsZero() || !alone.Allows(u.Right) {
			continue
		}
		request := u.Request
		request.Name, request.Namespace = "", ""
		if u.Path != "" {
			request.Resource = u.Path
		}
		if !slices.Contains(used, request) {
			used = append(used, request)
		}
	}
	return used
}

// Hidden says why the log whose records are in a usage would not show that the
// user made use of a right, as far as the log and its policy tell; the policy
// may be nil.
func (u *Usage) Hidden(user rbac.User, policy *audit.Policy) func(Right) string {
	return func(r Right) string {
		switch {
		case r.Path != "" || r.Wild():
			return ""
		case policy != nil:
			return hiddenBy(policy, user, r)
		case slices.Contains(verbOrder, r.Verb) && !u.Saw(r.Verb):
			return "the log has no " + r.Verb + " of anybody: its policy may leave it out"
		}
		return ""
	}
}

func hiddenBy(policy *audit.Policy, user rbac.User, r Right) string {
	resource, sub, _ := strings.Cut(r.Resource, "/")
	level, rule := policy.Level(audit.Record{
		User: user.Name, Groups: user.Groups, Verb: r.Verb, Namespace: r.Namespace, Name: r.Name,
		Resource: audit.Resource{Group: r.Group, Resource: resource, Subresource: sub},
	})
	switch {
	case level == audit.None && rule == 0:
		return "no rule of the audit policy is about it"
	case level == audit.None:
		return "rule " + strconv.Itoa(rule) + " of the audit policy leaves it out"
	case policy.Omits(rule, audit.ResponseComplete) && policy.Omits(rule, audit.ResponseStarted):
		return "rule " + strconv.Itoa(rule) + " of the audit policy leaves its end out"
	}
	return ""
}
