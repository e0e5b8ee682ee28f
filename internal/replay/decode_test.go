// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	discoveryv1 "k8s.io/api/discovery/v1"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/reflector"
)

// drawnSlice is one with any of the fields that the API server writes.
func drawnSlice(t *rapid.T) string {
	field := func(name string) string {
		return rapid.SampledFrom([]string{"", fmt.Sprintf(`,%s`, name)}).Draw(t, name)
	}
	var endpoints []string
	for range rapid.IntRange(0, 4).Draw(t, "endpoints") {
		endpoints = append(endpoints, fmt.Sprintf(`{"addresses":["10.0.0.%d"]`, rapid.IntRange(1, 3).Draw(t, "address"))+
			field(`"conditions":{"ready":false,"serving":true,"terminating":true}`)+field(`"nodeName":"n1"`)+field(`"zone":"a"`)+
			field(`"hints":{"forZones":[{"name":"a"}]}`)+field(`"targetRef":{"kind":"Pod","name":"web-0"}`)+"}")
	}
	return `{"metadata":{"name":"web-1","namespace":"default","labels":{"kubernetes.io/service-name":"web"},"creationTimestamp":"2026-01-01T00:00:00Z"` +
		field(`"ownerReferences":[{"apiVersion":"v1","kind":"Service","name":"web"}]`) +
		field(`"annotations":{"endpoints.kubernetes.io/last-change-trigger-time":"2026-01-01T00:00:00Z"}`) +
		`},"addressType":"IPv4"` + field(`"endpoints":[`+strings.Join(endpoints, ",")+`]`) + field(`"ports":[{"port":8080,"protocol":"TCP"}]`) + "}"
}

func TestASliceIsReadAsTheReflectorReadsItWhateverWasReadBefore(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var convert reflector.Converter
		d := newDecoder(&convert, "n1")
		for range rapid.IntRange(1, 8).Draw(r, "slices") {
			content := drawnSlice(r)
			var object discoveryv1.EndpointSlice
			if err := json.Unmarshal([]byte(content), &object); err != nil {
				r.Fatal(err)
			}
			object.ResourceVersion = "10"
			want, _ := convert.Event(&object)
			got := d.decode(event(1, journal.Modified, endpointSlices, "web-1", content))
			if diff := cmp.Diff(want.Slice, got.object.Slice, cmpopts.EquateComparable(netip.Addr{})); diff != "" || len(got.problems) > 0 {
				r.Fatalf("%s\n%v\n(-reflector +replay)\n%s", content, got.problems, diff)
			}
		}
	})
}
