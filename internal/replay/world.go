// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"slices"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
)

// world is what objects there are, beside the tables, so that rows can be
// compared with what they are to be made of.
type world struct {
	services map[model.Name]*model.Service
	slices   map[model.Name]*model.EndpointSlice
	owned    map[model.Name][]*model.EndpointSlice // by Service, in order of their names
	node     *reflector.Node
}

func newWorld() world {
	return world{map[model.Name]*model.Service{}, map[model.Name]*model.EndpointSlice{}, map[model.Name][]*model.EndpointSlice{}, nil}
}

// has says that the object which an event is about is there.
func (w *world) has(e *reflector.Event) bool {
	switch e.Kind {
	case reflector.KindService:
		return w.services[e.Name] != nil
	case reflector.KindEndpointSlice:
		return w.slices[e.Name] != nil
	}
	return w.node != nil
}

// take notes what an object is now, or that it is gone.
func (w *world) take(e *reflector.Event) {
	switch {
	case e.Kind == reflector.KindNode:
		w.node = e.Node
	case e.Kind == reflector.KindEndpointSlice:
		w.takeSlice(e)
	case e.Service == nil:
		delete(w.services, e.Name)
	default:
		w.services[e.Name] = e.Service
	}
}

func (w *world) takeSlice(e *reflector.Event) {
	if was := w.slices[e.Name]; was != nil {
		w.disown(was)
	}
	if e.Slice == nil {
		delete(w.slices, e.Name)
		return
	}
	w.slices[e.Name] = e.Slice
	owner := e.Slice.ServiceName()
	at, _ := findSlice(w.owned[owner], e.Name)
	w.owned[owner] = slices.Insert(w.owned[owner], at, e.Slice)
}

func (w *world) disown(s *model.EndpointSlice) {
	owner := s.ServiceName()
	at, found := findSlice(w.owned[owner], s.Name)
	if !found {
		return
	}
	w.owned[owner] = slices.Delete(w.owned[owner], at, at+1)
	if len(w.owned[owner]) == 0 {
		delete(w.owned, owner)
	}
}

func findSlice(all []*model.EndpointSlice, name model.Name) (int, bool) {
	return slices.BinarySearchFunc(all, name, func(s *model.EndpointSlice, n model.Name) int { return s.Name.Compare(n) })
}
