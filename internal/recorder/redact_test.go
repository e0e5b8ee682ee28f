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
	secretsKind    = journal.Kind{Version: "v1", Resource: "secrets", Kind: "Secret"}
	configMapsKind = journal.Kind{Version: "v1", Resource: "configmaps", Kind: "ConfigMap"}
	podsKind       = journal.Kind{Version: "v1", Resource: "pods", Kind: "Pod"}
	servicesKind   = journal.Kind{Version: "v1", Resource: "services", Kind: "Service"}
)

// aKey, aToken and aSecret are what nobody may find. None is in use anywhere.
const (
	aSecret = "zQ8vTr4wLx1mNp7s"
	aKey    = "-----BEGIN EC PRIVATE KEY-----\n" + aSecret + "\n-----END EC PRIVATE KEY-----"
	aToken  = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ6UTh2VHI0d0x4MW1OcDdzIn0." + aSecret
	random  = "Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4z" + aSecret
)

// redacted returns what is kept of an object.
func redacted(t *testing.T, kind journal.Kind, object any) string {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	fields, err := decodeObject(text)
	if err != nil {
		t.Fatal(err)
	}
	newRedactor().object(kind, "1", fields, nil)
	return string(journal.Encode(fields))
}

type fields = map[string]any

func TestWhatMustNotBeKnownIsLeftOut(t *testing.T) {
	encoded := base64.StdEncoding.EncodeToString([]byte(aSecret))
	container := func(with fields) fields { return fields{"spec": fields{"containers": []fields{with}}} }
	for name, c := range map[string]struct {
		kind   journal.Kind
		object fields
	}{
		"the data of a Secret, whatever it is called":     {secretsKind, fields{"data": fields{"harmless": encoded, "n": encoded}}},
		"the stringData of a Secret":                      {secretsKind, fields{"stringData": fields{"x": aSecret}}},
		"a ConfigMap's value by its name":                 {configMapsKind, fields{"data": fields{"db.password": aSecret}}},
		"a ConfigMap's file by its name":                  {configMapsKind, fields{"data": fields{"tls.key": aSecret}}},
		"a ConfigMap's certificate":                       {configMapsKind, fields{"data": fields{"x": "-----BEGIN CERTIFICATE-----\n" + aSecret}}},
		"a ConfigMap's binary data":                       {configMapsKind, fields{"binaryData": fields{"keystore.jks": encoded}}},
		"a setting within a ConfigMap's file":             {configMapsKind, fields{"data": fields{"app.conf": "host = a\n password = " + aSecret}}},
		"a kubeconfig in a ConfigMap":                     {configMapsKind, fields{"data": fields{"kubeconfig": "users:\n- name: a\n  user:\n    token: " + aSecret}}},
		"JSON in a ConfigMap":                             {configMapsKind, fields{"data": fields{"a.json": `{"a":1,"clientSecret":"` + aSecret + `"}`}}},
		"what chance made in a ConfigMap":                 {configMapsKind, fields{"data": fields{"x": random}}},
		"an environment by its name":                      {podsKind, container(fields{"env": []fields{{"name": "DB_PASS", "value": aSecret}}})},
		"an environment that chance made":                 {podsKind, container(fields{"env": []fields{{"name": "X", "value": random}}})},
		"an argument with its value":                      {podsKind, container(fields{"args": []string{"--password=" + aSecret}})},
		"an argument behind its flag":                     {podsKind, container(fields{"args": []string{"--token", aSecret}})},
		"an argument behind its flag that looks like one": {podsKind, container(fields{"command": []string{"x", "--token", "-" + aSecret}})},
		"a URL with a password, in any kind":              {servicesKind, fields{"spec": fields{"externalName": "https://user:" + aSecret + "@host/path"}}},
		"a bearer token, in any kind":                     {servicesKind, fields{"status": fields{"message": "sent Authorization: Bearer " + aSecret}}},
		"a web token, in any kind":                        {servicesKind, fields{"status": fields{"message": "got " + aToken}}},
		"a private key, in any kind":                      {servicesKind, fields{"spec": fields{"x": aKey}}},
		"a private key in base64, in any kind":            {servicesKind, fields{"spec": fields{"x": base64.StdEncoding.EncodeToString([]byte(aKey))}}},
		"a field by its name, in any kind":                {servicesKind, fields{"spec": fields{"sharedSecret": aSecret}}},
		"a list by its name, in any kind":                 {servicesKind, fields{"spec": fields{"passwords": []string{"a", aSecret}}}},
		"an annotation by its name":                       {servicesKind, fields{"metadata": fields{"annotations": fields{"x.io/auth-token": aSecret}}}},
		"the copy that kubectl apply makes":               {secretsKind, fields{"metadata": fields{"annotations": fields{lastApplied: aSecret}}}},
		"a ConfigMap's key that is called labels":         {configMapsKind, fields{"data": fields{"labels": "password=" + aSecret}}},
	} {
		t.Run(name, func(t *testing.T) {
			got := redacted(t, c.kind, c.object)
			for _, secret := range []string{aSecret, encoded, base64.StdEncoding.EncodeToString([]byte(aKey))[:40]} {
				if strings.Contains(got, secret) {
					t.Error(got)
				}
			}
		})
	}
}

func TestWhatPeopleNeedStays(t *testing.T) {
	for name, c := range map[string]struct {
		kind   journal.Kind
		object fields
	}{
		"the names in a Secret":              {secretsKind, fields{"type": "kubernetes.io/tls", "metadata": fields{"name": "login-token", "namespace": "secrets"}}},
		"references to Secrets":              {podsKind, fields{"spec": fields{"volumes": []fields{{"secret": fields{"secretName": "login"}}}, "env": []fields{{"name": "PASSWORD", "valueFrom": fields{"secretKeyRef": fields{"name": "login", "key": "password"}}}}}}},
		"where a token is":                   {podsKind, fields{"spec": fields{"x": []fields{{"name": "TOKEN_FILE", "value": "/var/run/token"}}, "args": []string{"--token-auth-file=/etc/tokens.csv"}}}},
		"what roles name":                    {servicesKind, fields{"rules": []fields{{"resources": []string{"secrets", "tokenreviews"}, "verbs": []string{"get"}}}, "subjects": []fields{{"kind": "User", "name": "system:controller:token-cleaner"}}}},
		"labels and selectors":               {servicesKind, fields{"metadata": fields{"labels": fields{"token": "blue"}}, "spec": fields{"selector": fields{"secret-store": "vault"}}}},
		"what a certificate authority signs": {servicesKind, fields{"webhooks": []fields{{"clientConfig": fields{"caBundle": base64.StdEncoding.EncodeToString([]byte("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"))}}}}},
		"times, addresses, digests":          {podsKind, fields{"status": fields{"startTime": "2026-11-20T10:00:00Z", "podIP": "fd00::1", "imageID": "docker.io/x@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"}}},
		"settings of a ConfigMap":            {configMapsKind, fields{"data": fields{"mode": "iptables", "Corefile": ".:53 {\n  errors\n  kubernetes cluster.local in-addr.arpa ip6.arpa {\n    ttl 30\n  }\n}\n"}}},
		"a switch with a secret's name":      {podsKind, fields{"spec": fields{"args": []string{"--enable-bootstrap-token-auth=true"}, "automountServiceAccountToken": true}}},
		"an EndpointSlice":                   {slicesKind, fields{"endpoints": []fields{{"addresses": []string{"10.0.0.1"}, "targetRef": fields{"name": "web-5d9c7b8f4-x7kzq", "uid": "0c5e9f5e-6d4e-4b4a-8f51-6a4f5a3b2c1d"}}}}},
		"the holder of a Lease":              {servicesKind, fields{"spec": fields{"holderIdentity": "kube-apiserver-qwe7_0c5e9f5e-6d4e-4b4a-8f51-6a4f5a3b2c1d"}}},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := json.Marshal(c.object)
			if err != nil {
				t.Fatal(err)
			}
			whole, err := decodeObject(text)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := redacted(t, c.kind, c.object), string(journal.Encode(whole)); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}

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

// FuzzSecretText holds that nothing makes it fail, and that a token is found
// wherever it stands.
func FuzzSecretText(f *testing.F) {
	for _, text := range []string{"", "a:b", "password=", "://u:p@h", "bearer ", "eyJ.", "LS0tLS1CRUdJTiA", "\"token\"", "="} {
		f.Add(text, text)
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		secretDocument(before + after)
		if !secretText(before + " bearer " + aSecret + " " + after) {
			t.Errorf("%q, %q", before, after)
		}
	})
}
