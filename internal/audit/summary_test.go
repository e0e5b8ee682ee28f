// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func at(offset time.Duration, user, verb, name string) Record {
	return Record{Time: noon.Add(offset), Stage: ResponseComplete, Level: Metadata, User: user, Verb: verb, Name: name, Namespace: "shop",
		Resource: Resource{Resource: "services"}, Server: "cp1", Code: 200}
}

func TestStorms(t *testing.T) {
	// many are n writes by a user, one every step, from a moment on.
	many := func(n int, from, step time.Duration, user string) (out []Record) {
		for i := range n {
			out = append(out, at(from+time.Duration(i)*step, user, "patch", "web"))
		}
		return out
	}
	web := Object{"services", "shop", "web"}
	failing := many(50, 0, time.Millisecond, "a")
	for i := range failing {
		failing[i].Code = 409
	}
	cases := []struct {
		name    string
		records []Record
		want    []Storm
	}{
		{"ten writes in ten seconds", many(10, 0, time.Second, "a"), []Storm{{web, noon, noon.Add(9 * time.Second), 10, map[string]int{"a": 10}}}},
		{"nine writes", many(9, 0, time.Second, "a"), []Storm{}},
		{"a write every two seconds, for hours", many(9000, 0, 2*time.Second, "a"), []Storm{}},
		{"two users who undo each other's writes", append(many(6, 0, time.Second, "a"), many(6, 6*time.Second, time.Second, "b")...),
			[]Storm{{web, noon, noon.Add(11 * time.Second), 12, map[string]int{"a": 6, "b": 6}}}},
		{"two storms of one object", append(many(10, 0, time.Second, "a"), many(20, time.Hour, time.Second, "a")...), []Storm{
			{web, noon.Add(time.Hour), noon.Add(time.Hour + 19*time.Second), 20, map[string]int{"a": 20}},
			{web, noon, noon.Add(9 * time.Second), 10, map[string]int{"a": 10}}}},
		{"writes that fail change nothing", failing, []Storm{}},
		{"reads are no writes", []Record{at(0, "a", "get", "web"), at(0, "a", "list", "web")}, []Storm{}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := NewSummary(time.Minute)
			for _, r := range c.records {
				s.Add(r)
			}
			if diff := cmp.Diff(c.want, s.Storms(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("storms (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("objects at rest are forgotten", func(t *testing.T) {
		s := newStorms()
		for i := range 3 * sweepEvery {
			s.add(at(time.Duration(i)*time.Second, "a", "patch", fmt.Sprint(i)))
		}
		if len(s.objects) > sweepEvery+int(stormSpan/time.Second)+1 {
			t.Errorf("%d objects are remembered", len(s.objects))
		}
	})
}

func TestSummary(t *testing.T) {
	s := NewSummary(time.Minute)
	begun := at(0, "ann", "update", "web")
	begun.Stage = RequestReceived
	other := at(30*time.Second, "ann", "get", "web")
	other.Server = "cp2"
	failed := at(3*time.Minute, "ann", "update", "web")
	failed.Code, failed.UserAgent = 409, "kubectl"
	as := at(3*time.Minute, "ann", "update", "web")
	as.Impersonated = "bob"
	for _, r := range []Record{begun, at(time.Second, "ann", "update", "web"), other, failed, as} {
		s.Add(r)
	}
	update := Counted{User: "ann", Verb: "update", Resource: "services"}
	t.Run("gaps are each server's own, and a time is the earliest and the latest", func(t *testing.T) {
		want := []Server{
			{"cp1", 4, noon, noon.Add(3 * time.Minute), []Gap{{noon.Add(time.Second), noon.Add(3 * time.Minute)}}},
			{"cp2", 1, noon.Add(30 * time.Second), noon.Add(30 * time.Second), []Gap{}},
		}
		if diff := cmp.Diff(want, s.Servers()); diff != "" {
			t.Errorf("servers (-want +got):\n%s", diff)
		}
	})
	t.Run("a request counts once, at its end, whatever the client", func(t *testing.T) {
		want := []Count{{update, 2, 1, noon.Add(time.Second), noon.Add(3 * time.Minute)}}
		if diff := cmp.Diff(want, s.Requests()[:1]); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
	t.Run("writers are told apart by client, and by whom they impersonate", func(t *testing.T) {
		got := map[string]int{}
		for _, c := range s.Writers() {
			got[c.User+"/"+c.UserAgent] = c.Requests
		}
		if diff := cmp.Diff(map[string]int{"ann/": 1, "ann/kubectl": 1, "ann as bob/": 1}, got); diff != "" {
			t.Errorf("writers (-want +got):\n%s", diff)
		}
	})
	t.Run("kinds of requests beyond the limit are counted together", func(t *testing.T) {
		s := NewSummary(time.Minute)
		for i := range maxCounts + 7 {
			s.Add(at(0, fmt.Sprint(i), "get", "web"))
		}
		if got := s.Requests()[0]; got.Resource != "(others)" || got.Requests != 7 {
			t.Errorf("the most frequent is %+v, want 7 others", got)
		}
	})
}

// BenchmarkGigabyte reads and adds up 1 GB of records of which each holds an
// object twice. Budget: 60 s on two cores, and 256 MiB of heap at any time.
func BenchmarkGigabyte(b *testing.B) {
	const size = 1 << 30
	path := filepath.Join(b.TempDir(), "audit.log")
	out, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	w := bufio.NewWriterSize(out, 1<<20)
	object := fmt.Sprintf(`{"kind":"EndpointSlice","metadata":{"name":"web","resourceVersion":"42","managedFields":[{"fieldsV1":{"f:endpoints":%s}}]},"endpoints":[%s]}`,
		`{"f:a":{},"f:b":{}}`, `{"addresses":["10.0.0.1"],"conditions":{"ready":true}},{"addresses":["10.0.0.2"],"conditions":{"ready":true}}`)
	lines := 0
	for written := 0; written < size; lines++ {
		n, err := fmt.Fprintf(w, `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse","auditID":"%016x","stage":"ResponseComplete","requestURI":"/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices/web-%d","verb":"update","user":{"username":"system:node:%d","groups":["system:nodes","system:authenticated"]},"sourceIPs":["10.0.0.9"],"userAgent":"kubelet/v1.35","objectRef":{"resource":"endpointslices","namespace":"shop","name":"web-%d","apiGroup":"discovery.k8s.io","apiVersion":"v1"},"responseStatus":{"metadata":{},"code":200},"requestObject":%s,"responseObject":%s,"requestReceivedTimestamp":%q,"stageTimestamp":%q,"annotations":{"authorization.k8s.io/decision":"allow"}}`+"\n",
			lines, lines%5000, lines%1000, lines%5000, object, object,
			noon.Format(time.RFC3339Nano), noon.Add(time.Duration(lines)*10*time.Millisecond).Format(time.RFC3339Nano))
		if err != nil {
			b.Fatal(err)
		}
		written += n
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
	if err := out.Close(); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(size)
	var peak uint64
	for b.Loop() {
		log, err := Open(b.Context(), path)
		if err != nil {
			b.Fatal(err)
		}
		s := NewSummary(time.Minute)
		n := 0
		for r, err := range log.Records(b.Context()) {
			if err != nil {
				b.Fatal(err)
			}
			s.Add(r)
			if n++; n%100_000 == 0 {
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				peak = max(peak, m.HeapInuse)
			}
		}
		if n != lines || len(s.Requests()) != 1000 {
			b.Fatalf("%d records of %d, %d kinds", n, lines, len(s.Requests()))
		}
	}
	b.ReportMetric(float64(peak)/(1<<20), "MiB-heap-peak")
	if seconds := b.Elapsed().Seconds() / float64(b.N); seconds > 60 || peak > 256<<20 {
		b.Errorf("a pass took %.1f s and %d MiB, more than the budget", seconds, peak>>20)
	}
}
