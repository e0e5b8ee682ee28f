// SPDX-License-Identifier: Apache-2.0

package model

import "strconv"

// choice is what one traffic policy makes of the endpoints of a Service port.
// Sets of the same policy share its lists.
type choice struct {
	backends []Backend
	draining []Backend
}

// choose picks the backends for new connections under a policy, and the
// terminating endpoints that keep their open ones (R7, R9, R10, R11, R15):
// ready endpoints, near ones only for policy Cluster; if there are none, those
// that still serve while they terminate. Policy Local sees only this node's.
func choose(all []endpoint, policy TrafficPolicy) choice {
	ready, fallback, terminating := 0, 0, 0
	for i := range all {
		e := &all[i]
		if policy == PolicyLocal && !e.local {
			continue
		}
		switch {
		case usableReady(e, policy):
			ready++
		case e.fallback():
			fallback++
			terminating++
		case e.Terminating:
			terminating++
		}
	}
	if ready > 0 {
		return split(all, policy, false, ready, terminating)
	}
	return split(all, policy, true, fallback, terminating-fallback)
}

// usableReady says that the policy uses the endpoint because it is ready.
func usableReady(e *endpoint, policy TrafficPolicy) bool {
	return e.Ready && (policy == PolicyLocal || e.near)
}

// split makes the lists; their lengths are known, so each is one allocation.
func split(all []endpoint, policy TrafficPolicy, useFallback bool, backends, draining int) choice {
	c := choice{makeBackends(backends), makeBackends(draining)}
	for i := range all {
		e := &all[i]
		if policy == PolicyLocal && !e.local {
			continue
		}
		switch {
		case usableReady(e, policy):
			c.backends = append(c.backends, e.backend(StateActive))
		case useFallback && e.fallback():
			c.backends = append(c.backends, e.backend(StateTerminating))
		case e.Terminating:
			c.draining = append(c.draining, e.backend(StateTerminating))
		}
	}
	return c
}

func makeBackends(n int) []Backend {
	if n == 0 {
		return nil
	}
	return make([]Backend, 0, n)
}

func (e *endpoint) backend(state BackendState) Backend {
	return Backend{
		AddrPort: e.addrPort,
		State:    state,
		Local:    e.local,
		Node:     e.NodeName,
		Slices:   e.slices,
	}
}

const reasonUnsupported = "SCTP sockets do not pass the socket hooks; served once the packet path is"

// verdict says what happens to a new connection to the set of a role, and why
// if it is not forwarded: with nothing usable anywhere it is refused (R13);
// with nothing usable here only, dropped, so that another node may answer
// (R10, R11).
func verdict(all []endpoint, backends []Backend, protocol Protocol, role Role) (Action, string) {
	if protocol == SCTP {
		return ActionUnsupported, reasonUnsupported
	}
	if len(backends) > 0 {
		return ActionForward, ""
	}
	if len(all) == 0 {
		return ActionReject, "no EndpointSlice holds an endpoint for this port"
	}
	elsewhere := countUsable(all)
	if elsewhere == 0 {
		return ActionReject, "no endpoint is ready, and none still serves while it terminates (" + strconv.Itoa(len(all)) + " known)"
	}
	field := "externalTrafficPolicy"
	if role == RoleClusterIP {
		field = "internalTrafficPolicy"
	}
	return ActionDrop, field + " is Local and no endpoint on this node is usable (" + strconv.Itoa(elsewhere) + " elsewhere)"
}

// countUsable counts what R7 would use if neither policy nor topology mattered.
func countUsable(all []endpoint) int {
	ready, fallback := 0, 0
	for i := range all {
		if all[i].Ready {
			ready++
		}
		if all[i].fallback() {
			fallback++
		}
	}
	if ready > 0 {
		return ready
	}
	return fallback
}
