// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"fmt"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/audit"
	"github.com/fairlead-io/fairlead/internal/rbac"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

const cilium = "system:serviceaccount:kube-system:cilium"

// record is one of Cilium's requests, as a server notes it.
func record(verb, resource string, change ...func(*audit.Record)) audit.Record {
	r := audit.Record{Time: noon, Stage: audit.ResponseComplete, Level: audit.Metadata, User: cilium, Verb: verb, Code: http.StatusOK, Decision: "allow"}
	r.Resource.Resource = resource
	for _, c := range change {
		c(&r)
	}
	return r
}

func right(verb, group, resource string) Right {
	return Right{Request: rbac.Request{Verb: verb, Group: group, Resource: resource}}
}

func in(namespace string, r Right) Right {
	r.Namespace = namespace
	return r
}

func named(name string, r Right) Right {
	r.Name = name
	return r
}

func TestUsage(t *testing.T) {
	forbidden := func(message string) func(*audit.Record) {
		return func(r *audit.Record) { r.Decision, r.Code, r.Message = "", http.StatusForbidden, message }
	}
	type want struct {
		user, by string
		right    Right
		refused  bool
	}
	for _, c := range []struct {
		name   string
		record audit.Record
		want   []want
	}{
		{"a list", record("list", "pods"), []want{{cilium, "", right("list", "", "pods"), false}}},
		{"a subresource of an aggregated group", record("get", "nodes", func(r *audit.Record) {
			r.Resource.Group, r.Resource.Subresource, r.Name = "metrics.k8s.io", "stats", "n1"
		}), []want{{cilium, "", named("n1", right("get", "metrics.k8s.io", "nodes/stats")), false}}},
		{"a path, without what is asked of it", record("get", "", func(r *audit.Record) { r.RequestURI = "/openapi/v2?timeout=32s" }),
			[]want{{cilium, "", Right{Request: rbac.Request{Verb: "get"}, Path: "/openapi/v2"}, false}}},
		{"what is created has no name yet when rights are looked at", record("create", "leases", func(r *audit.Record) { r.Namespace, r.Name = "kube-system", "l" }),
			[]want{{cilium, "", in("kube-system", right("create", "", "leases")), false}}},
		{"but what it is created in has", record("create", "serviceaccounts", func(r *audit.Record) { r.Namespace, r.Name, r.Resource.Subresource = "a", "b", "token" }),
			[]want{{cilium, "", named("b", in("a", right("create", "", "serviceaccounts/token"))), false}}},
		{"the authorizers' decision counts, whatever the answer", record("get", "pods", func(r *audit.Record) { r.Decision = "forbid" }),
			[]want{{cilium, "", right("get", "", "pods"), true}}},
		{"admission refuses with the same status", record("create", "pods", func(r *audit.Record) { r.Code, r.Message = http.StatusForbidden, "exceeded quota" }),
			[]want{{cilium, "", right("create", "", "pods"), false}}},
		{"so it does where no decision is noted", record("create", "pods", forbidden(`pods "a" is forbidden: exceeded quota`)),
			[]want{{cilium, "", right("create", "", "pods"), false}}},
		{"a refusal without a decision", record("list", "pods", forbidden(`pods is forbidden: User "`+cilium+`" cannot list resource "pods" in API group "" at the cluster scope`)),
			[]want{{cilium, "", right("list", "", "pods"), true}}},
		{"a refusal of a path", record("get", "", func(r *audit.Record) {
			forbidden(`forbidden: User "` + cilium + `" cannot get path "/metrics"`)(r)
			r.RequestURI = "/metrics"
		}), []want{{cilium, "", Right{Request: rbac.Request{Verb: "get"}, Path: "/metrics"}, true}}},
		{"a status alone", record("list", "pods", forbidden("")), []want{{cilium, "", right("list", "", "pods"), true}}},
		{"a request in another's name is the other's, and takes a right of its own", record("list", "pods", func(r *audit.Record) { r.User, r.Impersonated = "admin", cilium }),
			[]want{{"admin", "", named("cilium", in("kube-system", right("impersonate", "", "serviceaccounts"))), false}, {cilium, "admin", right("list", "", "pods"), false}}},
		{"a refusal of that is no refusal of the request", record("list", "pods", forbidden(`users "jane" is forbidden: User "`+cilium+`" cannot impersonate resource "users" in API group "" at the cluster scope`)),
			[]want{{cilium, "", right("impersonate", "", "users"), true}}},
		{"who is not known has no rights", record("list", "pods", func(r *audit.Record) { r.User, r.Code, r.Decision = "", http.StatusUnauthorized, "" }), nil},
		{"who is turned away for want of room was not judged", record("list", "pods", func(r *audit.Record) { r.Code, r.Decision = http.StatusTooManyRequests, "" }), nil},
		{"a request that has only come is none yet", record("list", "pods", func(r *audit.Record) { r.Stage = audit.RequestReceived }), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := NewUsage("")
			u.Add(c.record)
			var got []want
			for _, use := range u.Uses() {
				if use.Requests != 1 || use.Refused > 1 || use.First != noon || use.Last != noon || use.Allowed.IsZero() != (use.Refused == 1) {
					t.Errorf("%+v", use)
				}
				got = append(got, want{use.User, use.By, use.Right, use.Refused == 1})
			}
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(want{})); diff != "" {
				t.Error(diff)
			}
		})
	}

	t.Run("a watch that goes on counts once, whether the log has its end or not", func(t *testing.T) {
		u := NewUsage("")
		for _, id := range []string{"ended", "going on"} {
			u.Add(record("watch", "pods", func(r *audit.Record) { r.AuditID, r.Stage = id, audit.ResponseStarted }))
		}
		u.Add(record("watch", "pods", func(r *audit.Record) { r.AuditID = "ended" }))
		if uses := u.Uses(); len(uses) != 1 || uses[0].Requests != 2 {
			t.Errorf("%+v", uses)
		}
	})
	t.Run("names count together, and more than can be told apart are said to be more", func(t *testing.T) {
		u := NewUsage(cilium)
		for i := range 3 * maxNames {
			u.Add(record("get", "secrets", func(r *audit.Record) {
				r.Namespace, r.Name, r.Time = "a", fmt.Sprintf("s%02d", i), noon.Add(time.Duration(i)*time.Second)
			}))
		}
		u.Add(record("list", "secrets", func(r *audit.Record) { r.User = "jane" }))
		sums := Summed(u.Uses())
		if len(sums) != 1 || sums[0].Requests != 3*maxNames || len(sums[0].Names) != maxNames || !sums[0].More || sums[0].Name != "" ||
			!sums[0].First.Equal(noon) || !sums[0].Last.Equal(noon.Add((3*maxNames-1)*time.Second)) {
			t.Errorf("%+v", sums)
		}
	})
	t.Run("requests beyond the bound are said not to be counted", func(t *testing.T) {
		u := NewUsage("")
		for i := range maxUses + 7 {
			u.Add(record("get", "", func(r *audit.Record) { r.RequestURI = fmt.Sprint("/", i) }))
		}
		if len(u.Uses()) != maxUses || u.Uncounted != 7 {
			t.Errorf("%d uses, %d not counted", len(u.Uses()), u.Uncounted)
		}
	})
}

// Budget: what a usage keeps of a log of any size fits in 64 MiB, and a record
// takes 10 µs at most: a log of 1 GB has about half a million.
func BenchmarkUsage(b *testing.B) {
	const records = 500_000
	var before, after runtime.MemStats
	for b.Loop() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		u := NewUsage("")
		for i := range records {
			u.Add(audit.Record{
				Time: noon.Add(time.Duration(i)), Stage: audit.ResponseComplete, AuditID: fmt.Sprint(i), Decision: "allow", Verb: "get",
				User: fmt.Sprint("system:node:n", i%5000), Resource: audit.Resource{Resource: "secrets"}, Namespace: fmt.Sprint("ns", i%977), Name: fmt.Sprint("s", i),
			})
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(u)
	}
	held := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	perRecord := b.Elapsed() / time.Duration(b.N*records)
	b.ReportMetric(float64(held)/(1<<20), "MiB-held")
	b.ReportMetric(float64(perRecord.Nanoseconds()), "ns/record")
	if held > 64<<20 || perRecord > 10*time.Microsecond {
		b.Errorf("%d MiB and %s a record, want 64 MiB and 10 µs at most", held>>20, perRecord)
	}
}
