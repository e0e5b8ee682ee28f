// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
)

// list collects what belongs together: the events of one list, which reach the
// tables in one call, so that an endpoint which moved between slices is never
// seen absent (R4).
type list struct {
	inputs []input
	named  map[model.Name]struct{} // the objects in it, if a list brought them
}

// ofList says that only a list brings events of this type.
func ofList(t journal.Type) bool { return t == journal.Listed || t == journal.Absent }

// continues says that an event is of the same list as those before it: of the
// same kind and moment, as recorders write down a list. Where each event has its
// own time, only those types tell a list that nothing else brings, until an object
// comes again.
func (l *list) continues(in *input) bool {
	if len(l.inputs) == 0 {
		return false
	}
	last := &l.inputs[len(l.inputs)-1]
	if in.object.Kind != last.object.Kind {
		return false
	}
	if in.event.Time.Equal(last.event.Time) {
		return true
	}
	_, had := l.named[in.object.Name]
	return ofList(in.event.Type) && ofList(last.event.Type) && !had
}

func (l *list) add(in input) {
	l.inputs = append(l.inputs, in)
	if !ofList(in.event.Type) {
		return
	}
	if l.named == nil {
		l.named = map[model.Name]struct{}{}
	}
	l.named[in.object.Name] = struct{}{}
}

// take empties the list. What it returns is valid until the next add.
func (l *list) take() []input {
	taken := l.inputs
	l.inputs = l.inputs[:0]
	l.named = nil
	return taken
}

// problems are what could not be used: for each object the last one.
type problems struct {
	byObject map[string][]reflector.Problem
	order    []string // as they came first
}

func (p *problems) note(in *input) {
	if len(in.problems) == 0 {
		return
	}
	if p.byObject == nil {
		p.byObject = map[string][]reflector.Problem{}
	}
	object := objectTitle(&in.event)
	if _, known := p.byObject[object]; !known {
		p.order = append(p.order, object)
	}
	p.byObject[object] = in.problems
}

func (p *problems) list() (all []reflector.Problem) {
	for _, object := range p.order {
		all = append(all, p.byObject[object]...)
	}
	return all
}
