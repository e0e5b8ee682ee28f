// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/internal/redact"
)

// State is what became of an object.
type State string

// The states of objects. The last two are those of objects that were missing.
const (
	Missing State = "missing"
	Drifted State = "drifted" // it is there, and differs
	Same    State = "same"
	// Unknown is an object that could not be read, or whose kind is not served.
	Unknown State = "unknown"
	// Refused is an object that is missing and must not, or cannot, be made.
	Refused State = "refused"
	// Left is an object that is missing, and that a controller makes.
	Left    State = "left"
	Created State = "created"
	Failed  State = "failed"
)

// Item is an object of a plan.
type Item struct {
	State      State  `json:"state"`
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	// Why says of a state what led to it.
	Why string `json:"why,omitempty"`
	// Notes say what is different about the object that is made.
	Notes       []string     `json:"notes,omitempty"`
	Differences []Difference `json:"differences,omitempty"`

	object Object
	at     served
}

// String is the item as KIND NAMESPACE/NAME.
func (i *Item) String() string { return reference(i.Kind, i.Namespace, i.Name) }

func (i *Item) become(state State, format string, args ...any) {
	i.State, i.Why = state, fmt.Sprintf(format, args...)
}

// Plan is what is there of what is wanted.
type Plan struct {
	Source  string   `json:"source"`
	By      string   `json:"by"`
	Items   []*Item  `json:"items"`
	LeftOut []string `json:"leftOut,omitempty"`
}

// Count returns how many items are in one of some states.
func (p *Plan) Count(states ...State) int {
	n := 0
	for _, item := range p.Items {
		if slices.Contains(states, item.State) {
			n++
		}
	}
	return n
}

// Plan holds what is wanted against what is there, in the order in which it
// would be made, and changes nothing.
func (c *Cluster) Plan(ctx context.Context, w *Wanted, filters []Filter) (*Plan, error) {
	namespaces, err := c.serves(namespaceKind)
	if err != nil {
		return nil, err
	}
	p := &planning{Cluster: c, Wanted: w, wanted: map[objectKey]*Item{}}
	p.define()
	if err := p.pick(filters); err != nil {
		return nil, err
	}
	if err := p.compareAll(ctx); err != nil {
		return nil, err
	}
	for _, item := range p.items {
		p.adopt(ctx, item)
	}
	p.addNamespaces(ctx, namespaces)
	slices.SortStableFunc(p.items, inOrder)
	return &Plan{Source: w.Source, By: w.By, Items: p.items, LeftOut: w.LeftOut}, nil
}

// objectKey names an object whatever its kind's version.
type objectKey struct {
	schema.GroupKind
	namespace, name string
}

// planning is a plan in the making.
type planning struct {
	*Cluster
	*Wanted
	// defined are the kinds of wanted definitions.
	defined map[schema.GroupKind]definition
	items   []*Item
	wanted  map[objectKey]*Item
}

// definition is what a CustomResourceDefinition says of its kind.
type definition struct {
	plural, singular string
	short            []string
	namespaced       bool
}

func (p *planning) define() {
	p.defined = map[schema.GroupKind]definition{}
	for _, o := range p.Objects {
		if o.GetKind() != "CustomResourceDefinition" {
			continue
		}
		spec := func(path ...string) string {
			text, _, _ := unstructured.NestedString(o.Object, append([]string{"spec"}, path...)...)
			return text
		}
		short, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "names", "shortNames")
		p.defined[schema.GroupKind{Group: spec("group"), Kind: spec("names", "kind")}] = definition{
			plural: spec("names", "plural"), singular: spec("names", "singular"), short: short, namespaced: spec("scope") == "Namespaced",
		}
	}
}

// where finds a kind among those that are served or wanted.
func (p *planning) where(kind schema.GroupVersionKind) (served, error) {
	s, err := p.serves(kind)
	if d, defined := p.defined[kind.GroupKind()]; defined && errors.Is(err, errNotServed) {
		return served{resource: kind.GroupVersion().WithResource(d.plural), namespaced: d.namespaced, coming: true}, nil
	}
	return s, err
}

// pick makes items of the objects that filters name. Of an object that is
// wanted twice the last counts, as with kubectl apply.
func (p *planning) pick(filters []Filter) error {
	met := make([]bool, len(filters))
	for _, o := range p.Objects {
		kind := o.GroupVersionKind()
		item := &Item{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName(), object: o}
		at, err := p.where(kind)
		switch {
		case err != nil:
			item.become(Unknown, "%s", explain(item, err))
		case !at.namespaced:
			item.Namespace = ""
		case item.Namespace == "":
			item.Namespace = p.Namespace
		}
		item.at = at
		item.object.SetNamespace(item.Namespace)
		if !p.matches(item, filters, met) {
			continue
		}
		key := objectKey{kind.GroupKind(), item.Namespace, item.Name}
		if before := p.wanted[key]; before != nil && item.Name != "" {
			*before = *item
			continue
		}
		p.wanted[key] = item
		p.items = append(p.items, item)
	}
	for i, f := range filters {
		if !met[i] {
			return fmt.Errorf("%s has no %s: it has %s", p.Source, f, p.kinds())
		}
	}
	return nil
}

// atOnce bounds how many objects are asked for at the same time.
const atOnce = 8

// compareAll fails only if there is nobody to ask.
func (p *planning) compareAll(ctx context.Context) error {
	var all sync.WaitGroup
	turn := make(chan struct{}, atOnce)
	for _, item := range p.items {
		if item.State != "" || item.Name == "" {
			continue
		}
		all.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			p.compare(ctx, item)
		})
	}
	all.Wait()
	for _, item := range p.items {
		if item.Name == "" && item.State == "" {
			item.become(Refused, "%s", item.object.Refused)
		}
	}
	return ctx.Err()
}

func (p *planning) compare(ctx context.Context, item *Item) {
	if item.at.coming {
		item.become(Missing, "so is the definition of its kind")
		p.refuse(item)
		return
	}
	live, err := p.objects(item.at, item.Namespace).Get(ctx, item.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		item.State = Missing
		p.refuse(item)
	case err != nil:
		item.become(Unknown, "%s", explain(item, err))
	case live.GetDeletionTimestamp() != nil:
		item.become(Drifted, "it is being deleted: run restore again once it is gone")
	default:
		p.drift(ctx, item, live)
	}
}

func (p *planning) refuse(item *Item) {
	if item.object.Refused != "" {
		item.become(Refused, "%s", item.object.Refused)
	}
}

// trier is who tries what applying would make of an object. It never owns a field:
// whoever does, and leaves it out, takes it away.
const trier = FieldManager + "-trial"

// drift compares an object that is there with what would become of it if what
// is wanted were applied.
func (p *planning) drift(ctx context.Context, item *Item, live *unstructured.Unstructured) {
	var err error
	applied := overlay(live, item.object.Unstructured)
	// Applying an object of which secrets were left out would take away what is
	// there of them, if it was restored before.
	if p.By != byJournal || item.object.Refused == "" {
		var trial *unstructured.Unstructured
		trial, err = p.apply(ctx, item.at, withoutOwners(item.object.Unstructured), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}, Force: new(true), FieldManager: trier})
		if err == nil {
			applied = trial
		}
	}
	if err != nil {
		item.Notes = append(item.Notes, "compared as it is written, without the API server's defaults: a trial was refused: "+explain(item, err))
	}
	item.Differences = differences(redact.New(), item.at.resource, live, applied, p.By)
	item.State = Same
	if len(item.Differences) > 0 {
		item.State = Drifted
	} else if err != nil {
		item.Notes = nil
	}
}

// withoutOwners leaves out owners of a former life: nobody would apply them.
func withoutOwners(u *unstructured.Unstructured) *unstructured.Unstructured {
	u = u.DeepCopy()
	u.SetOwnerReferences(nil)
	return u
}

// adopt decides about the owners of an object that is missing. One that a
// controller makes is left to it; owners that are gone are dropped.
func (p *planning) adopt(ctx context.Context, item *Item) {
	if item.State != Missing {
		return
	}
	var keep []metav1.OwnerReference
	for _, owner := range item.object.GetOwnerReferences() {
		alive, comes, err := p.owner(ctx, item, owner)
		is := owner.Controller != nil && *owner.Controller
		switch {
		case err != nil:
			item.become(Unknown, "%s", explain(item, err))
			return
		case is && (alive || comes):
			item.become(Left, "%s makes it", reference(owner.Kind, "", owner.Name))
			return
		case alive:
			keep = append(keep, owner)
		default:
			item.Notes = append(item.Notes, fmt.Sprintf("its owner %s is gone, and is no owner of it any more", reference(owner.Kind, "", owner.Name)))
		}
	}
	item.object.SetOwnerReferences(keep)
}

// owner says whether an owner lives, and whether one of that name is there or
// will be made, so that its controller makes what it had.
func (p *planning) owner(ctx context.Context, item *Item, owner metav1.OwnerReference) (alive, comes bool, err error) {
	kind := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind)
	at, err := p.where(kind)
	if errors.Is(err, errNotServed) {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	namespace := item.Namespace
	if !at.namespaced {
		namespace = ""
	}
	if wanted := p.wanted[objectKey{kind.GroupKind(), namespace, owner.Name}]; wanted != nil && wanted.State == Missing {
		return false, true, nil
	}
	if at.coming {
		return false, false, nil
	}
	live, err := p.objects(at, namespace).Get(ctx, owner.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, false, nil
	}
	if err != nil {
		return false, false, fmt.Errorf("look for its owner %s: %w", reference(owner.Kind, "", owner.Name), err)
	}
	return live.GetUID() == owner.UID, true, nil
}

var namespaceKind = schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}

// addNamespaces adds those namespaces in which something is missing, and which
// are missing themselves.
func (p *planning) addNamespaces(ctx context.Context, at served) {
	for _, item := range slices.Clone(p.items) {
		if item.State != Missing || item.Namespace == "" {
			continue
		}
		key := objectKey{namespaceKind.GroupKind(), "", item.Namespace}
		if p.wanted[key] != nil {
			continue
		}
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(namespaceKind)
		u.SetName(item.Namespace)
		namespace := &Item{APIVersion: "v1", Kind: namespaceKind.Kind, Name: item.Namespace, object: Object{Unstructured: u}, at: at}
		p.wanted[key] = namespace
		_, err := p.objects(at, "").Get(ctx, item.Namespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			namespace.become(Missing, "others are to be in it")
			p.items = append(p.items, namespace)
		}
		// Who may not read it will hear at the first object whether it is there.
	}
}
