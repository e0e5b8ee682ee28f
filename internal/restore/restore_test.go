// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/helm"
	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/redact"
)

// refusals writes what is wanted, one line an object, with why it is refused.
func texts(w *Wanted) (lines []string) {
	for _, o := range w.Objects {
		line := reference(o.GetKind(), o.GetNamespace(), o.GetName())
		if o.Refused != "" {
			line += ": " + o.Refused
		}
		lines = append(lines, line)
	}
	return lines
}

func TestManifests(t *testing.T) {
	const object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop}\n"
	for name, c := range map[string]struct {
		text string
		want []string // or the end of the error
	}{
		"one":                    {object, []string{"ConfigMap shop/a"}},
		"several and empty ones": {"---\n" + object + "---\n# nothing\n---\n" + strings.ReplaceAll(object, "a,", "b,"), []string{"ConfigMap shop/a", "ConfigMap shop/b"}},
		"JSON":                   {`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`, []string{"ConfigMap a"}},
		"a list": {`{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}]}`,
			[]string{"ConfigMap a"}},
		"a list in a list": {"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMapList, items: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}]}\n",
			[]string{"ConfigMap a"}},
		"an empty list":      {`{"apiVersion":"v1","kind":"List","items":[]}`, nil},
		"nothing":            {"", nil},
		"a hook":             {strings.Replace(object, "name: a", "name: a, annotations: {helm.sh/hook: pre-install}", 1), nil},
		"without a name":     {"apiVersion: v1\nkind: ConfigMap\n", []string{"ConfigMap : it has no name"}},
		"generateName":       {"apiVersion: v1\nkind: Pod\nmetadata: {generateName: a-}\n", []string{"Pod : it has no name, only generateName a-: who makes it again makes another one; use kubectl create"}},
		"a Job":              {"apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\n", []string{"Job a: a Job would run once more: if that is meant, use kubectl create"}},
		"a values file":      {"password: hunter2\n", []string{"document 1 of stdin: it has no apiVersion and kind: is it a chart's template, or a values file?"}},
		"a template":         {object + "---\n{{ if .Values.hunter2 }}\n", []string{"document 2 of stdin: it is neither YAML nor JSON"}},
		"a list of hunter2":  {`{"apiVersion":"v1","kind":"List","items":["hunter2"]}`, []string{"document 1 of stdin: item 0 of the list is no object"}},
		"a kind that is odd": {`{"apiVersion":7,"kind":["hunter2"]}`, []string{"is it a chart's template, or a values file?"}},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := FromManifests([]string{"-"}, strings.NewReader(c.text), "default")
			if err != nil {
				if len(c.want) != 1 || !strings.HasSuffix(err.Error(), c.want[0]) || strings.Contains(err.Error(), "hunter2") {
					t.Errorf("error %v, want %q", err, c.want)
				}
				return
			}
			if have := texts(w); !slices.Equal(have, c.want) {
				t.Errorf("have %q, want %q", have, c.want)
			}
		})
	}
}

func TestManifestsOfFolders(t *testing.T) {
	dir := t.TempDir()
	for file, name := range map[string]string{"a.yaml": "a", "deep/er/b.yml": "b", "c.json": "c", ".hidden.yaml": "d", "notes.txt": "e"} {
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q}}`, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w, err := FromManifests([]string{dir}, nil, "default")
	if err != nil || !slices.Equal(texts(w), []string{"ConfigMap a", "ConfigMap c", "ConfigMap b"}) {
		t.Errorf("have %q, error %v", texts(w), err)
	}
	for _, path := range []string{filepath.Join(dir, "absent"), t.TempDir()} {
		if _, err := FromManifests([]string{path}, nil, "default"); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v", path, err)
		}
	}
}

func TestAReleaseIsMarkedAsHelmDoes(t *testing.T) {
	w, err := FromRelease(&helm.Release{
		Namespace: "eu", Name: "shop", Revision: 3, Status: "deployed", Chart: "web", ChartVersion: "1",
		Manifest:    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {app: web}}\n",
		Definitions: "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: b}\n",
		Hooks:       []string{"Job migrate"},
	})
	if err != nil {
		t.Fatal(err)
	}
	definition, config := w.Objects[0], w.Objects[1]
	if len(definition.GetLabels())+len(definition.GetAnnotations()) != 0 {
		t.Errorf("Helm does not mark definitions: %v", definition.Object)
	}
	if l := config.GetLabels(); l["app"] != "web" || l["app.kubernetes.io/managed-by"] != "Helm" {
		t.Errorf("labels = %v", l)
	}
	if a := config.GetAnnotations(); a["meta.helm.sh/release-name"] != "shop" || a["meta.helm.sh/release-namespace"] != "eu" {
		t.Errorf("annotations = %v", a)
	}
	if w.Source != "Helm release eu/shop, revision 3 (web 1, deployed)" || len(w.LeftOut) != 1 || !strings.HasPrefix(w.LeftOut[0], "Job migrate: ") {
		t.Errorf("source %q, left out %q", w.Source, w.LeftOut)
	}
}

// at is the n-th minute of a recording.
func at(n int) time.Time { return time.Date(2026, 1, 2, 15, n, 0, 0, time.UTC) }

func event(n int, what journal.Type, kind journal.Kind, namespace, name, content string) journal.Event {
	return journal.Event{Time: at(n), Type: what, Kind: kind, Namespace: namespace, Name: name, UID: name, Content: json.RawMessage(content)}
}

func TestAJournalTellsWhatWasThere(t *testing.T) {
	role := journal.Kind{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles", Kind: "ClusterRole"}
	secret := journal.Kind{Version: "v1", Resource: "secrets", Kind: "Secret"}
	lease := journal.Kind{Group: "coordination.k8s.io", Version: "v1", Resource: "leases", Kind: "Lease"}
	content := func(kind journal.Kind, name, more string) string {
		version := strings.TrimPrefix(kind.Group+"/"+kind.Version, "/")
		return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"uid":"u","creationTimestamp":"2026-01-01T00:00:00Z"}%s}`, version, kind.Kind, name, more)
	}
	path := filepath.Join(t.TempDir(), "journal.db")
	j, err := journal.Create(path, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	err = j.Append(t.Context(), []journal.Event{
		event(1, journal.Listed, role, "", "stays", content(role, "stays", "")),
		event(1, journal.Listed, role, "", "goes", content(role, "goes", `,"rules":[{"verbs":["get"]}]`)),
		event(2, journal.Added, secret, "shop", "database", content(secret, "database", `,"data":{"password":"(left out, up to 16 bytes)"}`)),
		event(2, journal.Added, lease, "shop", "leader", content(lease, "leader", "")),
		event(3, journal.Modified, role, "", "goes", content(role, "goes", `,"rules":[{"verbs":["list"]}]`)),
		event(5, journal.Deleted, role, "", "goes", content(role, "goes", `,"rules":[{"verbs":["list"]}]`)),
		event(6, journal.Absent, role, "", "stays", content(role, "stays", "")),
	})
	if err != nil {
		t.Fatal(err)
	}
	const noSecret = "Secret database: it cannot be restored from a journal, which has no secrets: /data/password was left out; take it from a Helm release or a manifest"
	for _, c := range []struct {
		at        int
		namespace string
		want      []string
		verb      string // of the role that goes
	}{
		{0, "", nil, ""},
		{1, "", []string{"ClusterRole goes", "ClusterRole stays"}, "get"},
		{4, "", []string{noSecret, "ClusterRole goes", "ClusterRole stays"}, "list"},
		{4, "shop", []string{noSecret}, ""},
		{5, "", []string{noSecret, "ClusterRole stays"}, ""},
		{7, "", []string{noSecret}, ""},
	} {
		w, err := FromJournal(context.Background(), j, at(c.at), c.namespace)
		if err != nil {
			t.Fatal(err)
		}
		if have := texts(w); !slices.Equal(have, c.want) {
			t.Errorf("minute %d: have %q, want %q", c.at, have, c.want)
		}
		for _, o := range w.Objects {
			if o.GetUID() != "" || !o.GetCreationTimestamp().Time.IsZero() {
				t.Errorf("%s has fields of its former life: %v", o.GetName(), o.Object)
			}
			if rules, _, _ := unstructured.NestedSlice(o.Object, "rules"); o.GetName() == "goes" && !strings.Contains(fmt.Sprint(rules), c.verb) {
				t.Errorf("minute %d: rules %v, want %s", c.at, rules, c.verb)
			}
		}
		if c.at == 7 && (len(w.LeftOut) != 1 || w.LeftOut[0] != "1 objects of kind Lease: what runs makes them itself") {
			t.Errorf("left out %q", w.LeftOut)
		}
	}
}

func TestWithoutTakesSecretsOutAndNothingElse(t *testing.T) {
	for _, c := range []struct{ object, want string }{
		{`{"data":{"a":"(left out, x)","b":"c"}}`, `{"data":{"b":"c"}}`},
		{`{"env":[{"name":"A","value":"(left out, x)"},{"name":"B","value":"c"}]}`, `{"env":[{"name":"A"},{"name":"B","value":"c"}]}`},
		{`{"args":["--password","(left out, x)"],"image":"a"}`, `{"image":"a"}`},
		{`{"list":[{"token":"(left out, x)","a":"b"}]}`, `{"list":[{"a":"b"}]}`},
		{`{"a":"b"}`, `{"a":"b"}`},
	} {
		var object map[string]any
		if err := json.Unmarshal([]byte(c.object), &object); err != nil {
			t.Fatal(err)
		}
		for place := range redact.New().LeftIn(object) {
			object = without(object, strings.Split(place, "\x00")).(map[string]any)
		}
		if have, _ := json.Marshal(object); string(have) != c.want {
			t.Errorf("%s: have %s, want %s", c.object, have, c.want)
		}
	}
}

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

func TestDifferences(t *testing.T) {
	roles := schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}
	secrets := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	for name, c := range map[string]struct {
		at            schema.GroupVersionResource
		live, applied string
		want          []string
	}{
		"none":                 {roles, `{"rules":[{"verbs":["get"]}]}`, `{"rules":[{"verbs":["get"]}]}`, nil},
		"what a server writes": {roles, `{"metadata":{"uid":"a","generation":1},"status":{"a":1}}`, `{"metadata":{"uid":"b","generation":2},"status":{"a":2}}`, nil},
		"a verb":               {roles, `{"rules":[{"verbs":["get"]}]}`, `{"rules":[{"verbs":["get","list"]}]}`, []string{`/rules/0/verbs: ["get"] ["get","list"]`}},
		"a rule":               {roles, `{"rules":[]}`, `{"rules":[{"verbs":["get"]}]}`, []string{`/rules: [] [{"verbs":["get"]}]`}},
		"a field":              {roles, `{"a/b":{}}`, `{"a/b":{"c~d":1}}`, []string{`/a~1b/c~0d: nothing 1`}},
		"a value of a Secret": {secrets, `{"data":{"password":"aHVudGVyMQ==","user":"YQ=="}}`, `{"data":{"password":"aHVudGVyMg==","user":"YQ=="}}`,
			[]string{`/data/password: "(left out, up to 16 bytes)" "(left out, up to 16 bytes, changed in the release)"`}},
	} {
		t.Run(name, func(t *testing.T) {
			var have []string
			for _, d := range differences(redact.New(), c.at, object(t, c.live), object(t, c.applied), "release") {
				live, wanted := d.Texts()
				have = append(have, d.Path+": "+live+" "+wanted)
			}
			if !slices.Equal(have, c.want) {
				t.Errorf("have %q, want %q", have, c.want)
			}
		})
	}
}

// values draws what JSON has.
func values(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		switch kind := rapid.IntRange(0, 4).Draw(t, "kind"); {
		case kind == 0 && depth > 0:
			return rapid.MapOfN(rapid.StringMatching("[a-d]"), values(depth-1), 0, 4).Draw(t, "map")
		case kind == 1 && depth > 0:
			return rapid.SliceOfN(values(depth-1), 0, 3).Draw(t, "list")
		case kind == 2:
			return rapid.Bool().Draw(t, "bool")
		}
		return rapid.StringMatching("[xyz]").Draw(t, "text")
	})
}

// TestAnOverlaySaysAllThatIsWanted: no field that is wanted differs from what an
// overlay has, one that is laid over itself differs in nothing, and once more
// changes nothing.
func TestAnOverlaySaysAllThatIsWanted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		live, wanted := values(3).Draw(t, "live"), values(3).Draw(t, "wanted")
		once := overlaid(copied(live), wanted)
		var again, itself differ
		again.values("", once, overlaid(copied(once), wanted))
		itself.values("", live, overlaid(copied(live), live))
		if len(again.found)+len(itself.found) > 0 {
			t.Errorf("once more: %v, itself: %v", again.found, itself.found)
		}
	})
}

func copied(value any) any {
	return (&unstructured.Unstructured{Object: map[string]any{"value": value}}).DeepCopy().Object["value"]
}

func TestOfARefusalNoValueIsTold(t *testing.T) {
	for message, want := range map[string]string{
		`Invalid value: "hunter2": must be short`:                      "Invalid value: must be short",
		`Invalid value: "hun\"ter2: x": must be short`:                 "Invalid value: must be short",
		`Invalid value: {"env":[{"value":"hunter2: }"}]}: it is fixed`: "Invalid value: it is fixed",
		"Invalid value: core.Spec{A:\"hunter2\",\nB:1}: it is fixed":   "Invalid value: it is fixed",
		`Invalid value: 4711: must be less`:                            "Invalid value: must be less",
		`Invalid value: ["hunter2"]: it is taken`:                      "Invalid value: it is taken",
		`Invalid value: [hunter2`:                                      "Invalid value",
		`Invalid value: "hunter2`:                                      "Invalid value",
		`Not found: "hunter2"`:                                         "Not found",
		`Duplicate value: "hunter2"`:                                   "Duplicate value",
		`Unsupported value: "hunter2": supported values: "A", "B"`:     `Unsupported value: supported values: "A", "B"`,
		"Forbidden: this may not change\n core.Spec{A: \"hunter2\"}":   "Forbidden: this may not change",
		"Required value: it must have a name":                          "Required value: it must have a name",
		"Required value":                                               "Required value",
		"ports[0].port must be set":                                    "ports[0].port must be set",
	} {
		if have := withoutValue(message); have != want {
			t.Errorf("of %s\n%s, want\n%s", message, have, want)
		}
	}
}

func TestFilters(t *testing.T) {
	for text, want := range map[string]Filter{"ClusterRoles": {"clusterroles", ""}, "clusterrole/cilium": {"clusterrole", "cilium"}, "rbac": {"rbac", ""}} {
		if have, err := ParseFilter(text); err != nil || have != want {
			t.Errorf("%s: %v, error %v", text, have, err)
		}
	}
	for _, text := range []string{"", "/a", "a/", "a/b/c"} {
		if _, err := ParseFilter(text); err == nil {
			t.Errorf("%q is a filter", text)
		}
	}
	names := []string{"deployment", "deployments", "deploy"}
	for f, want := range map[Filter]bool{
		{"deploy", ""}: true, {"deployments.apps", ""}: true, {"deployment", "web"}: true,
		{"deployments.extensions", ""}: false, {"deployment", "shop"}: false, {"rbac", ""}: false, {"pods", ""}: false,
	} {
		if have := f.picks(names, "apps", "web"); have != want {
			t.Errorf("%s picks: %t", f, have)
		}
	}
}

// FuzzManifests has any text be read: it never panics, and an error quotes none
// of it.
func FuzzManifests(f *testing.F) {
	f.Add([]byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"))
	f.Add([]byte(`{"apiVersion":"v1","kind":"List","items":[{"kind":"hunter2-hunter2"}]}`))
	f.Add([]byte("---\n- hunter2-hunter2\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		w, err := FromManifests([]string{"-"}, strings.NewReader(string(text)), "default")
		if err != nil {
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error quotes what it could not read: %v", err)
			}
			return
		}
		for _, o := range w.Objects {
			if o.GetKind() == "" || o.GetAPIVersion() == "" || o.GetName() == "" && o.Refused == "" {
				t.Errorf("an object that nobody can ask for: %v", o.Object)
			}
		}
	})
}

func TestTextsOfADifference(t *testing.T) {
	verbs := func(v string) any { return map[string]any{"verbs": v} }
	for name, tt := range map[string]struct {
		live, wanted         any
		liveText, wantedText string
	}{
		"values":                            {"a", int64(2), `"a"`, "2"},
		"what is not set":                   {nil, "a", "nothing", `"a"`},
		"words, which are short":            {[]any{"a", "c"}, []any{"b", "a", "c"}, `["a","c"]`, `["b","a","c"]`},
		"a role lacks a rule":               {[]any{verbs("get")}, []any{verbs("get"), verbs("list")}, "[…]", `[…,{"verbs":"list"}]`},
		"a role lacks rules here and there": {[]any{verbs("get"), verbs("list")}, []any{verbs("watch"), verbs("get"), verbs("list"), verbs("patch")}, "[…]", `[…,{"verbs":"watch"},{"verbs":"patch"}]`},
		"a rule twice":                      {[]any{verbs("get"), verbs("get")}, []any{verbs("get")}, `[…,{"verbs":"get"}]`, "[…]"},
		"the same rules in another order":   {[]any{verbs("get"), verbs("list")}, []any{verbs("list"), verbs("get")}, `[{"verbs":"get"},{"verbs":"list"}]`, `[{"verbs":"list"},{"verbs":"get"}]`},
		"no rule in common":                 {[]any{verbs("get")}, []any{verbs("list"), verbs("watch")}, `[{"verbs":"get"}]`, `[{"verbs":"list"},{"verbs":"watch"}]`},
		"no rules":                          {[]any{}, []any{verbs("get")}, "[]", `[{"verbs":"get"}]`},
		"a list where something else stood": {"a", []any{"a"}, `"a"`, `["a"]`},
	} {
		t.Run(name, func(t *testing.T) {
			if live, wanted := (Difference{Live: tt.live, Wanted: tt.wanted}).Texts(); live != tt.liveText || wanted != tt.wantedText {
				t.Errorf("live %s, wanted %s", live, wanted)
			}
		})
	}
}
