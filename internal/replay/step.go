// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
	"github.com/fairlead-io/fairlead/internal/tables"
)

// lastEvent is the last of a step; nil if time alone passed.
func (s *Step) lastEvent() *journal.Event {
	if len(s.Events) == 0 {
		return nil
	}
	return &s.Events[len(s.Events)-1]
}

// eventAbout is the event of a step that is about a Service or a slice of it.
func (s *Step) eventAbout(change *Change) *journal.Event {
	for i := range s.Events {
		e := &s.Events[i]
		name := model.Name{Namespace: e.Namespace, Name: e.Name}
		kind, _ := kindOf(e.Kind)
		if kind == reflector.KindService && name == change.Service ||
			kind == reflector.KindEndpointSlice && (hasSlice(change.Before, name) || hasSlice(change.After, name)) {
			return e
		}
	}
	return s.lastEvent()
}

func hasSlice(row *tables.Service, name model.Name) bool {
	if row == nil {
		return false
	}
	_, has := findSlice(row.Slices, name)
	return has
}

// eventOf is the event of a step that is about one of two Services.
func (s *Step) eventOf(a, b model.Name) *journal.Event {
	for i := range s.Events {
		e := &s.Events[i]
		name := model.Name{Namespace: e.Namespace, Name: e.Name}
		if kind, _ := kindOf(e.Kind); kind == reflector.KindService && (name == a || name == b) {
			return e
		}
	}
	return s.lastEvent()
}
