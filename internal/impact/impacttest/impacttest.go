// SPDX-License-Identifier: Apache-2.0

// Package impacttest lets tests of package impact be written as they are read: a
// cluster as manifests, what is deleted as KIND/NAME, and what people would see
// as text. Only tests may come in.
package impacttest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-io/fairlead/internal/impact"
	"github.com/fairlead-io/fairlead/internal/reflector"
)

// Now is when the States of tests were read.
var Now = time.Date(2026, 1, 3, 12, 0, 0, 0, time.UTC)

// State reads the objects of a YAML text. It fills in what a server would: the
// UID of an object is KIND/NAMESPACE/NAME, and owners that are given without one
// are looked up in the object's namespace and among what has none.
func State(t testing.TB, text string) *impact.State {
	t.Helper()
	s, err := Read(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Read is State for what need not be well-formed.
func Read(text string) (*impact.State, error) {
	s := impact.NewState(Now)
	for data, err := range reflector.Documents([]byte(text)) {
		if err != nil {
			return nil, err
		}
		o, err := object(data)
		if err != nil {
			return nil, fmt.Errorf("%w in %s", err, data)
		}
		s.Add(o)
	}
	return s, nil
}

func object(data json.RawMessage) (*impact.Object, error) {
	var m metav1.PartialObjectMetadata
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, err
	}
	gvk := schema.FromAPIVersionAndKind(m.APIVersion, m.Kind)
	gvr, _ := meta.UnsafeGuessKindToResource(gvk)
	content, err := decode(gvr.GroupResource(), data, &m)
	if err != nil {
		return nil, err
	}
	complete(content, m.Kind)
	return impact.NewObject(&impact.Resource{GroupVersionResource: gvr, Kind: m.Kind, Namespaced: m.Namespace != ""}, content), nil
}

// decode reads an object of a kind that judges read, and does not let fields
// pass that have a typing error. Any other kind is its metadata.
func decode(gr schema.GroupResource, data []byte, m *metav1.PartialObjectMetadata) (metav1.Object, error) {
	kinds := impact.Kinds()
	i := slices.IndexFunc(kinds, func(k impact.Kind) bool { return k.GroupResource() == gr })
	if i < 0 {
		return m, nil
	}
	content := kinds[i].New()
	if _, ok := content.(*metav1.PartialObjectMetadata); ok {
		return m, nil
	}
	return content, yaml.UnmarshalStrict(data, content)
}

func complete(o metav1.Object, kind string) {
	if o.GetUID() == "" {
		o.SetUID(uid(kind, o.GetNamespace(), o.GetName()))
	}
	owners := o.GetOwnerReferences()
	for i, owner := range owners {
		if owner.UID != "" {
			continue
		}
		namespace := o.GetNamespace()
		if slices.Contains([]string{"Namespace", "Node", "ClusterRole", "CustomResourceDefinition"}, owner.Kind) {
			namespace = ""
		}
		owners[i].UID = uid(owner.Kind, namespace, owner.Name)
	}
	o.SetOwnerReferences(owners)
}

func uid(kind, namespace, name string) types.UID {
	return types.UID(strings.Join(slices.DeleteFunc([]string{kind, namespace, name}, func(s string) bool { return s == "" }), "/"))
}

// Roots finds objects by KIND/NAME or KIND/NAMESPACE/NAME; case does not matter in kinds.
func Roots(t testing.TB, s *impact.State, names ...string) []*impact.Object {
	t.Helper()
	known := map[string]*impact.Object{}
	for o := range s.All() {
		known[string(uid(strings.ToLower(o.Resource.Kind), o.Namespace, o.Name))] = o
	}
	var roots []*impact.Object
	for _, name := range names {
		kind, rest, _ := strings.Cut(name, "/")
		root, ok := known[strings.ToLower(kind)+"/"+rest]
		if !ok {
			t.Fatalf("the state has no %s", name)
		}
		roots = append(roots, root)
	}
	return roots
}

// Delete is impact.Delete of objects by name, as Roots takes them.
func Delete(t testing.TB, s *impact.State, cascade impact.Cascade, names ...string) *impact.Deletion {
	t.Helper()
	return impact.Delete(s, Roots(t, s, names...), cascade)
}

// Report is what deleting objects by name does, in the background.
func Report(t testing.TB, s *impact.State, names ...string) impact.Report {
	t.Helper()
	return impact.Examine(s, Delete(t, s, impact.Background, names...))
}

// Find are a report's consequences of one ID.
func Find(r impact.Report, id string) []impact.Consequence {
	return slices.DeleteFunc(slices.Clone(r.Consequences), func(c impact.Consequence) bool { return c.ID != id })
}

// Text is a report as a test wants it: what goes, what people would see with
// severity, rank and ID, and what is not known.
func Text(r impact.Report) string {
	var b strings.Builder
	for _, g := range r.Groups {
		fmt.Fprintf(&b, "goes: %s, %d named, %d with them:", g.Resource.Kind, g.Named, g.Cascaded)
		for i, o := range g.Examples {
			b.WriteString(strings.Repeat(",", min(i, 1)) + " " + strings.TrimPrefix(o.String(), o.Resource.Kind+" "))
		}
		b.WriteString("\n")
	}
	for _, c := range r.Consequences {
		fmt.Fprintf(&b, "%s %d %s: %s\n", c.Severity, c.Rank, c.ID, c.Title)
		for _, o := range c.Objects {
			fmt.Fprintf(&b, "  by: %s\n", o)
		}
		for _, name := range c.Affected {
			fmt.Fprintf(&b, "  hits: %s\n", name)
		}
		for _, line := range c.Detail {
			fmt.Fprintf(&b, "  %s\n", line)
		}
	}
	for _, line := range r.Incomplete {
		fmt.Fprintf(&b, "not known: %s\n", line)
	}
	return b.String()
}
