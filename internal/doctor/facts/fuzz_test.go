// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"slices"
	"testing"

	"github.com/fairlead-io/fairlead/internal/evidence"
)

// FuzzRead holds that no content of any kind makes it fail, that a record which
// is not whole is said to be so, and that worlds can be made of whatever came.
func FuzzRead(f *testing.F) {
	kinds := slices.Sorted(func(yield func(evidence.Kind) bool) {
		for k := range readers() {
			if !yield(k) {
				return
			}
		}
	})
	for i, content := range []string{
		"apiVersion: v1\nkind: List\nitems: [" + web + "]", kernelTable, "Kubernetes v1.35.4", "nf_conntrack_count=1\nnf_conntrack_max=2", `{"schemaVersion":1}`,
		`{"kind":"ServiceList","items":null}`, `{"kind":"List","items":[{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"},"status":{"addresses":[{"type":"InternalIP","address":"x"}]}}]}`,
		"E0103 11:59:58.500000 x\n", "{\"ts\":1e300}\n", "[{}]", "null", "---\n---\n", "[", "items: 3", "kind: List\nitems: {}", "{\"kind\":{}}",
	} {
		for k := range kinds {
			f.Add(k, []byte(content), i%2 == 0)
		}
	}
	f.Fuzz(func(t *testing.T, kind int, content []byte, cut bool) {
		r := record(kinds[uint(kind)%uint(len(kinds))], "n1", string(content))
		r.Resources, r.Cut = []string{"services", "endpointslices", "nodes"}, cut
		c := read(r, objects("services,endpointslices", "apiVersion: v1\nkind: List\nitems: []"))
		if cut && len(c.Unread) == 0 {
			t.Error("a record that is cut off is read as a whole one")
		}
		for _, s := range c.Samples {
			for _, plane := range []DataPlane{PlaneFairlead, PlaneCilium, PlaneKubeProxy} {
				if s.World("n1", plane) == nil {
					t.Error("there is no world of complete lists")
				}
			}
		}
	})
}
