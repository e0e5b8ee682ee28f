// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"slices"
	"time"
)

// action is a step: something that happens in every cluster, or a fault.
type action struct {
	name   string
	weight int
	// can says whether it can happen now; nil: always.
	can func(*world) bool
	// writes says that putting it right again takes an API server.
	writes bool
	// do makes it happen. What it returns puts it right again; nil if that
	// happens by itself, or nothing is wrong.
	do func(*world) func()
}

// active is a fault that was not healed yet.
type active struct {
	action
	heal func()
}

// takeActive takes a fault from the list that can end now.
func (w *world) takeActive(pick func(n int) int) active {
	var can []int
	for i, a := range w.active {
		if !a.writes || w.apiUp() {
			can = append(can, i)
		}
	}
	i := can[pick(len(can))]
	a := w.active[i]
	w.active = slices.Delete(w.active, i, i+1)
	return a
}

// actions are all that can happen.
func actions() []action {
	var all []action
	for _, some := range [][]action{life(), agentFaults(), serverFaults(), networkFaults(), kernelFaults(), fileFaults()} {
		all = append(all, some...)
	}
	return all
}

// life is what happens in every cluster.
func life() []action {
	// one does something with a lively Service, which exists or not.
	one := func(name string, weight int, exists bool, do func(*world, *service)) action {
		pick := func(w *world) []*service {
			var some []*service
			for _, s := range w.services {
				if !s.steady && s.exists == exists {
					some = append(some, s)
				}
			}
			return some
		}
		return action{
			name: name, weight: weight,
			can: func(w *world) bool { return w.apiUp() && len(pick(w)) > 0 },
			do: func(w *world) func() {
				some := pick(w)
				do(w, some[w.rand.IntN(len(some))])
				return nil
			},
		}
	}
	return []action{
		one("Service created", 6, false, func(w *world, s *service) {
			w.create(s, [2]map[int]condition{w.drawEndpoints(), w.drawEndpoints()})
		}),
		one("Service deleted", 2, true, func(w *world, s *service) { w.remove(s) }),
		one("Service deleted and created again", 2, true, func(w *world, s *service) {
			endpoints := s.slices
			w.remove(s)
			w.create(s, endpoints)
		}),
		one("Service scaled", 10, true, func(w *world, s *service) { w.writeSlices(s, w.rand.IntN(2), w.drawEndpoints()) }),
		one("Service emptied", 2, true, func(w *world, s *service) {
			for i := range s.slices {
				w.writeSlices(s, i, map[int]condition{})
			}
		}),
		one("slices deleted", 2, true, func(w *world, s *service) { w.deleteSlices(s, w.rand.IntN(2)) }),
		one("endpoints moved between slices", 4, true, func(w *world, s *service) {
			// They are in both for a while, as slice controllers see to it (R4).
			from := w.rand.IntN(2)
			both := map[int]condition{}
			for _, endpoints := range s.slices {
				for i, c := range endpoints {
					if was, ok := both[i]; !ok || c < was {
						both[i] = c
					}
				}
			}
			w.writeSlices(s, 1-from, both)
			w.writeSlices(s, from, map[int]condition{})
		}),
		{
			name: "Service touched", weight: 8, can: (*world).apiUp,
			do: func(w *world) func() {
				if s := w.services[w.rand.IntN(len(w.services))]; s.exists {
					w.touch(s)
				}
				return nil
			},
		},
	}
}

// outlast lets the faults of the moment last longer than heartbeats and
// timeouts do.
var outlast = action{name: "nothing for a long time", weight: 2, can: func(w *world) bool { return len(w.active) > 0 }, do: func(w *world) func() {
	time.Sleep(5*time.Second + time.Duration(w.rand.Int64N(int64(25*time.Second))))
	return nil
}}

// drawEndpoints draws a slice: most often with some that are ready.
func (w *world) drawEndpoints() map[int]condition {
	endpoints := map[int]condition{}
	for i := range w.backends {
		switch w.rand.IntN(8) {
		case 0, 1, 2:
			endpoints[i] = ready
		case 3:
			endpoints[i] = terminating
		case 4:
			endpoints[i] = notReady
		}
	}
	return endpoints
}
