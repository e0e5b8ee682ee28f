// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"

	"github.com/fairlead-io/fairlead/internal/model"
)

// store stands behind client-go's reflector and keeps no object. It passes
// each on as an event, and remembers only what the handler holds, so that a
// new list can be told from the old one. One goroutine at a time calls it.
type store struct {
	kind    Kind
	handler Handler
	convert *Converter
	board   *board
	synced  func() // called after each complete list

	held   map[model.Name]string // the resourceVersion the handler has of each object
	listed bool
}

var _ cache.TransformingStore = (*store)(nil)

// Add implements cache.ReflectorStore.
func (s *store) Add(obj any) error {
	event, problems := s.convert.Event(obj)
	event.Received = time.Now()
	s.board.set(event.object(), problems)
	if event, ok := s.admit(event, problems); ok {
		s.handler.Events([]Event{event})
	}
	return nil
}

// Update implements cache.ReflectorStore.
func (s *store) Update(obj any) error { return s.Add(obj) }

// admit decides what the handler hears of a converted object, and remembers
// it: nothing of one that is refused, since the last good one stays; its end,
// if it was ours and is not any more.
func (s *store) admit(event Event, problems []Problem) (Event, bool) {
	if !event.gone() {
		s.held[event.Name] = event.ResourceVersion
		return event, true
	}
	_, held := s.held[event.Name]
	if len(problems) > 0 || !held {
		return Event{}, false
	}
	delete(s.held, event.Name)
	return event, true
}

// Delete implements cache.ReflectorStore.
func (s *store) Delete(obj any) error {
	m, err := meta.Accessor(obj)
	if err != nil {
		return fmt.Errorf("reading the name of a deleted %s: %w", s.kind, err)
	}
	event := Event{
		Kind:            s.kind,
		Name:            model.Name{Namespace: m.GetNamespace(), Name: m.GetName()},
		ResourceVersion: m.GetResourceVersion(),
		Received:        time.Now(),
	}
	s.board.set(event.object(), nil)
	if event, ok := s.admit(event, nil); ok {
		s.handler.Events([]Event{event})
	}
	return nil
}

// Replace implements cache.ReflectorStore. All that the new list changes
// reaches the handler in one call (R4).
func (s *store) Replace(list []any, _ string) error {
	now := time.Now()
	events := make([]Event, 0, len(list))
	present := make(map[model.Name]bool, len(list))
	problems := make(map[object][]Problem)
	for _, obj := range list {
		event, wrong := s.convert.Event(obj)
		event.Received = now
		present[event.Name] = true
		if len(wrong) > 0 {
			problems[event.object()] = wrong
		}
		if event, ok := s.admit(event, wrong); ok {
			events = append(events, event)
		}
	}
	events = append(events, s.absent(present, now)...)
	s.board.replace(s.kind, problems)
	if len(events) > 0 {
		s.handler.Events(events)
	}
	if !s.listed {
		s.listed = true
		s.handler.Listed(s.kind)
	}
	s.synced()
	return nil
}

// absent forgets the objects that the list does not have, and says so.
func (s *store) absent(present map[model.Name]bool, now time.Time) []Event {
	var events []Event
	for name, version := range s.held {
		if present[name] {
			continue
		}
		delete(s.held, name)
		events = append(events, Event{Kind: s.kind, Name: name, ResourceVersion: version, Received: now})
	}
	slices.SortFunc(events, func(a, b Event) int { return a.Name.Compare(b.Name) })
	return events
}

// Resync implements cache.ReflectorStore; there is nothing to repeat.
func (s *store) Resync() error { return nil }

// Transformer implements cache.TransformingStore: while a list streams in,
// client-go holds it whole, so what nobody reads is dropped on arrival.
func (s *store) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		m, err := meta.Accessor(obj)
		if err != nil {
			return obj, nil
		}
		m.SetManagedFields(nil)
		m.SetAnnotations(readAnnotations(m.GetAnnotations()))
		m.SetOwnerReferences(nil)
		if node, ok := obj.(*corev1.Node); ok {
			node.Status.Images = nil
		}
		return obj, nil
	}
}

// readAnnotations keeps those that the Converter reads.
func readAnnotations(all map[string]string) map[string]string {
	var kept map[string]string
	for _, name := range [...]string{corev1.EndpointsLastChangeTriggerTime, selectionAnnotation} {
		value, there := all[name]
		if !there {
			continue
		}
		if kept == nil {
			kept = make(map[string]string, 1)
		}
		kept[name] = value
	}
	return kept
}
