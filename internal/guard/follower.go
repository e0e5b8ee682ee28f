// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/fairlead-io/fairlead/internal/impact"
)

// follower keeps the objects of a kind in step with the API server, as the
// store behind client-go's reflector. Objects are replaced and never changed,
// so that States share them.
type follower struct {
	kind    impact.Kind
	changed func()
	list    cache.ListWithContextFunc
	watch   cache.WatchFuncWithContext

	mu       sync.Mutex
	resource *impact.Resource // learned from the first object
	objects  map[types.NamespacedName]*impact.Object
	listed   bool
	trouble  error     // of the last request; nil if it went well
	since    time.Time // of the trouble
}

var _ cache.TransformingStore = (*follower)(nil)

func newFollower(kind impact.Kind, changed func()) *follower {
	return &follower{kind: kind, changed: changed, objects: map[types.NamespacedName]*impact.Object{}}
}

// client is what client-go's clients of a resource have in common.
type client[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

func sourceOf[L runtime.Object](c client[L]) (cache.ListWithContextFunc, cache.WatchFuncWithContext) {
	return func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return c.List(ctx, options)
	}, c.Watch
}

// run lists and watches until ctx ends.
func (f *follower) run(ctx context.Context) {
	requests := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := f.list(ctx, options)
			if err != nil { // only a watch that is open shows that a kind is followed
				f.note(err)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			w, err := f.watch(ctx, options)
			f.note(err)
			return w, err
		},
	}
	cache.NewReflectorWithOptions(requests, nil, f, cache.ReflectorOptions{Name: f.kind.GroupResource().String()}).RunWithContext(ctx)
}

// note takes how a request ended.
func (f *follower) note(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		f.trouble, f.since = nil, time.Time{}
		return
	}
	if f.trouble == nil {
		f.since = time.Now()
	}
	f.trouble = err
	f.changed() // a kind that is refused leaves nothing to wait for
}

// refused says that the API server will not give out a kind, or has no such one.
func refused(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) }

// settled says that there is nothing to wait for before judging.
func (f *follower) settled() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.listed || refused(f.trouble)
}

// stale is why objects that were listed may not be there any more, or others be.
func (f *follower) stale(now time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.trouble == nil || !f.listed || now.Sub(f.since) < tolerated {
		return nil
	}
	return fmt.Errorf("it has not heard of %s since %s: %w", f.kind.GroupResource(), f.since.UTC().Format(time.RFC3339), f.trouble)
}

// addTo adds the objects to a State, and why they are not known. Of a kind that
// the API server does not have there are none.
func (f *follower) addTo(s *impact.State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range f.objects {
		s.Add(o)
	}
	if !f.listed && apierrors.IsForbidden(f.trouble) {
		s.SetUnknown(f.kind.GroupResource(), "the API server does not let the guard list them")
	}
}

// decode reads an object as the judges do.
func (f *follower) decode(obj any) (*impact.Object, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		content, ok := obj.(metav1.Object)
		if !ok {
			return nil, fmt.Errorf("reading %s: %T is no object", f.kind.GroupResource(), obj)
		}
		return impact.NewObject(f.resourceOf(content, kindOf(obj)), content), nil
	}
	content := f.kind.New()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, content); err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return impact.NewObject(f.resourceOf(content, u.GetKind()), content), nil
}

func kindOf(obj any) string {
	if typed, ok := obj.(runtime.Object); ok {
		return typed.GetObjectKind().GroupVersionKind().Kind
	}
	return ""
}

// resourceOf has all objects of the kind share one. The caller holds the lock.
func (f *follower) resourceOf(content metav1.Object, kind string) *impact.Resource {
	if f.resource == nil {
		f.resource = &impact.Resource{GroupVersionResource: f.kind.GroupVersionResource, Kind: kind, Namespaced: content.GetNamespace() != ""}
	}
	return f.resource
}

// Add implements cache.ReflectorStore.
func (f *follower) Add(obj any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	o, err := f.decode(obj)
	if err != nil {
		return err
	}
	f.objects[nameOf(o)] = o
	f.changed()
	return nil
}

func nameOf(o *impact.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
}

// Update implements cache.ReflectorStore.
func (f *follower) Update(obj any) error { return f.Add(obj) }

// Delete implements cache.ReflectorStore.
func (f *follower) Delete(obj any) error {
	m, ok := obj.(metav1.Object)
	if !ok {
		return fmt.Errorf("reading the name of a deleted one of %s: %T is no object", f.kind.GroupResource(), obj)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.objects, types.NamespacedName{Namespace: m.GetNamespace(), Name: m.GetName()})
	f.changed()
	return nil
}

// Replace implements cache.ReflectorStore. An object that cannot be read is
// left out: one odd object must not hide all others.
func (f *follower) Replace(list []any, _ string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.objects = make(map[types.NamespacedName]*impact.Object, len(list))
	for _, obj := range list {
		if o, err := f.decode(obj); err == nil {
			f.objects[nameOf(o)] = o
		}
	}
	f.listed = true
	f.changed()
	return nil
}

// Resync implements cache.ReflectorStore; there is nothing to repeat.
func (f *follower) Resync() error { return nil }

// Transformer implements cache.TransformingStore: while a list streams in,
// client-go holds it whole, so what nobody reads is dropped on arrival.
func (f *follower) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		if m, ok := obj.(metav1.Object); ok {
			m.SetManagedFields(nil)
		}
		return obj, nil
	}
}
