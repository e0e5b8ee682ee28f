// SPDX-License-Identifier: Apache-2.0

package model

import "slices"

// Empty says that no endpoint is behind the set, on this node or any other. A
// policy that leaves this node without one (ActionDrop) is not that.
func (s *Set) Empty() bool { return s.Action == ActionReject && len(s.Backends) == 0 }

// WithKept returns what is left of a Service whose Empty sets go on with what
// is kept for them: a set for which something is kept forwards to it. It is the
// stage after Resolve, and what is kept is of this Service alone, in the order
// of a Set's backends and of its family. All else of the set stays its own. The
// receiver is not modified, and is returned as it is if nothing is kept.
func (c *Compiled) WithKept(kept func(SetKey) []Backend) Compiled {
	with := *c
	for i := range c.Sets {
		if !c.Sets[i].Empty() {
			continue
		}
		backends := kept(c.Sets[i].Key)
		if len(backends) == 0 {
			continue
		}
		if &with.Sets[0] == &c.Sets[0] {
			with.Sets = slices.Clone(c.Sets)
		}
		with.Sets[i] = c.Sets[i].forwardTo(backends)
	}
	return with
}

// forwardTo returns the set with backends for new connections. One that was
// draining takes them again.
func (s *Set) forwardTo(backends []Backend) Set {
	forward := *s
	forward.Action, forward.Reason, forward.Backends, forward.Draining = ActionForward, "", backends, nil
	for _, d := range s.Draining {
		if !slices.ContainsFunc(backends, func(b Backend) bool { return b.AddrPort == d.AddrPort }) {
			forward.Draining = append(forward.Draining, d)
		}
	}
	return forward
}
