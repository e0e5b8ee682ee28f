// SPDX-License-Identifier: Apache-2.0

package tables

import (
	"fmt"
	"slices"

	"github.com/fairlead-io/fairlead/internal/model"
)

const firstSeen = "the Service was first seen"

// maxChanges bounds the facts kept of one transition.
const maxChanges = 20

// describe says in words what changed between two rows of a Service. Sets that
// changed alike, as those of several roles do, are told once.
func describe(before, after *Service) []string {
	var facts []string
	add := func(format string, args ...any) {
		fact := fmt.Sprintf(format, args...)
		if !slices.Contains(facts, fact) {
			facts = append(facts, fact)
		}
	}
	if before.Ignored != after.Ignored {
		add("%s", ignoredFact(after.Ignored))
	}
	describeClaims(before.Compiled.Claims, after.Compiled.Claims, add)
	merge(before.Compiled.Sets, after.Compiled.Sets, compareSets, func(was, is *model.Set) {
		if was != nil && is != nil && !was.Equal(is) {
			describeSet(was, is, add)
		}
	})
	if len(facts) > maxChanges {
		more := len(facts) - maxChanges + 1
		facts = append(facts[:maxChanges-1], fmt.Sprintf("and %d more changes", more))
	}
	return facts
}

func ignoredFact(reason string) string {
	if reason == "" {
		return "the Service is served from now on"
	}
	return "the Service is not served: " + reason
}

func describeClaims(before, after []model.Claim, add func(string, ...any)) {
	merge(before, after, compareClaims, func(was, is *model.Claim) {
		switch {
		case was == nil:
			add("frontend %s (%s) appeared%s", is.Key, is.Type, shadowedBy(is))
		case is == nil:
			add("frontend %s (%s) went", was.Key, was.Type)
		case was.Shadowed != is.Shadowed && is.Shadowed == "":
			add("frontend %s (%s) is held by this Service again", is.Key, is.Type)
		case was.Shadowed != is.Shadowed:
			add("frontend %s (%s)%s", is.Key, is.Type, shadowedBy(is))
		}
	})
}

func shadowedBy(c *model.Claim) string {
	if c.Shadowed == "" {
		return ""
	}
	return " is shadowed: " + c.Shadowed
}

func describeSet(was, is *model.Set, add func(string, ...any)) {
	port := is.Key.PortName
	if port == "" {
		port = is.Key.Protocol.String()
	}
	if was.Action != is.Action || was.Reason != is.Reason {
		add("port %s (%s): %s → %s%s", port, is.Key.Role, was.Action, is.Action, because(is))
	}
	if was.AffinitySeconds != is.AffinitySeconds {
		add("port %s: affinity %d s → %d s", port, was.AffinitySeconds, is.AffinitySeconds)
	}
	if !slices.Equal(was.SourceRanges, is.SourceRanges) {
		add("port %s: source ranges %v → %v", port, was.SourceRanges, is.SourceRanges)
	}
	describeBackends(port, was, is, add)
}

func because(s *model.Set) string {
	if s.Reason == "" {
		return ""
	}
	return " (" + s.Reason + ")"
}

// place is where in a set a backend stands.
func describeBackends(port string, was, is *model.Set, add func(string, ...any)) {
	merge(allBackends(was), allBackends(is), comparePlaced, func(a, b *placed) {
		switch {
		case a == nil:
			add("port %s: backend %s appeared (%s)", port, b.AddrPort, b.place())
		case b == nil:
			add("port %s: backend %s went (was %s)", port, a.AddrPort, a.place())
		case a.place() != b.place():
			add("port %s: backend %s: %s → %s", port, b.AddrPort, a.place(), b.place())
		}
	})
}

// placed is a backend with the part of the set it stands in.
type placed struct {
	*model.Backend
	draining bool
}

func (p *placed) place() string {
	if p.draining {
		return "draining"
	}
	return p.State.String()
}

func allBackends(s *model.Set) []placed {
	all := make([]placed, 0, len(s.Backends)+len(s.Draining))
	for i := range s.Backends {
		all = append(all, placed{&s.Backends[i], false})
	}
	for i := range s.Draining {
		all = append(all, placed{&s.Draining[i], true})
	}
	slices.SortFunc(all, func(a, b placed) int { return comparePlaced(&a, &b) })
	return all
}

func comparePlaced(a, b *placed) int { return a.AddrPort.Compare(b.AddrPort) }

func compareSets(a, b *model.Set) int { return a.Key.Compare(b.Key) }

func compareClaims(a, b *model.Claim) int {
	if c := a.Key.Compare(b.Key); c != 0 {
		return c
	}
	return int(a.Type) - int(b.Type)
}

// merge walks two sorted lists and calls f with the pair of each position; the
// one that has none is nil.
func merge[T any](a, b []T, compare func(x, y *T) int, f func(x, y *T)) {
	for len(a) > 0 || len(b) > 0 {
		order := 0
		switch {
		case len(a) == 0:
			order = 1
		case len(b) == 0:
			order = -1
		default:
			order = compare(&a[0], &b[0])
		}
		switch {
		case order < 0:
			f(&a[0], nil)
			a = a[1:]
		case order > 0:
			f(nil, &b[0])
			b = b[1:]
		default:
			f(&a[0], &b[0])
			a, b = a[1:], b[1:]
		}
	}
}
