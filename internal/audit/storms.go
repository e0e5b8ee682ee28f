// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// A storm is on while the last stormWrites writes of one object lie within
// stormSpan. Leader election and node heartbeats stay well below.
const (
	stormWrites = 10
	stormSpan   = 10 * time.Second
	// sweepEvery is after how many writes objects at rest are forgotten.
	sweepEvery = 4096
	// maxStorms bounds how many storms are kept: those with most writes.
	maxStorms = 1000
)

// Object is what a write was about.
type Object struct {
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// Storm is a time in which one object was written again and again.
type Storm struct {
	Object Object    `json:"object"`
	Began  time.Time `json:"began"`
	Ended  time.Time `json:"ended"`
	Writes int       `json:"writes"`
	// Writers are the users with the number of their writes.
	Writers map[string]int `json:"writers"`
}

// storms finds storms in a stream of writes. It holds the objects that were
// written within the last stormSpan, and what it found.
type storms struct {
	objects map[Object]*writes
	found   []Storm
	adds    int
}

// writes is an object's last writes, the oldest first, never more than
// stormWrites, and the storm that is on, if it has any writes.
type writes struct {
	last  []write
	storm Storm
}

type write struct {
	at   time.Time
	user string
}

func newStorms() storms { return storms{objects: map[Object]*writes{}} }

func (s *storms) add(r Record) {
	// Without a name there is no one object: a deleted collection.
	if r.Name == "" {
		return
	}
	if s.adds++; s.adds%sweepEvery == 0 {
		s.sweep(r.Time)
	}
	object := Object{r.Resource.String(), r.Namespace, r.Name}
	w := s.objects[object]
	if w == nil {
		w = &writes{}
		s.objects[object] = w
	}
	if len(w.last) == stormWrites {
		w.last = append(w.last[:0], w.last[1:]...)
	}
	w.last = append(w.last, write{r.Time, r.User})
	if len(w.last) < stormWrites || r.Time.Sub(w.last[0].at) > stormSpan {
		s.end(w)
		return
	}
	w.grow(object)
}

// grow counts the last write, or all that made the storm if it begins.
func (w *writes) grow(object Object) {
	counted := w.last[len(w.last)-1:]
	if w.storm.Writes == 0 {
		counted = w.last
		w.storm = Storm{Object: object, Began: w.last[0].at, Writers: map[string]int{}}
	}
	for _, one := range counted {
		w.storm.Writers[one.user]++
		w.storm.Writes++
		w.storm.Ended = one.at
	}
}

// end keeps the storm that was on.
func (s *storms) end(w *writes) {
	if w.storm.Writes == 0 {
		return
	}
	s.found = append(s.found, w.storm)
	w.storm = Storm{}
	if len(s.found) >= 2*maxStorms {
		s.found = largest(s.found)
	}
}

func (s *storms) sweep(now time.Time) {
	for object, w := range s.objects {
		if now.Sub(w.last[len(w.last)-1].at) > stormSpan {
			s.end(w)
			delete(s.objects, object)
		}
	}
}

// all returns what was found, and what is still on.
func (s *storms) all() []Storm {
	found := append([]Storm{}, s.found...)
	for w := range maps.Values(s.objects) {
		if w.storm.Writes > 0 {
			found = append(found, w.storm)
		}
	}
	return largest(found)
}

func largest(found []Storm) []Storm {
	slices.SortFunc(found, func(a, b Storm) int {
		return cmp.Or(cmp.Compare(b.Writes, a.Writes), a.Began.Compare(b.Began),
			cmp.Compare(a.Object.Namespace, b.Object.Namespace), cmp.Compare(a.Object.Name, b.Object.Name))
	})
	return found[:min(len(found), maxStorms)]
}
