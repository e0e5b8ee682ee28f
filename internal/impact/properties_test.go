// SPDX-License-Identifier: Apache-2.0

package impact_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/impact"
	"github.com/fairlead-io/fairlead/internal/impact/impacttest"
)

var cascades = []impact.Cascade{impact.Background, impact.Foreground, impact.Orphan}

// tangle is a small cluster whose objects own each other in any way, rings,
// owners that are gone, and owners in other namespaces included.
func tangle(t *rapid.T) (*impact.State, []*impact.Object) {
	s := impact.NewState(impacttest.Now)
	n := rapid.IntRange(1, 14).Draw(t, "objects")
	uid := rapid.Map(rapid.IntRange(0, n+1), func(i int) types.UID { return types.UID(fmt.Sprint("u", i)) })
	var all []*impact.Object
	for i := range n {
		gr := rapid.SampledFrom([]schema.GroupResource{impact.Namespaces, impact.ConfigMaps, impact.Secrets, impact.ServiceAccounts, impact.Nodes, impact.Pods}).Draw(t, "kind")
		m := metav1.ObjectMeta{Name: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name"), UID: types.UID(fmt.Sprint("u", i))}
		if gr != impact.Namespaces && gr != impact.Nodes {
			m.Namespace = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "namespace")
		}
		for range rapid.IntRange(0, 3).Draw(t, "owners") {
			m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{UID: uid.Draw(t, "owner")})
		}
		if rapid.IntRange(0, 5).Draw(t, "waits") == 0 {
			m.DeletionTimestamp, m.Finalizers = &metav1.Time{Time: impacttest.Now}, []string{metav1.FinalizerDeleteDependents}
		}
		if gr == impact.Secrets {
			m.Annotations = map[string]string{corev1.ServiceAccountNameKey: rapid.SampledFrom([]string{"a", "b", ""}).Draw(t, "account")}
		}
		var content metav1.Object = &metav1.PartialObjectMetadata{ObjectMeta: m}
		if gr == impact.Pods {
			content = &corev1.Pod{ObjectMeta: m, Spec: corev1.PodSpec{NodeName: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "node")}}
		}
		o := impact.NewObject(&impact.Resource{GroupVersionResource: gr.WithVersion("v1"), Kind: gr.Resource}, content)
		if _, ok := s.Get(o.Key()); !ok {
			s.Add(o)
			all = append(all, o)
		}
	}
	return s, all
}

func chosen(t *rapid.T, all []*impact.Object, label string) []*impact.Object {
	return rapid.SliceOfN(rapid.SampledFrom(all), 0, 4).Draw(t, label)
}

// goes is the rule for one object, given what else goes: Delete finds the least
// set for which it holds.
func goes(s *impact.State, o *impact.Object, roots []*impact.Object, cascade impact.Cascade, gone map[*impact.Object]bool) bool {
	if slices.Contains(roots, o) {
		return true
	}
	for other := range gone {
		switch gr := other.Resource.GroupResource(); {
		case gr == impact.Namespaces && o.Namespace == other.Name:
			return true
		case gr == impact.Nodes && o.Resource.GroupResource() == impact.Pods && o.Content.(*corev1.Pod).Spec.NodeName == other.Name:
			return true
		case gr == impact.ServiceAccounts && o.Resource.GroupResource() == impact.Secrets && o.Namespace == other.Namespace && o.Content.GetAnnotations()[corev1.ServiceAccountNameKey] == other.Name:
			return true
		}
	}
	taken := false
	for _, ref := range o.Owners {
		owner, ok := s.ByUID(ref.UID)
		if !ok || owner.Namespace != "" && owner.Namespace != o.Namespace {
			continue
		}
		if !gone[owner] && (!owner.Deleting || !slices.Contains(owner.Finalizers, metav1.FinalizerDeleteDependents)) {
			return false
		}
		taken = taken || gone[owner] && (cascade != impact.Orphan || !slices.Contains(roots, owner))
	}
	return taken
}

// TestDeleteIsTheLeastFixpoint: what Delete finds in one pass is what applying
// the rule again and again ends with.
func TestDeleteIsTheLeastFixpoint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, all := tangle(t)
		roots, cascade := chosen(t, all, "roots"), rapid.SampledFrom(cascades).Draw(t, "cascade")
		want := map[*impact.Object]bool{}
		for changed := true; changed; {
			changed = false
			for _, o := range all {
				if !want[o] && goes(s, o, roots, cascade, want) {
					want[o], changed = true, true
				}
			}
		}
		d := impact.Delete(s, roots, cascade)
		for _, o := range all {
			if _, gone := d.Gone(o); gone != want[o] {
				t.Fatalf("%s %s: gone is %v, the rule says %v", o, o.UID, gone, want[o])
			}
		}
		if len(d.Objects()) != len(want) {
			t.Fatalf("%d objects are listed, %d go", len(d.Objects()), len(want))
		}
	})
}

// TestDeleteProperties: more roots take no less; naming all that goes takes no
// more; every cause goes itself and before; and an object with an owner that
// stays stays, unless it is named or something but owners takes it along.
func TestDeleteProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, all := tangle(t)
		roots, more := chosen(t, all, "roots"), chosen(t, all, "more")
		d := impact.Delete(s, roots, impact.Background)
		larger := impact.Delete(s, slices.Concat(roots, more), impact.Background)
		again := impact.Delete(s, d.Objects(), impact.Background)
		if len(again.Objects()) != len(d.Objects()) {
			t.Fatalf("naming the %d that go takes %d", len(d.Objects()), len(again.Objects()))
		}
		before := map[*impact.Object]bool{}
		for _, o := range d.Objects() {
			if _, gone := larger.Gone(o); !gone {
				t.Fatalf("%s stays when more is deleted", o)
			}
			cause, _ := d.Gone(o)
			if cause.By == nil && !slices.Contains(roots, o) || cause.By != nil && !before[cause.By] {
				t.Fatalf("%s goes by %v, which is not named and does not go before", o, cause.By)
			}
			before[o] = true
			if cause.Why == "owned by" {
				noOwnerStays(t, s, d, o)
			}
		}
	})
}

func noOwnerStays(t *rapid.T, s *impact.State, d *impact.Deletion, o *impact.Object) {
	for _, ref := range o.Owners {
		owner, ok := s.ByUID(ref.UID)
		if !ok || owner.Deleting || owner.Namespace != "" && owner.Namespace != o.Namespace {
			continue
		}
		if _, gone := d.Gone(owner); !gone {
			t.Fatalf("%s goes although its owner %s stays", o, owner)
		}
	}
}

// TestReportProperties: groups count every object that goes once, and
// consequences stand worst first.
func TestReportProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, all := tangle(t)
		d := impact.Delete(s, chosen(t, all, "roots"), rapid.SampledFrom(cascades).Draw(t, "cascade"))
		r := impact.Examine(s, d)
		named, cascaded := 0, 0
		for _, g := range r.Groups {
			named, cascaded = named+g.Named, cascaded+g.Cascaded
			if len(g.Examples) == 0 || len(g.Examples) > g.Named+g.Cascaded {
				t.Fatalf("%d examples stand for %d objects", len(g.Examples), g.Named+g.Cascaded)
			}
		}
		if named+cascaded != len(d.Objects()) {
			t.Fatalf("groups have %d objects, %d go", named+cascaded, len(d.Objects()))
		}
		for i, c := range r.Consequences {
			if c.ID == "" || c.Title == "" {
				t.Fatalf("a consequence says nothing: %+v", c)
			}
			if i > 0 && c.Severity > r.Consequences[i-1].Severity {
				t.Fatalf("%q stands after what is less bad", c.Title)
			}
		}
	})
}
