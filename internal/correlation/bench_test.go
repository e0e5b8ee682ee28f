// SPDX-License-Identifier: Apache-2.0

package correlation

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/audit"
	"github.com/fairlead-io/fairlead/internal/journal"
)

// Budget: 1 GB of audit log and the journal beside it in 60 s and 256 MiB of
// heap. Every other record is a write, half of the writes are in the journal,
// some only by time, and a few events have no record.
func BenchmarkGigabyte(b *testing.B) {
	const size = 1 << 30
	dir := b.TempDir()
	j, err := journal.Create(filepath.Join(dir, "journal.db"), journal.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer j.Close()
	path := filepath.Join(dir, "audit.log")
	events := writeGigabyte(b, j, path, size)
	b.SetBytes(size)
	var peak uint64
	for b.Loop() {
		n := 0
		o := Options{Journal: j, Logs: []string{path}, Silence: time.Minute, Record: func(audit.Record) {
			if n++; n%20_000 == 0 {
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				peak = max(peak, m.HeapInuse)
			}
		}}
		report, err := Run(b.Context(), o)
		if err != nil {
			b.Fatal(err)
		}
		if report.Changes != events || report.Explained != events-events/100 || len(report.Unseen) > 0 {
			b.Fatalf("%d changes of %d, %d explained, %d unseen", report.Changes, events, report.Explained, len(report.Unseen))
		}
	}
	perRun := b.Elapsed() / time.Duration(b.N)
	b.ReportMetric(float64(peak)/(1<<20), "MiB-heap")
	b.ReportMetric(float64(events), "events")
	if perRun > 60*time.Second || peak > 256<<20 {
		b.Errorf("%s and %d MiB, want 60 s and 256 MiB at most", perRun, peak>>20)
	}
}

// writeGigabyte writes a log of a size, and the events of its writes.
func writeGigabyte(b *testing.B, j *journal.Journal, path string, size int) (events int) {
	b.Helper()
	out, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	w := bufio.NewWriterSize(out, 1<<20)
	var batch []journal.Event
	object := strings.Repeat(`{"addresses":["10.0.0.1"],"conditions":{"ready":true}},`, 22) + `{}`
	for i, written := 0, 0; written < size; i++ {
		after, verb, resource := time.Duration(i)*10*time.Millisecond, "get", "endpointslices"
		switch i % 4 {
		case 1:
			verb = "update"
		case 3:
			verb, resource = "patch", "pods"
		}
		name, version := fmt.Sprint("web-", i%5000), fmt.Sprint(1000+i)
		if verb == "update" {
			events++
			e := journal.Event{Time: noon.Add(after + time.Millisecond), Kind: slicesOf, Namespace: "shop", Name: name, UID: name, ResourceVersion: version,
				Type: journal.Modified, Manager: "kubelet", ManagedAt: noon.Add(after).Truncate(time.Second),
				Diff:    []journal.Change{{Path: "/endpoints/0/conditions/ready", Op: "replace", Old: []byte("true"), New: []byte("false")}},
				Content: []byte(`{"endpoints":[` + object + `]}`)}
			if batch = append(batch, e); len(batch) == 1000 {
				if err := j.Append(b.Context(), batch); err != nil {
					b.Fatal(err)
				}
				batch = batch[:0]
			}
			if events%100 == 0 {
				continue // no record
			}
		}
		answered := ""
		if events%10 != 0 {
			answered = version
		}
		n, err := fmt.Fprintf(w, `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse","auditID":"%08d-0000","stage":"ResponseComplete","requestURI":"/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices/%s","verb":%q,"user":{"username":"system:node:n%d","groups":["system:nodes","system:authenticated"]},"sourceIPs":["10.0.0.9"],"userAgent":"kubelet/v1.35","objectRef":{"resource":%q,"namespace":"shop","name":%q,"apiGroup":"discovery.k8s.io","apiVersion":"v1"},"responseStatus":{"metadata":{},"code":200},"requestObject":{"endpoints":[%s]},"responseObject":{"metadata":{"resourceVersion":%q},"endpoints":[%s]},"stageTimestamp":%q}`+"\n",
			i, name, verb, i%1000, resource, name, object, answered, object, noon.Add(after).Format(time.RFC3339Nano))
		if err != nil {
			b.Fatal(err)
		}
		written += n
	}
	if err := j.Append(b.Context(), batch); err != nil {
		b.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
	if err := out.Close(); err != nil {
		b.Fatal(err)
	}
	return events
}

// Budget: 100 µs a write, even if all are of one object within seconds and no
// record names its version, so that only nearness tells.
func BenchmarkStorm(b *testing.B) {
	const writes = 30_000
	s := &story{}
	s.listed(services)
	for i := range writes {
		after := time.Duration(i) * time.Millisecond
		s.event(after, services, journal.Modified, "web", fmt.Sprint(100+i), "kubectl")
		s.record("a", line{after: after, verb: "patch", name: "web"})
	}
	o := s.write(b)
	for b.Loop() {
		report, err := Run(b.Context(), o)
		if err != nil {
			b.Fatal(err)
		}
		if report.Changes != writes || report.Explained < writes*99/100 {
			b.Fatalf("%d changes, %d explained, of %d", report.Changes, report.Explained, writes)
		}
	}
	perWrite := b.Elapsed() / time.Duration(b.N*writes)
	b.ReportMetric(float64(perWrite.Microseconds()), "µs/write")
	if perWrite > 100*time.Microsecond {
		b.Errorf("%s a write, want 100 µs at most", perWrite)
	}
}
