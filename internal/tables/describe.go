// SPDX-License-Identifier: Apache-2.0

package tables

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/internal/model"
)

const firstSeen = "the Service was first seen"

// maxChanges bounds the facts kept of one transition.
const maxChanges = 20

// facts collects what changed, each fact once: sets of several roles change
// alike. A large Service may have very many.
type facts struct {
	list []string
	seen map[string]struct{}
}

func (f *facts) add(format string, args ...any) {
	fact := fmt.Sprintf(format, args...)
	if _, told := f.seen[fact]; told {
		return
	}
	f.seen[fact] = struct{}{}
	f.list = append(f.list, fact)
}

// cut leaves out what is too much for a row.
func (f *facts) cut() []string {
	if len(f.list) <= maxChanges {
		return f.list
	}
	kept := slices.Clone(f.list[:maxChanges-1])
	return append(kept, fmt.Sprintf("and %d more changes", len(f.list)-len(kept)))
}

// describe says in words what changed between two rows of a Service, after what
// is known of it besides.
func describe(before, after *Service, known []string) []string {
	f := &facts{seen: map[string]struct{}{}}
	for _, fact := range known {
		f.add("%s", fact)
	}
	if before.Ignored != after.Ignored {
		f.add("%s", ignoredFact(after.Ignored))
	}
	merge(before.Compiled.Claims, after.Compiled.Claims, compareClaims, func(was, is *model.Claim) {
		f.claim(was, is, after.Compiled.Sets)
	})
	merge(before.Compiled.Sets, after.Compiled.Sets, compareSets, func(was, is *model.Set) {
		if was != nil && is != nil && !was.Equal(is) {
			f.set(was, is)
		}
	})
	return f.cut()
}

func ignoredFact(reason string) string {
	if reason == "" {
		return "the Service is served from now on"
	}
	return "the Service is not served: " + reason
}

func (f *facts) claim(was, is *model.Claim, sets []model.Set) {
	switch {
	case is == nil:
		f.add("frontend %s went", label(was))
	case was == nil && is.Shadowed == "":
		f.add("frontend %s appeared: %s", label(is), outcome(&sets[is.Set]))
	case was == nil:
		f.add("frontend %s appeared, shadowed: held by %s", label(is), is.Shadowed)
	case was.Shadowed != is.Shadowed && is.Shadowed == "":
		f.add("frontend %s is held by this Service again: %s", label(is), outcome(&sets[is.Set]))
	case was.Shadowed != is.Shadowed:
		f.add("frontend %s is shadowed: held by %s", label(is), is.Shadowed)
	}
}

// label names a frontend so that no two of a Service have the same.
func label(c *model.Claim) string {
	kind := c.Type.String()
	if c.PortName != "" {
		kind += ", port " + c.PortName
	}
	if c.Key.Scope != model.ScopeAll {
		kind += ", " + c.Key.Scope.String()
	}
	return fmt.Sprintf("%s (%s)", c.Key, kind)
}

// outcome says what becomes of a connection.
func outcome(s *model.Set) string {
	if s.Action != model.ActionForward {
		return fmt.Sprintf("%s (%s)", s.Action, s.Reason)
	}
	if len(s.Backends) == 1 {
		return "forward to 1 backend"
	}
	return fmt.Sprintf("forward to %d backends", len(s.Backends))
}

// portLabel names a port among those of its Service.
func portLabel(k model.SetKey) string { return cmp.Or(k.PortName, k.Protocol.String()) }

func (f *facts) set(was, is *model.Set) {
	port := portLabel(is.Key)
	switch {
	case was.Action != is.Action:
		f.add("port %s (%s, %s): %s → %s", port, is.Key.Role, is.Key.Family, was.Action, outcome(is))
	case was.Reason != is.Reason:
		f.add("port %s (%s, %s): still %s, now because %s", port, is.Key.Role, is.Key.Family, is.Action, is.Reason)
	}
	if was.AffinitySeconds != is.AffinitySeconds {
		f.add("port %s: session affinity %s → %s", port, affinity(was), affinity(is))
	}
	if was.Selection != is.Selection {
		f.add("port %s: selection %s → %s", port, was.Selection, is.Selection)
	}
	if !slices.Equal(was.SourceRanges, is.SourceRanges) {
		f.add("port %s: source ranges %s → %s", port, sourceRanges(was), sourceRanges(is))
	}
	merge(allBackends(was), allBackends(is), comparePlaced, func(was, is *placed) { f.backend(port, was, is) })
}

func affinity(s *model.Set) string {
	if s.AffinitySeconds == 0 {
		return "none"
	}
	return fmt.Sprintf("%d s", s.AffinitySeconds)
}

func sourceRanges(s *model.Set) string {
	if len(s.SourceRanges) == 0 {
		return "none, open to all"
	}
	return list(s.SourceRanges)
}

func list[T fmt.Stringer](all []T) string {
	words := make([]string, len(all))
	for i, v := range all {
		words[i] = v.String()
	}
	return strings.Join(words, ", ")
}

func (f *facts) backend(port string, was, is *placed) {
	if was == nil {
		f.add("port %s: backend %s appeared (%s)", port, is.AddrPort, is.place())
		return
	}
	if is == nil {
		f.add("port %s: backend %s went (was %s)", port, was.AddrPort, was.place())
		return
	}
	if was.place() != is.place() {
		f.add("port %s: backend %s: %s → %s", port, is.AddrPort, was.place(), is.place())
	}
	if was.Node != is.Node {
		f.add("port %s: backend %s is %s now, was %s", port, is.AddrPort, whereabouts(is.Node), whereabouts(was.Node))
	}
	if !slices.Equal(was.Slices, is.Slices) {
		f.add("port %s: backend %s stands in EndpointSlice %s now, was in %s", port, is.AddrPort, list(is.Slices), list(was.Slices))
	}
}

func whereabouts(node string) string {
	if node == "" {
		return "on no node"
	}
	return "on node " + node
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
	return cmp.Or(a.Key.Compare(b.Key), cmp.Compare(a.Type, b.Type), cmp.Compare(a.PortName, b.PortName))
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
