// SPDX-License-Identifier: Apache-2.0

package recorder

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/journal"
)

var (
	secretsKind  = journal.Kind{Version: "v1", Resource: "secrets", Kind: "Secret"}
	servicesKind = journal.Kind{Version: "v1", Resource: "services", Kind: "Service"}
)

// aSecret is what nobody may find. It is in use nowhere.
const aSecret = "zQ8vTr4wLx1mNp7s"

// lastApplied is a copy of the whole object, secrets included.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

type fields = map[string]any

// heard has states hear of an object in a version.
func heard(t *testing.T, s *states, version, data string) journal.Event {
	t.Helper()
	o, err := readObject(s.kind, fields{
		"metadata": fields{"namespace": "default", "name": "login", "uid": "u", "resourceVersion": version},
		"data":     fields{"password": data, "size": "1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	events, err := s.see(t.Context(), o, journal.Added, time.Now())
	if err != nil || len(events) != 1 {
		t.Fatal(events, err)
	}
	events[0].finish()
	return events[0].event
}

func TestThatASecretChangedIsSeenThoughNotHow(t *testing.T) {
	r := newBench(t)
	s := newStates(secretsKind, r.states.journal, &room{limit: contentRoom})
	for _, step := range []struct{ version, data, want string }{
		{"1", aSecret, ""},
		{"2", aSecret, ""},
		{"3", aSecret[1:] + "x", `replace /data/password "(left out, up to 16 bytes)"→"(left out, up to 16 bytes, changed in 3)"`},
		{"4", aSecret[1:] + "x", ""},
		{"5", aSecret + aSecret, `replace /data/password "(left out, up to 16 bytes, changed in 3)"→"(left out, up to 64 bytes, changed in 5)"`},
	} {
		if got := diffText(heard(t, s, step.version, step.data)); got != step.want {
			t.Errorf("version %s: %q, want %q", step.version, got, step.want)
		}
	}
	t.Run("another run, which cannot compare, does not say that it changed", func(t *testing.T) {
		e := heard(t, s, "6", aSecret+aSecret)
		if err := r.states.journal.Append(t.Context(), []journal.Event{e}); err != nil {
			t.Fatal(err)
		}
		again := newStates(secretsKind, r.states.journal, &room{limit: contentRoom})
		if err := again.recall(t.Context(), func(string) bool { return true }); err != nil {
			t.Fatal(err)
		}
		if got := diffText(heard(t, again, "7", aSecret+aSecret[1:])); got != "" {
			t.Error(got)
		}
	})
	r.end(t)
}

// secretEvents are those of a Secret that comes and changes, with more in it than
// a Secret has.
func secretEvents(t *testing.T, s *states, key, mark, encoded, more string) (all []stored) {
	t.Helper()
	for version, data := range []string{encoded, encoded + "AAAA"} {
		o, err := readObject(secretsKind, fields{
			"metadata": fields{
				"name": "x", "uid": "u", "resourceVersion": fmt.Sprint(version), "annotations": fields{lastApplied: mark, "more": more},
				"managedFields": []any{fields{"manager": "m", "fieldsV1": fields{"v:" + mark: fields{}}}},
			},
			"data": fields{key: data}, "stringData": fields{key: mark, "x": []any{mark}},
		})
		if err != nil {
			t.Fatal(err)
		}
		events, err := s.see(t.Context(), o, journal.Added, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, events...)
	}
	return all
}

// FuzzSecretsStayOut holds that no part of a Secret's value is in its events,
// whatever else is in the object.
func FuzzSecretsStayOut(f *testing.F) {
	f.Add("password", "hunter2-hunter2", "kubectl apply")
	f.Add("", "(left out, up to 16 bytes)", "token: x")
	f.Add("labels", "\x00\xff<&>\u2028", "eyJ.eyJ.")
	f.Fuzz(func(t *testing.T, key, value, more string) {
		mark := "Zq9-" + base64.RawURLEncoding.EncodeToString([]byte(value)) + "-9qZ"
		encoded := base64.StdEncoding.EncodeToString([]byte(mark))
		if strings.Contains(key+more, mark) || strings.Contains(key+more, encoded) {
			return // it would be found where it is no secret
		}
		for _, e := range secretEvents(t, newStates(secretsKind, nil, &room{limit: contentRoom}), key, mark, encoded, more) {
			e.finish()
			text, err := json.Marshal(e.event)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), mark) || strings.Contains(string(text), encoded) {
				t.Errorf("%s", text)
			}
		}
	})
}

func TestNoSecretIsInAJournalsFiles(t *testing.T) {
	r := newBench(t)
	s := newStates(secretsKind, r.states.journal, &room{limit: contentRoom})
	for _, e := range secretEvents(t, s, "password", aSecret, base64.StdEncoding.EncodeToString([]byte(aSecret)), "more") {
		r.sink.put(t.Context(), item{stored: e})
	}
	r.end(t)
	stays(t, r.path, aSecret, base64.StdEncoding.EncodeToString([]byte(aSecret)))
}

// stays says whether a text is in none of a journal's files.
func stays(t *testing.T, path string, texts ...string) {
	t.Helper()
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range texts {
			if bytes.Contains(content, []byte(text)) {
				t.Errorf("%q is in %s", text, filepath.Base(file))
			}
		}
	}
}
