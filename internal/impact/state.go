// SPDX-License-Identifier: Apache-2.0

package impact

import (
	"cmp"
	"iter"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Resource is a kind of object as the API serves it.
type Resource struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
}

// Owner is one of an object's ownerReferences.
type Owner struct {
	UID        types.UID
	Kind, Name string
	Controller bool
}

// Object is what is known of an object of any kind.
type Object struct {
	Resource        *Resource
	Namespace, Name string
	UID             types.UID
	Owners          []Owner
	Finalizers      []string
	Deleting        bool // it has a deletionTimestamp
	// Content is the object itself, of the type that Kinds has for it and as Kinds
	// trims it; nil if no judge reads such objects.
	Content metav1.Object
}

// Key names an object among all of a cluster, whatever version it is read in.
type Key struct {
	schema.GroupResource
	Namespace, Name string
}

// Key is the object's name among all.
func (o *Object) Key() Key { return Key{o.Resource.GroupResource(), o.Namespace, o.Name} }

// String is KIND NAME, or KIND NAMESPACE/NAME.
func (o *Object) String() string {
	if o.Namespace == "" {
		return o.Resource.Kind + " " + o.Name
	}
	return o.Resource.Kind + " " + o.Namespace + "/" + o.Name
}

// State is what is known of a cluster. Objects are added first; then it is
// read by any number of goroutines and no more changed.
type State struct {
	// Now is when it was read.
	Now time.Time

	resources  map[schema.GroupResource]*Resource
	objects    map[schema.GroupResource][]*Object
	byKey      map[Key]*Object
	byUID      map[types.UID]*Object
	dependents map[types.UID][]*Object
	inside     map[string][]*Object // by namespace
	unknown    map[schema.GroupResource]string
	indexes    sync.Map // of *index[T] to func() T
}

// NewState is a state without objects, as of a moment.
func NewState(now time.Time) *State {
	return &State{
		Now:       now,
		resources: map[schema.GroupResource]*Resource{}, objects: map[schema.GroupResource][]*Object{},
		byKey: map[Key]*Object{}, byUID: map[types.UID]*Object{}, dependents: map[types.UID][]*Object{},
		inside: map[string][]*Object{}, unknown: map[schema.GroupResource]string{},
	}
}

// Add adds an object, and is idempotent: of two with one key the first stays.
func (s *State) Add(o *Object) {
	key := o.Key()
	if s.byKey[key] != nil {
		return
	}
	s.byKey[key] = o
	s.resources[key.GroupResource] = o.Resource
	s.objects[key.GroupResource] = append(s.objects[key.GroupResource], o)
	if o.UID != "" {
		s.byUID[o.UID] = o
	}
	for _, owner := range o.Owners {
		s.dependents[owner.UID] = append(s.dependents[owner.UID], o)
	}
	if o.Namespace != "" {
		s.inside[o.Namespace] = append(s.inside[o.Namespace], o)
	}
}

// SetUnknown notes that objects of a kind could not be read, or not all of
// them, and why, in words that end a sentence.
func (s *State) SetUnknown(gr schema.GroupResource, why string) { s.unknown[gr] = why }

// Unknown is why not all objects of a kind are known; "" if they are.
func (s *State) Unknown(gr schema.GroupResource) string { return s.unknown[gr] }

// Unknowns are all kinds of which not all objects are known, in order.
func (s *State) Unknowns() []schema.GroupResource {
	var all []schema.GroupResource
	for gr := range s.unknown {
		all = append(all, gr)
	}
	slices.SortFunc(all, func(a, b schema.GroupResource) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
	})
	return all
}

// Of are the objects of a kind, as they were added. The slice is the State's.
func (s *State) Of(gr schema.GroupResource) []*Object { return s.objects[gr] }

// Get finds an object by name.
func (s *State) Get(k Key) (*Object, bool) { o, ok := s.byKey[k]; return o, ok }

// ByUID finds an object by its UID.
func (s *State) ByUID(uid types.UID) (*Object, bool) { o, ok := s.byUID[uid]; return o, ok }

// Dependents are the objects that name an object as an owner of theirs.
func (s *State) Dependents(o *Object) []*Object { return s.dependents[o.UID] }

// Inside are the objects in a namespace.
func (s *State) Inside(namespace string) []*Object { return s.inside[namespace] }

// All are all objects, in no order.
func (s *State) All() iter.Seq[*Object] {
	return func(yield func(*Object) bool) {
		for _, o := range s.byKey {
			if !yield(o) {
				return
			}
		}
	}
}

// Contents are the contents of a kind's objects with the objects, those only
// that have one of that type.
func Contents[T metav1.Object](s *State, gr schema.GroupResource) iter.Seq2[*Object, T] {
	return func(yield func(*Object, T) bool) {
		for _, o := range s.objects[gr] {
			if content, ok := o.Content.(T); ok && !yield(o, content) {
				return
			}
		}
	}
}
