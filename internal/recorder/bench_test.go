// SPDX-License-Identifier: Apache-2.0

package recorder

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/redact"
)

var slicesKind = journal.Kind{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices", Kind: "EndpointSlice"}

// sliceJSON is an EndpointSlice as an API server tells of it. Its revision sets
// which endpoint is not ready.
func sliceJSON(number, endpoints, revision int) []byte {
	var list []map[string]any
	for i := range endpoints {
		list = append(list, map[string]any{
			"addresses":  []string{fmt.Sprintf("10.%d.%d.%d", number>>8&255, number&255, i)},
			"conditions": map[string]any{"ready": i != revision%endpoints, "serving": true, "terminating": false},
			"nodeName":   fmt.Sprintf("node-%d", i), "zone": "a",
			"targetRef": map[string]any{"kind": "Pod", "namespace": "default", "name": fmt.Sprintf("web-%d-%d", number, i), "uid": fmt.Sprintf("7f1c0000-0000-4000-8000-%012d", i)},
		})
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": list,
		"ports": []map[string]any{{"name": "http", "port": 8080, "protocol": "TCP"}},
		"metadata": map[string]any{
			"name": fmt.Sprintf("web-%d-x7kzq", number), "namespace": "default", "uid": fmt.Sprintf("0c5e0000-0000-4000-8000-%012d", number),
			"resourceVersion": fmt.Sprint(1000 + revision), "generation": revision, "creationTimestamp": "2026-11-20T10:00:00Z",
			"generateName": fmt.Sprintf("web-%d-", number),
			"labels": map[string]any{
				"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io", "kubernetes.io/service-name": fmt.Sprintf("web-%d", number),
			},
			"annotations":     map[string]any{"endpoints.kubernetes.io/last-change-trigger-time": time.Unix(int64(revision), 0).UTC().Format(time.RFC3339)},
			"ownerReferences": []map[string]any{{"apiVersion": "v1", "kind": "Service", "name": fmt.Sprintf("web-%d", number), "uid": "d2", "controller": true, "blockOwnerDeletion": true}},
			"managedFields": []map[string]any{{
				"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "discovery.k8s.io/v1", "time": time.Unix(int64(revision), 0).UTC().Format(time.RFC3339),
				"fieldsType": "FieldsV1", "fieldsV1": map[string]any{
					"f:addressType": map[string]any{}, "f:endpoints": map[string]any{}, "f:ports": map[string]any{},
					"f:metadata": map[string]any{
						"f:annotations": map[string]any{".": map[string]any{}, "f:endpoints.kubernetes.io/last-change-trigger-time": map[string]any{}},
						"f:labels":      map[string]any{".": map[string]any{}, "f:kubernetes.io/service-name": map[string]any{}}, "f:generateName": map[string]any{},
						"f:ownerReferences": map[string]any{".": map[string]any{}, "k:{\"uid\":\"d2\"}": map[string]any{}},
					},
				},
			}},
		},
	})
	if err != nil {
		panic(err)
	}
	return text
}

// bench is a journal with the states of a kind before it.
type bench struct {
	path   string
	states *states
	sink   *sink
	done   chan error
}

func newBench(b testing.TB) *bench {
	path := filepath.Join(b.TempDir(), "j")
	j, err := journal.Create(path, journal.Options{MaxBytes: 256 << 20})
	if err != nil {
		b.Fatal(err)
	}
	s := newSink(j, slog.New(slog.DiscardHandler))
	r := &bench{path: path, states: newStates(slicesKind, j, &room{limit: contentRoom}), sink: s, done: make(chan error, 1)}
	go func() { r.done <- s.run(b.Context()) }()
	b.Cleanup(func() { _ = j.Close() })
	return r
}

func (r *bench) see(b testing.TB, fields map[string]any) {
	o, err := readObject(slicesKind, fields)
	if err != nil {
		b.Fatal(err)
	}
	events, err := r.states.see(b.Context(), o, journal.Added, time.Now())
	if err != nil {
		b.Fatal(err)
	}
	for _, e := range events {
		r.sink.put(b.Context(), item{stored: e})
	}
}

func (r *bench) end(b testing.TB) {
	close(r.sink.items)
	if err := <-r.done; err != nil {
		b.Fatal(err)
	}
}

// Budget: 20 000 events a second, so 50 µs an event: changes of EndpointSlices
// of ten endpoints, from decoded objects until they stand in the journal, with
// what is left out, who wrote, and what changed.
func BenchmarkRecord(b *testing.B) {
	const objects = 1000
	r := newBench(b)
	for n := 0; n < b.N; {
		// What was not heard yet would only slow down the collector of garbage.
		b.StopTimer()
		decoded := make([]map[string]any, min(objects, b.N-n))
		for i := range decoded {
			var err error
			if decoded[i], err = decodeObject(sliceJSON(i, 10, n/objects)); err != nil {
				b.Fatal(err)
			}
		}
		b.StartTimer()
		for _, fields := range decoded {
			r.see(b, fields)
		}
		n += len(decoded)
	}
	r.end(b)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// Budget: 10 µs for an EndpointSlice of ten endpoints.
func BenchmarkRedact(b *testing.B) {
	text := sliceJSON(1, 10, 1)
	fields, err := decodeObject(text)
	if err != nil {
		b.Fatal(err)
	}
	r := redact.New()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		r.Object(slicesKind.Group, slicesKind.Resource, "1", fields, nil)
	}
}
