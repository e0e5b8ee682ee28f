// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// service is a manifest of one Service of one port.
func service(name string, port int) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata:
  name: %s
spec:
  clusterIP: 10.96.0.1
  ports:
  - port: %d
`, name, port)
}

// summary names the objects that were read.
func summary(o Objects) string {
	var out []string
	for _, s := range o.Services {
		out = append(out, fmt.Sprintf("%s:%d", s.Name, s.Ports[0].Port))
	}
	for _, s := range o.Slices {
		out = append(out, "slice "+s.Name.String())
	}
	for _, n := range o.Nodes {
		out = append(out, "node "+n.Name)
	}
	return strings.Join(out, " ")
}

func TestReadFiles(t *testing.T) {
	for _, tc := range []struct {
		name     string
		text     string
		want     string
		problems []string
	}{
		{"an empty file holds nothing", "", "", nil},
		{"comments and empty documents hold nothing", "# nothing\n---\n---\n\n# nothing\n---\n...\n", "", nil},
		{"documents are read one after another, in the namespace default",
			service("a", 80) + "---\n" + service("b", 81), "default/a:80 default/b:81", nil},
		{"a byte order mark, CRLF and directives are no content",
			"\xef\xbb\xbf%YAML 1.1\r\n---\r\n" + strings.ReplaceAll(service("a", 80), "\n", "\r\n"), "default/a:80", nil},
		{"content may stand on the line of the marker",
			"--- {apiVersion: v1, kind: Service, metadata: {name: a}, spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}}\n", "default/a:80", nil},
		{"the items of a List are read",
			"apiVersion: v1\nkind: List\nitems:\n" + item(service("a", 80)) + item(service("b", 81)), "default/a:80 default/b:81", nil},
		{"the items of a typed list need not say what they are",
			`{"apiVersion":"v1","kind":"ServiceList","items":[{"metadata":{"name":"a","namespace":"x"},"spec":{"clusterIP":"10.96.0.1","ports":[{"port":80}]}}]}`,
			"x/a:80", nil},
		{"JSON values stand one after another", "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"n1\"}}\n{\n\t\"apiVersion\": \"v1\",\n\t\"kind\": \"Node\",\n\t\"metadata\": {\"name\": \"n2\"}\n}\n",
			"node n1 node n2", nil},
		{"an EndpointSlice is read",
			"apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\nmetadata: {name: a-1, labels: {kubernetes.io/service-name: a}}\nendpoints: [{addresses: [10.0.0.1]}]\nports: [{port: 80}]\n",
			"slice default/a-1", nil},
		{"other kinds are none of our business", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n---\napiVersion: v1\nkind: ConfigMap\n", "", nil},
		{"of two of one name the first counts, and the other is named",
			service("a", 80) + "---\n" + service("a", 81), "default/a:80",
			[]string{"stdin:10: document 2: Service default/a: ignored: the one of stdin:1 counts"}},
		{"a Service of another group is named, and the rest of the file works",
			"apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: k}\n---\n" + service("a", 80), "default/a:80",
			[]string{`stdin:1: document 1: Service k: apiVersion: ignored: the Service of "serving.knative.dev/v1" is another kind of object; the one of v1 is read`}},
		{"a misspelt kind is named, and the rest of the file works",
			"apiVersion: v1\nkind: Sevice\nmetadata: {name: k}\n---\n" + service("a", 80), "default/a:80",
			[]string{`stdin:2: document 1: Sevice k: kind: "Sevice" is no kind of v1; Service and Node of v1 and EndpointSlice of discovery.k8s.io/v1 are read`}},
		{"an old version of EndpointSlice is named",
			"apiVersion: discovery.k8s.io/v1beta1\nkind: EndpointSlice\n", "",
			[]string{`stdin:1: document 1: EndpointSlice: apiVersion: ignored: the EndpointSlice of "discovery.k8s.io/v1beta1" is another kind of object`}},
		{"a missing kind is named", "apiVersion: v1\nmetadata: {name: a}\n", "",
			[]string{"stdin:1: document 1: a: kind: the kind is missing"}},
		{"a missing apiVersion is named", "kind: Service\nmetadata: {name: a}\n", "",
			[]string{"stdin:1: document 1: Service a: apiVersion: the apiVersion is missing"}},
		{"a bad field is named with its own line",
			service("a", 80) + "---\n" + service("b", 70000), "default/a:80",
			[]string{"stdin:17: document 2: Service default/b: spec.ports[0].port: 70000 is not a port number from 1 to 65535"}},
		{"a bad field of a list's item is named with its own line",
			"apiVersion: v1\nkind: List\nitems:\n" + item(service("a", 80)) + item(service("b", 0)), "default/a:80",
			[]string{"stdin:19: document 1: Service default/b: spec.ports[0].port: 0 is not a port number"}},
		{"a field that is not there is named with the line of what is above it",
			"apiVersion: v1\nkind: Service\nmetadata:\n  name: a\nspec:\n  clusterIP: 10.96.0.1\n", "",
			[]string{"stdin:5: document 1: Service default/a: spec.ports: there are no ports"}},
		{"a value of the wrong type is named with its path and line",
			"apiVersion: v1\nkind: Service\nmetadata:\n  name: a\nspec:\n  ports:\n  - port: 80\n  - name: x\n    port: web\n", "",
			[]string{"stdin:9: document 1: Service default/a: spec.ports[1].port: a string stands where a whole number is expected"}},
		{"a list where a mapping belongs is named",
			"apiVersion: v1\nkind: Service\nmetadata:\n  name: a\nspec:\n- port: 80\n", "",
			[]string{"stdin:5: document 1: Service default/a: spec: an array stands where a mapping is expected"}},
		{"a number where text belongs is named",
			"apiVersion: v1\nkind: Service\nmetadata:\n  name: a\nspec:\n  externalIPs:\n  - 192.0.2.1\n  - 5\n", "",
			[]string{"spec.externalIPs"}},
		{"text where a list belongs is named",
			"apiVersion: v1\nkind: Service\nmetadata:\n  name: a\nspec:\n  externalIPs: 192.0.2.1\n", "",
			[]string{"stdin:6: document 1: Service default/a: spec.externalIPs: a string stands where a list is expected"}},
		{"text where true or false belongs is named",
			"apiVersion: v1\nkind: Service\nmetadata:\n  name: a\nspec:\n  publishNotReadyAddresses: maybe\n", "",
			[]string{"stdin:6: document 1: Service default/a: spec.publishNotReadyAddresses: a string stands where true or false is expected"}},
		{"a time that is none is named",
			"apiVersion: v1\nkind: Service\nmetadata:\n  name: a\n  creationTimestamp: yesterday\n", "",
			[]string{`stdin:1: document 1: Service default/a: parsing time "yesterday"`}},
		{"a name that YAML 1.1 takes for a bool is named",
			"apiVersion: v1\nkind: Service\nmetadata:\n  name: on\n", "",
			[]string{"stdin:4: document 1: Service: metadata.name: a bool stands where a string is expected"}},
		{"a number with a leading zero is octal in YAML 1.1, and what comes of it is checked",
			strings.Replace(service("a", 80), "port: 80", "port: 0200000", 1), "",
			[]string{"spec.ports[0].port: 65536 is not a port number"}},
		{"an unknown field is named, and the object is used",
			service("a", 80) + "  clusterip: 10.96.0.2\n", "default/a:80",
			[]string{"stdin:9: document 1: Service default/a: spec.clusterip: ignored: unknown field"}},
		{"a missing name is named", "apiVersion: v1\nkind: Node\nmetadata: {}\n", "",
			[]string{"stdin:3: document 1: Node: metadata.name: the name is missing"}},
		{"a key that stands twice is named with its line, and the documents before and after are read",
			service("a", 80) + "---\n" + service("b", 80) + "spec: {}\n---\n" + service("c", 80), "default/a:80 default/c:80",
			[]string{`stdin:18: document 2: is not valid YAML: key "spec" already set in map`}},
		{"a key that stands twice in JSON is named",
			`{"apiVersion":"v1","kind":"Node","metadata":{"name":"a","name":"b"}}`, "node b",
			[]string{`metadata.name: duplicate field "metadata.name"`}},
		{"a syntax error is named with its line",
			"apiVersion: v1\nkind: Service\nmetadata:\n  name: a: b\n", "",
			[]string{"stdin:4: document 1: is not valid YAML: mapping values are not allowed in this context"}},
		{"text is no object", "hello\n", "", []string{"stdin:1: document 1: is not a Kubernetes object"}},
		{"items that are no list are named", "apiVersion: v1\nkind: List\nitems: 5\n", "", []string{"stdin:3: document 1: items: is not a list"}},
		{"a list in a list is named", "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: List\n", "",
			[]string{"stdin:5: document 1: kind: a list inside a list is not read"}},
		{"binary data is named", "apiVersion: v1\x00\x01", "", []string{"stdin: is not text: byte 0x00 at offset 14"}},
		{"what is not UTF-8 is named", "a: \xff\xfe", "", []string{"stdin: is not text: byte 0xff at offset 3"}},
		{"an alias that grows without bound is refused", bomb(), "", []string{"stdin:1: document 1: is not valid YAML: document contains excessive aliasing"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			objects, problems, err := ReadFiles([]string{"-"}, strings.NewReader(tc.text))
			if err != nil {
				t.Fatal(err)
			}
			if got := summary(objects); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			wantProblems(t, problems, tc.problems...)
		})
	}
}

// item indents a manifest as an item of a YAML list.
func item(manifest string) string {
	lines := strings.SplitAfter(strings.TrimSuffix(manifest, "\n"), "\n")
	return "- " + strings.Join(lines, "  ") + "\n"
}

// bomb is a YAML document of few bytes and a billion values.
func bomb() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x]\n")
	for i := 1; i < 9; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 9), ","))
	}
	return b.String()
}

func TestReadFilesKeepsMetadata(t *testing.T) {
	text := strings.Replace(service("a", 80), "  name: a\n",
		"  name: a\n  namespace: shop\n  resourceVersion: \"12\"\n  creationTimestamp: 2026-01-02T03:04:05Z\n", 1)
	objects, problems, err := ReadFiles([]string{"-"}, strings.NewReader(text))
	if err != nil || len(problems) > 0 || len(objects.Services) != 1 {
		t.Fatalf("got %d services, %v, %v", len(objects.Services), problems, err)
	}
	s := objects.Services[0]
	if s.Namespace != "shop" || s.ResourceVersion != "12" || s.CreationTimestamp.Format(time.RFC3339) != "2026-01-02T03:04:05Z" {
		t.Errorf("got %+v", s)
	}
}

func TestReadFilesOfPaths(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "b.yml"), service("b", 81))
	write(t, filepath.Join(dir, "a.yaml"), service("a", 80))
	write(t, filepath.Join(dir, "c.json"), `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}`)
	for _, other := range []string{".hidden.yaml", "a.yaml~", "#a.yaml", "notes.txt"} {
		write(t, filepath.Join(dir, other), service("z", 1))
	}
	if err := os.MkdirAll(filepath.Join(dir, "below.yaml"), 0o755); err != nil {
		t.Fatal(err)
	}
	huge := filepath.Join(t.TempDir(), "huge.yaml")
	write(t, huge, "")
	if err := os.Truncate(huge, maxFileSize+1); err != nil {
		t.Fatal(err)
	}

	t.Run("a folder stands for its manifests, and no other file of it", func(t *testing.T) {
		objects, problems, err := ReadFiles([]string{dir}, nil)
		if got := summary(objects); err != nil || len(problems) > 0 || got != "default/a:80 default/b:81 node n" {
			t.Errorf("got %q, %v, %v", got, problems, err)
		}
	})
	t.Run("paths are read in their order, and the first of a name counts", func(t *testing.T) {
		objects, problems, err := ReadFiles([]string{"-", filepath.Join(dir, "a.yaml")}, strings.NewReader(service("a", 9)))
		if got := summary(objects); err != nil || got != "default/a:9" {
			t.Errorf("got %q, %v", got, err)
		}
		wantProblems(t, problems, dir+"/a.yaml:1: document 1: Service default/a: ignored: the one of stdin:1 counts")
	})
	t.Run("a file that is too large is refused", func(t *testing.T) {
		_, problems, err := ReadFiles([]string{huge}, nil)
		if err != nil {
			t.Fatal(err)
		}
		wantProblems(t, problems, huge+": is larger than 64 MiB: split it into several files")
	})
	t.Run("a file of a folder that cannot be opened is named, and the others are read", func(t *testing.T) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "a.yaml"), service("a", 80))
		if err := os.Symlink("b.yaml", filepath.Join(dir, "b.yaml")); err != nil {
			t.Fatal(err)
		}
		objects, problems, err := ReadFiles([]string{dir}, nil)
		if got := summary(objects); err != nil || got != "default/a:80" {
			t.Errorf("got %q, %v", got, err)
		}
		wantProblems(t, problems, dir+"/b.yaml: cannot be read: too many levels of symbolic links")
	})
	t.Run("a path that is not there is an error", func(t *testing.T) {
		_, _, err := ReadFiles([]string{dir + "/none.yaml"}, nil)
		if err == nil || !strings.Contains(err.Error(), "none.yaml: no such file or directory") {
			t.Errorf("got %v", err)
		}
	})
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func FuzzManifests(f *testing.F) {
	for _, seed := range []string{"", service("a", 80), service("a", 70000), "---\n", "{", "{}{}", "- 1\n- 2\n",
		"apiVersion: v1\nkind: List\nitems:\n- null\n- {kind: Service, apiVersion: v1}\n", bomb(), "a: *b", "? {a: b}\n: c",
		"apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\nmetadata: {name: a}\nports: [{port: .nan}]\n",
		`{"apiVersion":"v1","kind":"Service","metadata":{"name":"\ud83d"}}`, "\xff", "%TAG ! x\n---\n!a b\n", "<<: {a: b}\n",
	} {
		f.Add([]byte(seed))
	}
	parse, err := newParser()
	if err != nil {
		f.Fatal(err)
	}
	prefix := []byte(service("first", 80) + "---\n")
	f.Fuzz(func(t *testing.T, data []byte) {
		if binary(data) >= 0 || bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) {
			if m := parse.parse("f", data); binary(data) >= 0 && !m.broken {
				t.Fatalf("binary data was read: %+v", m)
			}
			return
		}
		m := parse.parse("f", append(bytes.Clone(prefix), data...))
		if len(m.objects) == 0 || m.objects[0].Name.Name != "first" {
			t.Fatalf("the document before was lost: %v", m.problems)
		}
		for _, p := range m.problems {
			if strings.ContainsAny(p.Error(), "\n\r") || p.Message == "" || p.Line < 1 {
				t.Fatalf("not one line that says where and what: %q", p.Error())
			}
		}
		for _, o := range m.objects {
			if o.gone() || o.Name.Name == "" {
				t.Fatalf("an object that is none: %+v", o)
			}
		}
	})
}
