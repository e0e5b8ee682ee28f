// SPDX-License-Identifier: Apache-2.0

package impact

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Cascade is what becomes of the objects that a deleted one owns.
type Cascade string

// As kubectl's --cascade has them. Background and foreground differ in their
// order only.
const (
	Background Cascade = "background"
	Foreground Cascade = "foreground"
	Orphan     Cascade = "orphan"
)

// Deletion is what goes.
type Deletion struct {
	// Roots are the objects that the command names, in its order.
	Roots   []*Object
	Cascade Cascade

	gone   map[*Object]Cause
	order  []*Object
	byKind map[schema.GroupResource][]*Object
}

// Cause is why an object goes.
type Cause struct {
	// By is the object with which it goes; nil if the command names it.
	By *Object
	// Why is how it hangs on By: "owned by", "inside", "an instance of", "kept by".
	Why string
}

// Objects are all that go, each after what it goes with. The slice is the
// Deletion's.
func (d *Deletion) Objects() []*Object { return d.order }

// Deleted are the objects of a kind that go. The slice is the Deletion's.
func (d *Deletion) Deleted(gr schema.GroupResource) []*Object { return d.byKind[gr] }

// Gone says whether an object goes, and why.
func (d *Deletion) Gone(o *Object) (Cause, bool) { c, ok := d.gone[o]; return c, ok }

// GoneKey says whether an object of that name goes.
func (d *Deletion) GoneKey(s *State, k Key) bool {
	o, ok := s.Get(k)
	if !ok {
		return false
	}
	_, gone := d.gone[o]
	return gone
}

// How one object hangs on another.
const (
	ownedBy    = "owned by"
	inside     = "inside"
	instanceOf = "an instance of"
	keptBy     = "kept by"
	boundTo    = "bound to"
)

var (
	// Endpoints are what the endpoints controller writes for a Service, under its name.
	endpoints = core("endpoints")
	// The API server notes by an IPAddress, which has the address for a name, that
	// a Service has it.
	ipAddresses = in("networking.k8s.io", "ipaddresses")
	// ServiceCIDRs are the ranges of these addresses.
	serviceCIDRs = in("networking.k8s.io", "servicecidrs")
)

// Delete finds what goes if the roots are deleted:
//
//   - the roots, but for the namespaces that the API server does not let go;
//   - everything inside a namespace that goes, and all instances of a
//     CustomResourceDefinition;
//   - what has only owners that go, are gone, or wait for what they own. Roots
//     leave theirs if the cascade is Orphan, whatever goes with them does not;
//   - what controllers delete without being owners: token Secrets with their
//     ServiceAccount, Endpoints and IPAddresses with their Service, pods with
//     their Node, and volumes that their class reclaims with their claim.
func Delete(s *State, roots []*Object, cascade Cascade) *Deletion {
	w := &walk{state: s, owners: map[*Object]*owners{}, Deletion: &Deletion{
		Roots: roots, Cascade: cascade, gone: make(map[*Object]Cause, len(roots)), byKind: map[schema.GroupResource][]*Object{},
	}}
	for _, root := range roots {
		if !refused(root) {
			w.goes(root, Cause{})
		}
	}
	for done := 0; done < len(w.order); done++ {
		w.follow(w.order[done])
	}
	return w.Deletion
}

// walk finds what goes with what. Every object is followed once and every
// reference counted once, so that it takes linear time and ends on cycles.
type walk struct {
	*Deletion
	state  *State
	owners map[*Object]*owners
}

// owners is what an object's owners leave of it.
type owners struct {
	left int     // references to owners that stay
	by   *Object // the first that goes and takes it along
}

func (w *walk) goes(o *Object, why Cause) {
	if _, gone := w.gone[o]; gone {
		return
	}
	w.gone[o] = why
	w.order = append(w.order, o)
	gr := o.Resource.GroupResource()
	w.byKind[gr] = append(w.byKind[gr], o)
}

func (w *walk) all(objects []*Object, why Cause) {
	for _, o := range objects {
		w.goes(o, why)
	}
}

func (w *walk) follow(o *Object) {
	w.dependents(o)
	switch o.Resource.GroupResource() {
	case Namespaces:
		w.all(w.state.Inside(o.Name), Cause{o, inside})
	case Definitions:
		if d, ok := o.Content.(*Definition); ok {
			w.all(w.state.Of(d.Instances()), Cause{o, instanceOf})
		}
	case ServiceAccounts:
		w.all(tokens.of(w.state)[o.Key()], Cause{o, keptBy})
	case Services:
		w.kept(o, Key{endpoints, o.Namespace, o.Name})
		if service, ok := o.Content.(*corev1.Service); ok {
			for _, ip := range service.Spec.ClusterIPs {
				w.kept(o, Key{ipAddresses, "", ip})
			}
		}
	case Nodes:
		for _, pod := range w.state.PodsOn(o.Name) {
			w.goes(pod.Object, Cause{o, boundTo})
		}
	case Claims:
		w.reclaim(o)
	}
}

// kept follows an object to what is written along with it.
func (w *walk) kept(by *Object, k Key) {
	if o, ok := w.state.Get(k); ok {
		w.goes(o, Cause{by, keptBy})
	}
}

// Instances names the kind of object that a CustomResourceDefinition defines.
func (d *Definition) Instances() schema.GroupResource {
	return in(d.Spec.Group, d.Spec.Names.Plural)
}

// dependents counts one owner less for all that an object owns.
func (w *walk) dependents(o *Object) {
	cause, leaves := w.gone[o], false
	if cause.By == nil {
		leaves = w.Cascade == Orphan
	}
	for _, dependent := range w.state.Dependents(o) {
		if !o.mayOwn(dependent) {
			continue
		}
		rest := w.owners[dependent]
		if rest == nil {
			rest = &owners{left: w.state.holders(dependent)}
			w.owners[dependent] = rest
		}
		if o.holds() {
			rest.left--
		}
		if rest.by == nil && !leaves {
			rest.by = o
		}
		if rest.left == 0 && rest.by != nil {
			w.goes(dependent, Cause{rest.by, ownedBy})
		}
	}
}

// holders counts an object's references to owners for which it stays.
func (s *State) holders(o *Object) int {
	n := 0
	for _, reference := range o.Owners {
		if owner, ok := s.ByUID(reference.UID); ok && owner.mayOwn(o) && owner.holds() {
			n++
		}
	}
	return n
}

// mayOwn says that a reference to an object counts: the garbage collector looks
// for owners in the object's namespace and among what has none.
func (o *Object) mayOwn(dependent *Object) bool {
	return o.Namespace == "" || o.Namespace == dependent.Namespace
}

// holds says that an owner is none that itself waits for what it owns to go.
func (o *Object) holds() bool {
	return !o.Deleting || !slices.Contains(o.Finalizers, metav1.FinalizerDeleteDependents)
}

// reclaim follows a claim to its volume, which goes with the data on it if that
// is the volume's policy.
func (w *walk) reclaim(o *Object) {
	claim, ok := o.Content.(*corev1.PersistentVolumeClaim)
	if !ok || claim.Spec.VolumeName == "" {
		return
	}
	v, ok := w.state.Get(Key{Volumes, "", claim.Spec.VolumeName})
	if !ok {
		return
	}
	volume, ok := v.Content.(*corev1.PersistentVolume)
	if !ok || volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		return
	}
	if ref := volume.Spec.ClaimRef; ref != nil && ref.Namespace == o.Namespace && ref.Name == o.Name && (ref.UID == "" || ref.UID == o.UID) {
		w.goes(v, Cause{o, boundTo})
	}
}

// tokens are the Secrets with tokens of ServiceAccounts, by account.
var tokens = newIndex(func(s *State) map[Key][]*Object {
	of := map[Key][]*Object{}
	for o, secret := range Contents[*metav1.PartialObjectMetadata](s, Secrets) {
		if account := secret.Annotations[corev1.ServiceAccountNameKey]; account != "" {
			key := Key{ServiceAccounts, o.Namespace, account}
			of[key] = append(of[key], o)
		}
	}
	return of
})
