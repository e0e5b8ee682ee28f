// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
)

// kind is whose objects they are.
type kind struct{ group, resource string }

var (
	secretsKind    = kind{resource: "secrets"}
	configMapsKind = kind{resource: "configmaps"}
	podsKind       = kind{resource: "pods"}
	servicesKind   = kind{resource: "services"}
	slicesKind     = kind{"discovery.k8s.io", "endpointslices"}
	thingsKind     = kind{"example.org", "things"}
)

// aKey, aToken and aSecret are what nobody may find. None is in use anywhere.
const (
	aSecret = "zQ8vTr4wLx1mNp7s"
	aKey    = "-----BEGIN EC PRIVATE KEY-----\n" + aSecret + "\n-----END EC PRIVATE KEY-----"
	aToken  = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ6UTh2VHI0d0x4MW1OcDdzIn0." + aSecret
	random  = "Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4z" + aSecret
)

type fields = map[string]any

// encode writes an object with its keys in one order.
func encode(t *testing.T, object any) string {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// decoded is an object as one that was read from JSON.
func decoded(t *testing.T, object any) fields {
	t.Helper()
	var out fields
	if err := json.Unmarshal([]byte(encode(t, object)), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// redacted returns what is kept of an object.
func redacted(t *testing.T, k kind, object any) string {
	t.Helper()
	out := decoded(t, object)
	New().Object(k.group, k.resource, "1", out, nil)
	return encode(t, out)
}

func TestWhatMustNotBeKnownIsLeftOut(t *testing.T) {
	encoded := base64.StdEncoding.EncodeToString([]byte(aSecret))
	container := func(with fields) fields { return fields{"spec": fields{"containers": []fields{with}}} }
	for name, c := range map[string]struct {
		kind   kind
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
		kind   kind
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
			if got, want := redacted(t, c.kind, c.object), encode(t, decoded(t, c.object)); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
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
