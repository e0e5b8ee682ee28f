// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// line is a record as a server writes it, with an object of its own in both
// directions.
func line(second int, id string) string {
	return fmt.Sprintf(`{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse","auditID":%q,"stage":"ResponseComplete",`+
		`"requestURI":"/apis/apps/v1/namespaces/shop/deployments/web/scale?dryRun=All","verb":"patch",`+
		`"user":{"username":"ann","groups":["dev"],"extra":{"a":["b"]}},"impersonatedUser":{"username":"bob"},"sourceIPs":["192.0.2.7"],"userAgent":"kubectl/v1",`+
		`"objectRef":{"resource":"deployments","namespace":"shop","name":"web","apiGroup":"apps","apiVersion":"v1","subresource":"scale"},`+
		`"responseStatus":{"metadata":{},"code":200},"requestObject":{"metadata":{"resourceVersion":"1"}},"responseObject":{"metadata":{"resourceVersion":"42"}},`+
		`"requestReceivedTimestamp":"2026-05-04T10:00:00.000000Z","stageTimestamp":"2026-05-04T10:00:%02d.5Z"}`, id, second)
}

func want(second int, id string) Record {
	return Record{
		Time:  time.Date(2026, 5, 4, 10, 0, second, 5e8, time.UTC),
		Stage: ResponseComplete, Level: RequestResponse, AuditID: id,
		User: "ann", Impersonated: "bob", Groups: []string{"dev"}, UserAgent: "kubectl/v1", SourceIPs: []string{"192.0.2.7"},
		Verb: "patch", RequestURI: "/apis/apps/v1/namespaces/shop/deployments/web/scale?dryRun=All",
		Resource:  Resource{"apps", "v1", "deployments", "scale"},
		Namespace: "shop", Name: "web", Code: 200, ResourceVersion: "42",
	}
}

func writeFile(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func squeeze(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func read(t testing.TB, paths ...string) ([]Record, Losses) {
	t.Helper()
	log, err := Open(t.Context(), paths...)
	if err != nil {
		t.Fatal(err)
	}
	var records []Record
	for r, err := range log.Records(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, r)
	}
	return records, log.Losses()
}

func quote(text string) string {
	body, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string always is JSON
	}
	return string(body)
}

func indent(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Indent(&b, []byte(text), "", "  "); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestFormats(t *testing.T) {
	a, b := line(1, "a"), line(2, "b")
	azure := `{"time":"2026-05-04T10:00:09Z","category":"kube-audit","level":"Informational","properties":{"pod":"kube-apiserver-7","stream":"stdout","log":%s}}`
	cases := []struct {
		name, text, server string
	}{
		{"lines of a server", a + "\n" + b + "\n", ""},
		{"lines with Windows ends, blank lines and a mark at the start", "\ufeff" + a + "\r\n\r\n" + b, ""},
		{"gzip, whatever the name", squeeze(t, a+"\n"+b+"\n"), ""},
		{"values without lines between them", a + b, ""},
		{"a JSON list", "[" + a + "," + b + "]", ""},
		{"a JSON list in many lines", indent(t, "["+a+","+b+"]"), ""},
		{"objects in many lines", indent(t, a) + "\n" + indent(t, b), ""},
		{"an EventList", `{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[` + a + "," + b + `]}`, ""},
		{"an EventList for each line", `{"metadata":{},"x":"` + strings.Repeat("y", 99) + `","kind":"EventList","items":[` + a + "]}\n" + `{"items":[` + b + `],"kind":"EventList"}`, ""},
		{"CloudWatch: filter-log-events", `{"events":[{"logStreamName":"kube-apiserver-audit-1","message":` + quote(a) + `},{"logStreamName":"kube-apiserver-audit-1","message":` + quote(b) + `}],"searchedLogStreams":[]}`, "kube-apiserver-audit-1"},
		{"CloudWatch: a subscription", `{"messageType":"DATA_MESSAGE","logStream":"audit-2","logEvents":[{"id":"1","timestamp":1,"message":` + quote(a) + `},{"id":"2","timestamp":2,"message":` + quote(b) + `}]}`, "audit-2"},
		{"CloudWatch: exported to S3", "2026-05-04T10:00:01.000Z " + a + "\n2026-05-04T10:00:02.000Z " + b, ""},
		{"CloudWatch: Insights", indent(t, `{"results":[[{"field":"@logStream","value":"audit-3"},{"field":"@message","value":`+quote(a)+`}],[{"field":"@logStream","value":"audit-3"},{"field":"@message","value":`+quote(b)+`}]],"statistics":{"records":[1]}}`), "audit-3"},
		{"CloudWatch: Insights of the console", `[{"@timestamp":"x","@logStream":"audit-4","@message":` + a + `},{"@logStream":"audit-4","@message":` + quote(b) + `}]`, "audit-4"},
		{"Azure: lines", fmt.Sprintf(azure, quote(a)) + "\n" + fmt.Sprintf(azure, quote(b+"\n")), "kube-apiserver-7"},
		{"Azure: an event hub", `{"records":[` + fmt.Sprintf(azure, quote(a)) + "," + fmt.Sprintf(azure, quote(b)) + `]}`, "kube-apiserver-7"},
		{"Azure: AzureDiagnostics", `[{"log_s":` + quote(a) + `,"pod_s":"p"},{"log_s":` + quote(b) + `,"pod_s":"p"}]`, "p"},
		{"Tencent and Alibaba: one text", `{"__CONTENT__":` + quote(a) + `,"__SOURCE__":"10.0.0.1"}` + "\n" + `{"content":` + quote(b) + `,"__source__":"10.0.0.1"}`, "10.0.0.1"},
		{"objects as texts", textual(t, a) + "\n" + textual(t, b), ""},
		{"objects taken apart", apart(t, a) + "\n" + apart(t, b), ""},
		{"what a container runtime writes", "2026-05-04T10:00:01Z stdout F " + a + "\n" + `{"log":` + quote(b+"\n") + `,"stream":"stdout"}`, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			path := writeFile(t, "audit.log", c.text)
			got, losses := read(t, path)
			wanted := []Record{want(1, "a"), want(2, "b")}
			for i := range wanted {
				wanted[i].File, wanted[i].Server = path, or(c.server, path)
			}
			if diff := cmp.Diff(wanted, got, cmpopts.IgnoreFields(Record{}, "Line")); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
			if losses != (Losses{}) {
				t.Errorf("losses = %+v, want none", losses)
			}
		})
	}
}

func fields(t *testing.T, text string) map[string]any {
	t.Helper()
	var out map[string]any
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func marshal(t *testing.T, value any) string {
	t.Helper()
	body, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// textual makes a text of each object and list in a record.
func textual(t *testing.T, text string) string {
	out := fields(t, text)
	for name, value := range out {
		if _, ok := value.(string); !ok {
			out[name] = marshal(t, value)
		}
	}
	return marshal(t, out)
}

// apart makes a field of each field of the objects in a record, all of them
// texts, but for the objects that the record is about.
func apart(t *testing.T, text string) string {
	out := fields(t, text)
	for _, name := range []string{"user", "objectRef", "responseStatus"} {
		for inner, value := range out[name].(map[string]any) {
			if s, ok := value.(string); ok {
				out[name+"."+inner] = s
				continue
			}
			out[name+"."+inner] = marshal(t, value)
		}
		delete(out, name)
	}
	return marshal(t, out)
}

func TestGKE(t *testing.T) {
	entry := `{"insertId":"i%d","timestamp":"2026-05-04T10:00:0%d.25Z","resource":{"type":"k8s_cluster","labels":{"cluster_name":"c1"}},` +
		`"protoPayload":{"@type":"type.googleapis.com/google.cloud.audit.AuditLog","serviceName":%q,"methodName":%q,"resourceName":%q,` +
		`"authenticationInfo":{"principalEmail":"ann@example.com"},"requestMetadata":{"callerIp":"192.0.2.7","callerSuppliedUserAgent":"kubectl"},"status":{"code":%d},"response":{"metadata":{"resourceVersion":"7"}}}}`
	cases := []struct {
		name, method, path string
		status             int
		want               Record
	}{
		{"a namespaced object", "io.k8s.core.v1.services.update", "core/v1/namespaces/shop/services/web", 0,
			Record{Verb: "update", Resource: Resource{"", "v1", "services", ""}, Namespace: "shop", Name: "web", Code: 200}},
		{"a subresource", "io.k8s.core.v1.pods.exec.create", "core/v1/namespaces/shop/pods/web/exec", 7,
			Record{Verb: "create", Resource: Resource{"", "v1", "pods", "exec"}, Namespace: "shop", Name: "web", Code: 403}},
		{"an object of the cluster", "io.k8s.authorization.rbac.v1.clusterroles.delete", "rbac.authorization.k8s.io/v1/clusterroles/view", 5,
			Record{Verb: "delete", Resource: Resource{"rbac.authorization.k8s.io", "v1", "clusterroles", ""}, Name: "view", Code: 404}},
		{"a Namespace lies in itself", "io.k8s.core.v1.namespaces.status.patch", "core/v1/namespaces/shop/status", 0,
			Record{Verb: "patch", Resource: Resource{"", "v1", "namespaces", "status"}, Namespace: "shop", Name: "shop", Code: 200}},
		{"a collection", "io.k8s.core.v1.namespaces.list", "core/v1/namespaces", 0,
			Record{Verb: "list", Resource: Resource{"", "v1", "namespaces", ""}, Code: 200}},
		{"a path", "io.k8s.get", "readyz", 0, Record{Verb: "get", RequestURI: "/readyz", Code: 200}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			text := fmt.Sprintf(entry, 1, 1, kubernetesService, c.method, c.path, c.status)
			other := fmt.Sprintf(entry, 2, 2, "container.googleapis.com", "x", "y", 0)
			path := writeFile(t, "gke.json", indent(t, "["+text+","+other+"]"))
			got, losses := read(t, path)
			c.want.Time = time.Date(2026, 5, 4, 10, 0, 1, 25e7, time.UTC)
			c.want.AuditID, c.want.User, c.want.UserAgent, c.want.SourceIPs = "i1", "ann@example.com", "kubectl", []string{"192.0.2.7"}
			c.want.ResourceVersion, c.want.Server, c.want.File, c.want.Line = "7", "c1", path, got[0].Line
			if diff := cmp.Diff([]Record{c.want}, got); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
			if losses != (Losses{Other: 1}) {
				t.Errorf("losses = %+v, want the entry of another service", losses)
			}
		})
	}
}

func TestLosses(t *testing.T) {
	a, b := line(1, "a"), line(2, "b")
	whole := squeeze(t, strings.Repeat(a+"\n", 1)+randomLines(2000)+b+"\n")
	cases := []struct {
		name, text string
		ids        string // of the records, the first and the last
		want       Losses
	}{
		{"a line cut by a rotation does not hide the others", a + "\n" + a[:200] + "\n" + b + "\n", "a b", Losses{Broken: 1, First: ":2: broken JSON"}},
		{"two cut lines name the first", a[50:] + "\n" + a + "\n" + b[:70], "a a", Losses{Broken: 2, First: ":1: broken JSON"}},
		{"a line joined to what a crash left", a + "\n" + a[:100] + b + "\n" + b, "a b", Losses{Broken: 1, First: ":2: broken JSON"}},
		{"a line of zeros, as a power cut leaves", a + "\n" + strings.Repeat("\x00", 4096) + "\n" + b, "a b", Losses{Broken: 1, First: ":2: broken JSON"}},
		{"JSON of something else", "{\"a\":1}\nnull\n7\n" + a, "a a", Losses{Other: 3}},
		{"JSON of something else in a line with a record", `{"a":1}` + a, "a a", Losses{Other: 1}},
		{"a gzip file that ends early", whole[:len(whole)/2], "a", Losses{Torn: 1, First: "cannot be read on: unexpected EOF"}},
		{"a document that ends early", "[" + a + ",\n" + b + ",", "a b", Losses{Torn: 1, First: ":2: the document cannot be read on"}},
		{"a line longer than any record", a + "\n{\"x\":\"" + strings.Repeat("y", maxRecord) + "\"}\n" + b, "a b", Losses{TooLong: 1, First: ":2: longer than 32 MiB"}},
		{"a document without an end to a string", "[" + a + ",\"" + strings.Repeat("y", 2*maxRecord), "a a", Losses{Torn: 1, First: "longer than 32 MiB"}},
		{"a gzip file that ends in its header", whole[:5], "", Losses{Torn: 1, First: ":1: the file cannot be read: unexpected EOF"}},
		{"a record without a time has no place among the others", a + "\n" + strings.ReplaceAll(b, "imestamp", "imestump"), "a a", Losses{Broken: 1, First: ":2: a record without a time that can be read"}},
		{"an empty file", "", "", Losses{}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, losses := read(t, writeFile(t, "audit.log", c.text))
			ids := strings.Fields(c.ids)
			if len(ids) == 0 && len(got) > 0 || len(ids) > 0 && (len(got) == 0 || got[0].AuditID != ids[0]) ||
				len(ids) > 1 && got[len(got)-1].AuditID != ids[1] {
				t.Errorf("read %d records, want the first and the last to be %q", len(got), ids)
			}
			if !strings.Contains(losses.First, c.want.First) {
				t.Errorf("first loss = %q, want %q in it", losses.First, c.want.First)
			}
			losses.First = c.want.First
			if losses != c.want {
				t.Errorf("losses = %+v, want %+v", losses, c.want)
			}
		})
	}
	t.Run("a line of 5 MB is a record", func(t *testing.T) {
		big := strings.Replace(a, `"requestObject":{`, `"requestObject":{"x":"`+strings.Repeat("y", 5<<20)+`",`, 1)
		got, losses := read(t, writeFile(t, "audit.log", big+"\n"+b))
		if len(got) != 2 || got[0].ResourceVersion != "42" || losses.Any() {
			t.Errorf("read %d records, losses %+v", len(got), losses)
		}
	})
	t.Run("a file that is not there, and a folder without any, are named", func(t *testing.T) {
		for _, path := range []string{filepath.Join(t.TempDir(), "none"), t.TempDir()} {
			if _, err := Open(t.Context(), path); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("Open(%s) = %v", path, err)
			}
		}
	})
}

// What holds no record yields none, and would else be read to its end.
func TestReadingEndsWhenNobodyWantsIt(t *testing.T) {
	path := writeFile(t, "audit.log", strings.Repeat("no record\n", 200_000))
	log, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(ctx, path); !errors.Is(err, context.Canceled) {
		t.Errorf("opening a log ended with %v, want %v", err, context.Canceled)
	}
	for _, err = range log.Records(ctx) {
		break
	}
	if !errors.Is(err, context.Canceled) || log.Losses().Broken > 0 {
		t.Errorf("reading ended with %v after %+v, want %v at once", err, log.Losses(), context.Canceled)
	}
}

func TestRotatedSets(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	t.Run("files are ordered by content, servers are merged, copies count once", func(t *testing.T) {
		newest := put("cp1/audit.log", line(5, "e")+"\n")
		middle := put("cp1/audit-2026-05-04T10-00-04.000.log", line(2, "b")+"\n"+line(4, "d")+"\n")
		oldest := put("cp1/audit-2026-05-04T10-00-02.000.log.gz", squeeze(t, line(1, "a")+"\n"+line(2, "b")+"\n"))
		other := put("cp2/audit.log.1", line(3, "c")+"\n"+line(6, "f")+"\n")
		got, losses := read(t, newest, other, middle, oldest, newest)
		var ids, servers string
		for _, r := range got {
			ids += r.AuditID
			servers += strings.TrimPrefix(r.Server, dir) + " "
		}
		if ids != "abcdef" {
			t.Errorf("records = %s, want abcdef", ids)
		}
		if want := "/cp1/audit.log /cp1/audit.log /cp2/audit.log /cp1/audit.log /cp1/audit.log /cp2/audit.log "; servers != want {
			t.Errorf("servers = %s, want %s", servers, want)
		}
		if losses != (Losses{Duplicates: 2}) {
			t.Errorf("losses = %+v, want two duplicates", losses)
		}
	})
	t.Run("a server whose clock is behind keeps its times, and takes its place in the order", func(t *testing.T) {
		log, err := Open(t.Context(), put("s1/audit.log", line(3, "c")+"\n"+line(5, "e")+"\n"), put("s2/audit.log", line(1, "d")+"\n"+line(4, "f")+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		log.Shift(map[string]time.Duration{filepath.Join(dir, "s2/audit.log"): 3 * time.Second})
		var ids string
		var times []int
		for r, err := range log.Records(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			ids += r.AuditID
			times = append(times, r.Time.Second())
		}
		if want := []int{3, 1, 5, 4}; ids != "cdef" || !slices.Equal(times, want) {
			t.Errorf("records %s at %v, want cdef at %v", ids, times, want)
		}
	})
	for name, want := range map[string]string{
		"a/audit.log-20260504.gz": "a/audit.log", "audit-2026-05-04T10-00-04.000.log": "audit.log",
		"audit.log": "audit.log", "b.2.gz": "b", "x/.1": "x/.1",
	} {
		t.Run("the log of "+name, func(t *testing.T) {
			if got := logName(name); got != want {
				t.Errorf("logName = %s, want %s", got, want)
			}
		})
	}
}

// randomLines are records that do not compress to nothing.
func randomLines(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(line(1, fmt.Sprintf("%x", uint64(i)*0x9e3779b97f4a7c15)) + "\n")
	}
	return b.String()
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(line(1, "a")))
	f.Add([]byte(`[{"@message":` + quote(line(1, "a")) + `}]`))
	f.Add([]byte(`{"protoPayload":{"serviceName":"k8s.io","resourceName":"core/v1/namespaces/a/status"}}`))
	f.Add([]byte("[" + line(1, "a") + ",\n{\"events\":[]}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		in := file{path: "audit.log", server: "audit.log", losses: &Losses{}}
		last := 1 + bytes.Count(text, []byte("\n"))
		in.read(bufio.NewReader(bytes.NewReader(text)), func(r Record) bool {
			if r.File != "audit.log" || r.Server == "" || r.Line < 1 || r.Line > last {
				t.Errorf("record %+v of %q", r, text)
			}
			return true
		})
		if in.losses.Any() != (in.losses.First != "") {
			t.Errorf("losses %+v of %q", in.losses, text)
		}
	})
}
