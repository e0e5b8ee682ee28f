// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/model"
)

const benchServices = 1000

var leases = journal.Kind{Group: "coordination.k8s.io", Version: "v1", Resource: "leases", Kind: "Lease"}

// record makes a journal of a cluster of a thousand Services, in which then one
// thing after the other happens.
func record(b *testing.B, stored int, next func(n int) journal.Event) *journal.Journal {
	b.Helper()
	j, err := journal.Create(filepath.Join(b.TempDir(), "j"), journal.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = j.Close() })
	var events []journal.Event
	for i := range benchServices {
		events = append(events, benchService(i))
	}
	for i := range benchServices {
		events = append(events, benchSlice(i, 0))
	}
	for n := range stored {
		e := next(n)
		e.Time = began.Add(time.Duration(n+1) * time.Millisecond)
		if events = append(events, e); len(events) < 2000 {
			continue
		}
		if err := j.Append(b.Context(), events); err != nil {
			b.Fatal(err)
		}
		events = events[:0]
	}
	if err := j.Append(b.Context(), events); err != nil {
		b.Fatal(err)
	}
	return j
}

func benchEvent(kind journal.Kind, name string, version int, content string) journal.Event {
	return journal.Event{
		Time: began, Kind: kind, Namespace: "default", Name: name, UID: name, ResourceVersion: fmt.Sprint(version),
		Type: journal.Modified, Manager: "controller", Operation: "Update", Content: json.RawMessage(content),
		Diff: []journal.Change{{Path: "/metadata/resourceVersion", Op: "replace", Old: json.RawMessage(`"1"`), New: json.RawMessage(`"2"`)}},
	}
}

func benchService(i int) journal.Event {
	e := benchEvent(services, fmt.Sprintf("s%d", i), 1, fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","metadata":{"name":"s%d","namespace":"default","creationTimestamp":"2026-01-01T00:00:00Z","labels":{"app":"s%d"}},
		"spec":{"clusterIP":"10.96.%d.%d","clusterIPs":["10.96.%d.%d"],"internalTrafficPolicy":"Cluster","ipFamilies":["IPv4"],"ports":[{"name":"http","port":80,"protocol":"TCP","targetPort":8080}],"selector":{"app":"s%d"},"sessionAffinity":"None","type":"ClusterIP"},"status":{"loadBalancer":{}}}`,
		i, i, i/250, i%250+1, i/250, i%250+1, i))
	e.Type = journal.Listed
	return e
}

// benchSlice is one of ten endpoints, of which one is new each time.
func benchSlice(i, version int) journal.Event {
	var endpoints []string
	for n := range 10 {
		n += version / benchServices
		endpoints = append(endpoints, fmt.Sprintf(`{"addresses":["10.%d.%d.%d"],"conditions":{"ready":true,"serving":true,"terminating":false},"nodeName":"n%d",`+
			`"targetRef":{"kind":"Pod","name":"s%d-5d9c7b8f6d-%05d","namespace":"default","uid":"6f0a3c1e-0000-4000-8000-%012d"},"zone":"a"}`, i/250, i%250, n%250+1, n, i, n, n))
	}
	e := benchEvent(endpointSlices, fmt.Sprintf("s%d-abcde", i), version, fmt.Sprintf(`{"addressType":"IPv4","apiVersion":"discovery.k8s.io/v1","endpoints":[%s],"kind":"EndpointSlice",`+
		`"metadata":{"creationTimestamp":"2026-01-01T00:00:00Z","generateName":"s%d-","generation":5,"labels":{"endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io","kubernetes.io/service-name":"s%d"},`+
		`"name":"s%d-abcde","namespace":"default","ownerReferences":[{"apiVersion":"v1","blockOwnerDeletion":true,"controller":true,"kind":"Service","name":"s%d","uid":"6f0a3c1e-0000-4000-8000-000000000000"}],`+
		`"resourceVersion":"%d"},"ports":[{"name":"http","port":8080,"protocol":"TCP"}]}`, strings.Join(endpoints, ","), i, i, i, i, version))
	if version == 0 {
		e.Type = journal.Listed
	}
	return e
}

func benchLease(n int) journal.Event {
	return benchEvent(leases, fmt.Sprintf("n%d", n%50), n, fmt.Sprintf(`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"n%d","namespace":"kube-node-lease"},"spec":{"holderIdentity":"n%d","leaseDurationSeconds":40,"renewTime":"2026-01-01T00:00:00.%06dZ"}}`, n%50, n%50, n%1000000))
}

// Budget: 100 000 events a second from the file to the rows, so 10 µs an event on
// two processors, for what a cluster records: four of five events are of kinds
// that no row is made of, as the renewals of Leases are. Where each event is an
// EndpointSlice of ten endpoints, of which one is new, the budget is 30 µs, or
// 50 µs of the time of processors: half of it goes into reading JSON, a quarter
// into the file, a quarter into rows. Only decoding uses more processors where
// there are more: one goroutine reads and one applies, at some 9 µs an event each.
func BenchmarkReplay(b *testing.B) {
	const stored = 50_000
	slice := func(n int) journal.Event { return benchSlice(n%benchServices, n+benchServices) }
	for _, c := range []struct {
		name string
		next func(n int) journal.Event
	}{
		{"slices", slice},
		{"mixed", func(n int) journal.Event {
			if n%5 == 0 {
				return slice(n)
			}
			return benchLease(n)
		}},
	} {
		j := record(b, stored, c.next)
		for _, check := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/check=%t", c.name, check), func(b *testing.B) {
				before := processorTime(b)
				for range b.N {
					replayAll(b, j, check)
				}
				used := processorTime(b) - before
				b.ReportMetric(float64(used.Nanoseconds())/float64(b.N*(stored+2*benchServices)), "cpu-ns/event")
				b.ReportMetric(float64(b.N)*(stored+2*benchServices)/b.Elapsed().Seconds(), "events/s")
			})
		}
	}
}

// processorTime is what the process has used of all processors.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func replayAll(b *testing.B, j *journal.Journal, check bool) {
	o := Options{Node: model.Node{Name: "n1"}}
	if check {
		if _, err := Check(b.Context(), j, o, Moment{}); err != nil {
			b.Fatal(err)
		}
		return
	}
	e, err := New(o)
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	if _, err := e.Run(b.Context(), j, Moment{}); err != nil {
		b.Fatal(err)
	}
	if got := e.Snapshot().Len(); got != benchServices {
		b.Fatalf("%d Services", got)
	}
}
