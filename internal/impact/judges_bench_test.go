// SPDX-License-Identifier: Apache-2.0

package impact_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/impact"
	"github.com/fairlead-io/fairlead/internal/impact/impacttest"
)

// BenchmarkExamineConfigMaps is of 1 000 ConfigMaps that go among 20 000 pods,
// each of which mounts one of them. Budget: 200 ms, with the index of all
// references, which a State builds once.
func BenchmarkExamineConfigMaps(b *testing.B) {
	resource := &impact.Resource{GroupVersionResource: impact.ConfigMaps.WithVersion("v1"), Kind: "ConfigMap", Namespaced: true}
	for b.Loop() {
		b.StopTimer()
		s := impact.NewState(impacttest.Now)
		var roots []*impact.Object
		for i := range 20 {
			addPods(b, s, fmt.Sprint("ns-", i), 1000)
		}
		for i := range 1000 {
			name := fmt.Sprint("unused-", i)
			if i < 20 {
				name = "settings"
			}
			o := impact.NewObject(resource, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("ns-", i%20), Name: name}})
			s.Add(o)
			roots = append(roots, o)
		}
		b.StartTimer()
		r := impact.Examine(s, impact.Delete(s, roots, impact.Background))
		if len(r.Consequences) != 21 {
			b.Fatalf("%d consequences of 20 ConfigMaps in use and others", len(r.Consequences))
		}
	}
}
