// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// Budget: 20 000 events a second, so 50 µs an event, in batches of 100 as a busy
// watch brings them, of 1.5 KB each as an EndpointSlice of ten endpoints has.
func BenchmarkAppend(b *testing.B) {
	j := create(b, filepath.Join(b.TempDir(), "j"), Options{MaxBytes: 64 << 20})
	events := load(0, 100, 1000, 1500)
	b.ResetTimer()
	for n := 0; n < b.N; n += len(events) {
		appendAll(b, j, events...)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// Budget: 100 000 events a second, so 10 µs an event.
func BenchmarkEvents(b *testing.B) {
	j := create(b, filepath.Join(b.TempDir(), "j"), Options{})
	const stored = 50_000
	for n := 0; n < stored; n += 1000 {
		appendAll(b, j, load(n, 1000, 1000, 1500)...)
	}
	b.ResetTimer()
	for n := 0; n < b.N; {
		for _, err := range j.Events(b.Context(), Filter{}) {
			if err != nil {
				b.Fatal(err)
			}
			if n++; n >= b.N {
				break
			}
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// Budget: 25 µs for a change of an EndpointSlice of ten endpoints, in its
// metadata and in one endpoint.
func BenchmarkDiff(b *testing.B) {
	text := func(ready, at string) json.RawMessage {
		endpoint := `{"addresses":["10.0.0.%d"],"conditions":{"ready":true,"serving":true,"terminating":false},"nodeName":"node-%[1]d","targetRef":{"kind":"Pod","name":"web-5d9c7b8f4-%[1]d","namespace":"default"},"zone":"a"}`
		var list []string
		for i := range 10 {
			list = append(list, fmt.Sprintf(endpoint, i))
		}
		list[5] = strings.Replace(list[5], "true", ready, 1)
		return json.RawMessage(`{"addressType":"IPv4","apiVersion":"discovery.k8s.io/v1","endpoints":[` + strings.Join(list, ",") + `],"kind":"EndpointSlice","metadata":{"annotations":{"endpoints.kubernetes.io/last-change-trigger-time":"` + at +
			`"},"creationTimestamp":"2026-11-20T10:00:00Z","labels":{"kubernetes.io/service-name":"web"},"name":"web-x7kzq","namespace":"default","uid":"0c5e0000-0000-4000-8000-000000000001"},"ports":[{"name":"http","port":8080,"protocol":"TCP"}]}`)
	}
	old, new := text("true", "2026-11-20T10:00:00Z"), text("false", "2026-11-20T10:00:01Z")
	b.ReportAllocs()
	for b.Loop() {
		if changes := Diff(old, new); len(changes) != 2 {
			b.Fatal(changes)
		}
	}
}
