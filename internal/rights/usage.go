// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/audit"
	"github.com/fairlead-io/fairlead/internal/rbac"
)

// What a usage keeps is bounded: a log may name any number of users and paths.
const (
	maxUses = 50_000
	// maxNames is how many names of one user, verb, resource and namespace are told
	// apart.
	maxNames = 16
	// maxStarted is how many requests may go on at a time.
	maxStarted = 100_000
)

// Asked is who asked for what.
type Asked struct {
	User string
	// By is who asked in the user's name.
	By string
	Right
	// More is that it is names beyond those that are told apart.
	More bool
}

// Tally is how often something was asked for, and when.
type Tally struct {
	Requests int
	// Refused are those that the server's authorizers refused.
	Refused     int
	First, Last time.Time
	// Allowed is when it was allowed last, LastRefused when it was refused last.
	Allowed, LastRefused time.Time
}

// Use is what was asked for, and how often.
type Use struct {
	Asked
	Tally
}

// Usage adds up what users asked for. Create it with NewUsage.
type Usage struct {
	user    string
	uses    map[Asked]*Tally
	names   map[Asked]int // without their names
	groups  map[string]bool
	verbs   map[string]bool // of anybody, on resources
	started map[string]bool // audit IDs of requests that go on
	// Uncounted are requests beyond the bounds, Unjudged those that never came to
	// the authorizers, or of which the log does not say who asked.
	Uncounted, Unjudged int
}

// NewUsage is the usage of one user, or of all if it is "".
func NewUsage(user string) *Usage {
	return &Usage{user: user, uses: map[Asked]*Tally{}, names: map[Asked]int{}, groups: map[string]bool{}, verbs: map[string]bool{}, started: map[string]bool{}}
}

// Add takes the next record.
func (u *Usage) Add(r audit.Record) {
	if r.Stage == audit.RequestReceived || u.again(r) {
		return
	}
	if slices.Contains(verbOrder, r.Verb) && r.Resource.Resource != "" {
		u.verbs[r.Verb] = true
	}
	if r.User == "" || r.Code == http.StatusUnauthorized || r.Decision == "" && r.Code == http.StatusTooManyRequests {
		u.Unjudged++
		return
	}
	right, refused := judged(r)
	switch {
	case r.Impersonated != "":
		u.count(Asked{User: r.User, Right: impersonation(r.Impersonated)}, r.Time, false)
		u.count(Asked{User: r.Impersonated, By: r.User, Right: right}, r.Time, refused)
	default:
		u.count(Asked{User: r.User, Right: right}, r.Time, refused)
		if r.User == u.user && len(u.groups) < maxNames {
			for _, group := range r.Groups {
				u.groups[group] = true
			}
		}
	}
}

// again says whether a request was counted when it began: watches last, and what
// began may have no end in the log.
func (u *Usage) again(r audit.Record) bool {
	switch {
	case r.AuditID == "":
		return r.Stage == audit.ResponseStarted
	case u.started[r.AuditID]:
		if r.Done() {
			delete(u.started, r.AuditID)
		}
		return true
	case r.Stage == audit.ResponseStarted:
		if len(u.started) >= maxStarted {
			return true // its end counts
		}
		u.started[r.AuditID] = true
	}
	return false
}

// judged is the right that a request needs, and whether it was refused for want
// of it. A refusal that admission speaks out, as of a quota, is none.
func judged(r audit.Record) (Right, bool) {
	right := Right{Request: rbac.Request{
		Verb: r.Verb, Group: r.Resource.Group, Resource: r.Resource.Resource, Namespace: r.Namespace, Name: r.RequestedName(),
	}}
	if r.Resource.Subresource != "" {
		right.Resource += "/" + r.Resource.Subresource
	}
	if r.Resource.Resource == "" {
		path, _, _ := strings.Cut(r.RequestURI, "?")
		right = Right{Request: rbac.Request{Verb: r.Verb}, Path: path}
	}
	switch {
	case r.Decision != "":
		return right, r.Decision == "forbid"
	case r.Code != http.StatusForbidden:
		return right, false
	}
	// Whoever may not impersonate does not come to what he asked for.
	if d, is := rbac.ParseDenial(r.Message); is {
		return Right{Request: d.Request}, true
	}
	return right, r.Message == "" || strings.Contains(r.Message, " cannot ")
}

// impersonation is the right to ask in another's name.
func impersonation(user string) Right {
	if namespace, name := rbac.AccountOf(user); name != "" {
		return Right{Request: rbac.Request{Verb: "impersonate", Resource: "serviceaccounts", Namespace: namespace, Name: name}}
	}
	return Right{Request: rbac.Request{Verb: "impersonate", Resource: "users", Name: user}}
}

func (u *Usage) count(a Asked, at time.Time, refused bool) {
	if u.user != "" && a.User != u.user {
		return
	}
	tally := u.tally(a, at)
	if tally == nil {
		u.Uncounted++
		return
	}
	one := Tally{Requests: 1, First: at, Last: at, Allowed: at}
	if refused {
		one.Refused, one.Allowed, one.LastRefused = 1, time.Time{}, at
	}
	tally.add(one)
}

func (u *Usage) tally(a Asked, at time.Time) *Tally {
	if t := u.uses[a]; t != nil {
		return t
	}
	if a.Name != "" {
		nameless := a
		nameless.Name = ""
		if u.names[nameless] >= maxNames {
			nameless.More = true
			if t := u.uses[nameless]; t != nil {
				return t
			}
			a = nameless
		} else if len(u.uses) < maxUses {
			u.names[nameless]++
		}
	}
	if len(u.uses) >= maxUses {
		return nil
	}
	t := &Tally{First: at}
	u.uses[a] = t
	return t
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Groups are those that the log says the one user is in.
func (u *Usage) Groups() []string { return slices.Sorted(maps.Keys(u.groups)) }

// Saw says whether the log has a request of anybody with a verb on a resource.
func (u *Usage) Saw(verb string) bool { return u.verbs[verb] }

// Uses is what was asked for, each name by itself, in order.
func (u *Usage) Uses() []Use {
	var all []Use
	for asked, tally := range u.uses {
		all = append(all, Use{asked, *tally})
	}
	slices.SortFunc(all, func(a, b Use) int {
		return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(a.By, b.By), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Group, b.Group),
			cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Namespace, b.Namespace), byVerb(a.Verb, b.Verb), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// Sum is what was asked for of one kind of object in one namespace, with the
// names that are told apart.
type Sum struct {
	Use
	Names []string
}

// Summed are uses with those of all names of an object together, in the same
// order.
func Summed(uses []Use) []Sum {
	var out []Sum
	for _, u := range uses {
		name, more := u.Name, u.More
		u.Name, u.More = "", false
		if last := len(out) - 1; last < 0 || !out[last].same(u.Asked) {
			out = append(out, Sum{Use: Use{Asked: u.Asked, Tally: Tally{First: u.First}}})
		}
		sum := &out[len(out)-1]
		sum.add(u.Tally)
		sum.More = sum.More || more
		if name != "" {
			sum.Names = append(sum.Names, name)
		}
	}
	return out
}

func (s *Sum) same(a Asked) bool {
	a.More = s.More
	return s.Asked == a
}

func (t *Tally) add(o Tally) {
	t.Requests += o.Requests
	t.Refused += o.Refused
	if o.First.Before(t.First) {
		t.First = o.First
	}
	t.Last, t.Allowed, t.LastRefused = latest(t.Last, o.Last), latest(t.Allowed, o.Allowed), latest(t.LastRefused, o.LastRefused)
}
