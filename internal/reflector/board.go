// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"cmp"
	"slices"
	"sync"

	"github.com/fairlead-io/fairlead/internal/model"
)

// object identifies an object of a source.
type object struct {
	kind Kind
	name model.Name
}

func (e Event) object() object { return object{e.Kind, e.Name} }

func (o object) compare(other object) int {
	return cmp.Or(cmp.Compare(o.kind, other.kind), o.name.Compare(other.name))
}

// board holds the problems of every object, and tells the handler when the
// list changes. Several kinds write on one board, because the handler wants
// one list.
type board struct {
	handler Handler

	mu       sync.Mutex
	problems map[object][]Problem
}

// update calls change under the lock, and publishes the list if change says
// that it altered anything.
func (b *board) update(change func(problems map[object][]Problem) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.problems == nil {
		b.problems = make(map[object][]Problem)
	}
	if change(b.problems) {
		b.handler.Problems(b.list())
	}
}

// set replaces the problems of one object; none means that it is well.
func (b *board) set(o object, problems []Problem) {
	b.update(func(all map[object][]Problem) bool {
		if slices.Equal(all[o], problems) {
			return false
		}
		if len(problems) == 0 {
			delete(all, o)
			return true
		}
		all[o] = problems
		return true
	})
}

// replace exchanges the problems of every object of a kind.
func (b *board) replace(kind Kind, problems map[object][]Problem) {
	b.update(func(all map[object][]Problem) bool {
		changed := false
		for o, old := range all {
			if o.kind == kind && !slices.Equal(old, problems[o]) {
				delete(all, o)
				changed = true
			}
		}
		for o, list := range problems {
			if _, same := all[o]; !same {
				all[o] = list
				changed = true
			}
		}
		return changed
	})
}

func (b *board) list() []Problem {
	objects := make([]object, 0, len(b.problems))
	for o := range b.problems {
		objects = append(objects, o)
	}
	slices.SortFunc(objects, object.compare)
	list := make([]Problem, 0, len(objects))
	for _, o := range objects {
		list = append(list, b.problems[o]...)
	}
	return list
}
