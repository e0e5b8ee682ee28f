// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/internal/rbac"
)

// Where it is known from that somebody needs a right. What bindings, a journal,
// a release or manifests give is named by whoever read them.
const (
	Log       = "its log"
	Used      = "audit log"
	Refused   = "audit log (refused)"
	BuiltIn   = "built-in data"
	Essential = "built-in data (essential)"
)

// Needs are rights with all the places that know of them. The zero value has
// none.
type Needs struct {
	sources map[Right][]string
}

// Add adds a right that a source knows of.
func (n *Needs) Add(source string, r Right) {
	if n.sources == nil {
		n.sources = map[Right][]string{}
	}
	if known := n.sources[r]; !slices.Contains(known, source) {
		known = append(known, source)
		slices.Sort(known)
		n.sources[r] = known
	}
}

// AddAccess adds what bindings give a user and not everyone, and says how much
// that is.
func (n *Needs) AddAccess(source string, a *Access) (rights int) {
	all := a.own()
	for _, g := range all {
		n.Add(source, g.Right)
	}
	return len(all)
}

// AddUses adds what a user asked for, all names of an object as one.
func (n *Needs) AddUses(uses []Use) {
	for _, u := range Summed(uses) {
		if !u.Allowed.IsZero() {
			n.Add(Used, u.Right)
		}
		if u.Refused > 0 {
			n.Add(Refused, u.Right)
		}
	}
}

// AddDenial adds what a user's own log says he was refused.
func (n *Needs) AddDenial(d rbac.Denial) { n.Add(Log, Right{Request: d.Request}) }

// AddComponent adds what is known of a component that runs in a namespace.
func (n *Needs) AddComponent(c *rbac.Component, namespace string) {
	for _, rule := range c.Restoration() {
		for _, r := range rightsOf(rule, "") {
			n.Add(BuiltIn, r)
		}
	}
	for _, rule := range c.Local {
		for _, r := range rightsOf(rule, namespace) {
			n.Add(BuiltIn, r)
		}
	}
	n.AddEssential(c)
}

// AddEssential adds what a component of any version cannot work without.
func (n *Needs) AddEssential(c *rbac.Component) {
	for _, r := range c.Requests() {
		n.Add(Essential, Right{Request: r})
	}
}

// Without leaves out what everyone may do.
func (n *Needs) Without(a *Access) {
	for r := range n.sources {
		if a.Everyones(r) {
			delete(n.sources, r)
		}
	}
}

// Need is a rule with all the places that know that it is needed.
type Need struct {
	Rule
	From []string `json:"from"`
}

// Rules are the needs, summed up where the same places know of them.
func (n *Needs) Rules() []Need {
	const parted = "\x00"
	joined := map[Right]string{}
	for r, sources := range n.sources {
		joined[r] = strings.Join(sources, parted)
	}
	out := []Need{}
	for _, m := range summed(joined) {
		out = append(out, Need{m.Rule, strings.Split(m.mark, parted)})
	}
	return out
}
