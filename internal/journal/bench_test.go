// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"path/filepath"
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
