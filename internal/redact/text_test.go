// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func encoded(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func TestText(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"a bearer token", "GET /api Authorization: Bearer " + aSecret + " 403", "GET /api Authorization: (left out) (left out) 403"},
		{"a web token", "got token " + aToken + " from x", "got token (left out) from x"},
		{"a web token in quotes", `{"msg":"x","got":"` + aToken + `"}`, `{"msg":"x","got":"(left out)"}`},
		{"a URL with a password", "dial postgres://app:" + aSecret + "@db:5432/app failed", "dial postgres://(left out)@db:5432/app failed"},
		{"a URL with a password with an @", "dial postgres://app:p@" + aSecret + "@db:5432/app failed", "dial postgres://(left out)@db:5432/app failed"},
		{"a setting", "level=info password=" + aSecret + " user=x", "level=info password=(left out) user=x"},
		{"a setting in quotes, with spaces", `level=info password="a ` + aSecret + ` b" user=x`, `level=info password="(left out)" user=x`},
		{"a setting in JSON", `{"client_secret": "` + aSecret + `", "n": 1}`, `{"client_secret": "(left out)", "n": 1}`},
		{"a setting in JSON within JSON", `{"body":"{\"password\":\"` + aSecret + `\",\"n\":1}"}`, `{"body":"{\"password\":\"(left out)\",\"n\":1}"}`},
		{"a quote within the value", `password="a\"` + aSecret + `" x`, `password="(left out)" x`},
		{"a value whose quote never ends", `password="` + aSecret, `password="(left out)`},
		{"two on one line", "token: " + aSecret + " secret=" + aSecret + ", x", "token: (left out) secret=(left out), x"},
		{"a flag and its value", "exec mysql --password " + aSecret + " -h db", "exec mysql --password (left out) -h db"},
		{"curl's login", "curl -u admin:" + aSecret + " http://x", "curl -u (left out) http://x"},
		{"a login of HTTP", "authorization header: Basic " + encoded("u:"+aSecret), "authorization header: Basic (left out)"},
		{"a field of a kubeconfig", "    client-key-data: " + encoded(aKey), "    client-key-data: (left out)"},
		{"a key's value in the next line", "password:\n  " + aSecret + "\nnext: 1", "password:\n  (left out)\nnext: 1"},
		{"a private key", "before\n" + aKey + "\nafter.", "before\n(left out)\nafter."},
		{"a private key behind the times of a log", "2026-01-03T12:00:00Z x -----BEGIN RSA PRIVATE KEY-----\n2026-01-03T12:00:00Z " + aSecret + "\n2026-01-03T12:00:00Z -----END RSA PRIVATE KEY-----\n2026-01-03T12:00:00Z on.", "2026-01-03T12:00:00Z x (left out)\n2026-01-03T12:00:00Z on."},
		{"a private key that never ends", "-----BEGIN PRIVATE KEY-----\n" + aSecret + "\n" + aSecret + "\nI0103 12:00:00.1 goes on: 1", "(left out)\nI0103 12:00:00.1 goes on: 1"},
		{"a private key in one line", `{"k":"-----BEGIN PRIVATE KEY-----\n` + aSecret + `\n-----END PRIVATE KEY-----\n","n":1}`, `{"k":"(left out)\n","n":1}`},
		{"a private key in base64", "ca " + encoded(aKey) + " x", "ca (left out) x"},
		{"a token of GitHub, of which nothing but the line's length is left", "clone with ghp_" + aSecret + aSecret, "(left out, up to 64 bytes)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Text(tt.text)
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
			if strings.Contains(got, aSecret) {
				t.Errorf("the secret is in %q", got)
			}
			if again := Text(got); again != got {
				t.Errorf("once more it is %q", again)
			}
		})
	}
}

func TestTextThatPeopleNeedStays(t *testing.T) {
	for _, text := range []string{
		`E0103 12:00:00.123456       1 reflector.go:204] "Failed to watch" err="failed to list *v1.Service: services is forbidden: User \"system:serviceaccount:kube-system:cilium\" cannot list resource \"services\" in API group \"\" at the cluster scope"`,
		`level=error msg="Unable to contact k8s api-server" error="Get \"https://10.15.1.8:443/api/v1/namespaces/kube-system\": dial tcp 10.15.1.8:443: connect: operation not permitted" subsys=k8s-client`,
		"panic: dial tcp 10.254.0.1:443: i/o timeout",
		`secrets "login" is forbidden: User "system:node:n1" cannot get resource "secrets"`,
		"3098       Enabled            Enabled           5          reserved:init                                    10.0.1.119   ready",
		"Unauthorized",
		"k8s:io.cilium.k8s.policy.serviceaccount=token-operator",
		"bpf-lb-sock-hostns-only: false\nservice-account-token-file: /var/run/secrets/token",
		"a certificate:\n-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
		"",
		"\r\n\n",
	} {
		if got := Text(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func TestTokensLeavesTablesWhole(t *testing.T) {
	for _, text := range []string{
		`-A KUBE-SERVICES -d 10.0.0.1/32 -p tcp -m comment --comment "shop/auth-token:http cluster IP" -m tcp --dport 80 -j KUBE-SVC-X`,
		"auth-token 10.0.0.1:80",
		"shop/secret-store   k8s   token=443   Cluster",
	} {
		if got := Tokens(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
	if got := Tokens("x " + aToken); strings.Contains(got, aToken) {
		t.Error(got)
	}
}

func TestObjectsOfAnyForm(t *testing.T) {
	secret := `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"data":{"motto":"` + encoded(word) + `"}}`
	settings := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"x":"` + random + `"}}`
	tests := []struct{ name, text, mark string }{
		{"a Secret", secret, encoded(word)},
		{"a Secret in a List", `{"kind":"List","items":[` + secret + `]}`, encoded(word)},
		{"a Secret in a typed list, that does not say what it is", `{"kind":"SecretList","items":[{"metadata":{"name":"a"},"data":{"motto":"` + encoded(word) + `"}}]}`, encoded(word)},
		{"values one after another", settings + "\n" + secret, encoded(word)},
		{"a ConfigMap", settings, random},
		{"YAML", "apiVersion: v1\nkind: Service\n---\nkind: Secret\nstringData:\n  motto: " + word, word},
		{"YAML that is broken", "kind: Secret\n  token: " + aSecret + "\n }{", aSecret},
		{"JSON that ends too early", `{"kind":"Secret","data":{"password":"` + aSecret, aSecret},
		{"a comment", "kind: Service # password=" + aSecret + "\n", aSecret},
		{"what kubectl apply copied", `{"kind":"Service","metadata":{"annotations":{"` + lastApplied + `":"` + word + `"}}}`, word},
		{"no object at all", `["--password=` + aSecret + `"]`, aSecret},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := string(New().Objects([]byte(tt.text)))
			if strings.Contains(got, tt.mark) {
				t.Error(got)
			}
		})
	}
	t.Run("objects without secrets stay as they are", func(t *testing.T) {
		for _, text := range []string{
			"{\"kind\": \"List\",\n \"items\": [{\"kind\":\"Service\",\"spec\":{\"n\":12345678901234567890}}]}\n",
			"# the shop\nkind: Service\nmetadata: {name: token}\n---\nkind: Pod # one\n",
			"",
		} {
			if got := string(New().Objects([]byte(text))); got != text {
				t.Errorf("%q became %q", text, got)
			}
		}
	})
	t.Run("what is written anew keeps its other values", func(t *testing.T) {
		got := New().Objects([]byte("---\nkind: Service\n--- # second\nkind: Secret\nmetadata: {name: a, generation: 12345678901234567}\ndata: {x: " + encoded(word) + "}\n"))
		if !strings.HasPrefix(string(got), "---\nkind: Service\n--- # second\n{") || !strings.Contains(string(got), "12345678901234567") {
			t.Errorf("%s", got)
		}
	})
}

func TestContent(t *testing.T) {
	got := New().Content([]byte(`[{"name": "web", "auth-token": "` + aSecret + `", "port": 80}]`))
	if strings.Contains(string(got), aSecret) || !json.Valid(got) || !strings.Contains(string(got), `"web"`) {
		t.Errorf("%s", got)
	}
	if got := string(New().Content([]byte("KVStore: Ok\ntoken: " + aSecret))); got != "KVStore: Ok\ntoken: (left out)" {
		t.Errorf("%q", got)
	}
}

func TestTextLeavesNothingTwice(t *testing.T) {
	pieces := []string{"password", "token", "=", ": ", "\"", "'", "\\", "--", " ", "\n", "Bearer ", "://", "@", "u:", aSecret, aToken, "a", "(left", "basic ", "-u ", ",", "\t"}
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 12).Draw(t, "pieces"), "")
		once := Text(text)
		for line := range strings.SplitSeq(once, "\n") {
			if lineHasSecret(line) && !strings.HasPrefix(line, leftOut) {
				t.Errorf("%q became %q, with a secret in %q", text, once, line)
			}
		}
		if again := Text(once); again != once {
			t.Errorf("%q became %q, and then %q", text, once, again)
		}
	})
}

// FuzzText holds that a secret behind its name, and one of a form of its own, is
// left out whatever stands around it.
func FuzzText(f *testing.F) {
	for _, text := range []string{"", "a\n", "\"", "\\\"", "password=", "-----BEGIN PRIVATE KEY-----\n", "eyJ", "://", "\xff"} {
		f.Add(text, text)
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		for _, secret := range []string{" bearer " + aSecret + " ", "\npassword=" + aSecret + "\n", " https://u:" + aSecret + "@h/ ", aKey} {
			if got := Text(before + secret + after); strings.Contains(got, aSecret) && !strings.Contains(before+after, aSecret) {
				t.Errorf("%q, %q: %q", before, after, got)
			}
			New().Objects([]byte(before + secret + after))
			Tokens(before + secret + after)
		}
	})
}

// Budget: 5 µs a line of a log without secrets.
func BenchmarkText(b *testing.B) {
	line := `time="2026-01-03T12:00:00Z" level=info msg="Regenerated endpoint" containerID=9f86d08188 endpointID=3098 identity=5 subsys=endpoint` + "\n"
	text := strings.Repeat(line, 1000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		Text(text)
	}
}
