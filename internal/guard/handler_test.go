// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/fairlead-io/fairlead/internal/impact/impacttest"
)

func reviewBody(t testing.TB, r *admissionv1.AdmissionRequest) string {
	t.Helper()
	return string(encode(t, admissionv1.AdmissionReview{TypeMeta: reviewType, Request: r}))
}

func ask(h http.Handler, method, path, media, body string) *http.Response {
	request := httptest.NewRequest(method, path, strings.NewReader(body))
	request.Header.Set("Content-Type", media)
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, request)
	return answer.Result()
}

func TestHandler(t *testing.T) {
	g := newRig(t, true, clusterYAML)
	good := reviewBody(t, request(t, g.state, "ClusterRole/cilium"))
	const media = "application/json"
	for _, tt := range []struct {
		name, method, path, media, body string
		status                          int
		says                            string
	}{
		{"a review is answered", "POST", "/validate?timeout=2s", media, good, 200, `"allowed":false`},
		{"with a character set as well", "POST", "/validate", media + "; charset=utf-8", good, 200, `"uid":"review of ClusterRole/cilium"`},
		{"another media type is not read", "POST", "/validate", "application/yaml", good, 415, "application/json"},
		{"nor none", "POST", "/validate", "", good, 415, "application/json"},
		{"nothing can be fetched there", "GET", "/validate", media, "", 405, ""},
		{"no JSON is said so", "POST", "/validate", media, "allow", 400, "reading the AdmissionReview"},
		{"nor is an empty body one", "POST", "/validate", media, "", 400, "reading the AdmissionReview"},
		{"another version is named", "POST", "/validate", media, strings.Replace(good, "admission.k8s.io/v1", "admission.k8s.io/v1beta1", 1), 400, `"admission.k8s.io/v1beta1"`},
		{"a review needs a request", "POST", "/validate", media, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, 400, "no request"},
		{"that can be answered", "POST", "/validate", media, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{}}`, 400, "without a UID"},
		{"a body is bounded", "POST", "/validate", media, `"` + strings.Repeat("x", longestBody) + `"`, 413, "more than 3145728 bytes"},
		{"it lives", "GET", "/healthz", "", "", 200, "ok"},
		{"and judges", "GET", "/readyz", "", "", 200, "ok"},
		{"there are no metrics at this door", "GET", "/metrics", "", "", 404, ""},
		{"nor anything else", "GET", "/", "", "", 404, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			answer := ask(g.Handler(), tt.method, tt.path, tt.media, tt.body)
			body, err := io.ReadAll(answer.Body)
			if err != nil || answer.StatusCode != tt.status || !strings.Contains(string(body), tt.says) {
				t.Errorf("%d %s %v", answer.StatusCode, body, err)
			}
		})
	}
	t.Run("an answer has the form of the question", func(t *testing.T) {
		var review admissionv1.AdmissionReview
		answer := ask(g.Handler(), "POST", "/validate", media, good)
		if err := json.NewDecoder(answer.Body).Decode(&review); err != nil || review.TypeMeta != reviewType || answer.Header.Get("Content-Type") != media {
			t.Errorf("%+v %v", review, err)
		}
	})
	t.Run("a guard that does not judge is not ready, and lives", func(t *testing.T) {
		s := impacttest.State(t, clusterYAML)
		h := rigOf(known{s, errNotSynced}, s, true).Handler()
		if ready, lives := ask(h, "GET", "/readyz", "", ""), ask(h, "GET", "/healthz", "", ""); ready.StatusCode != 503 || lives.StatusCode != 200 {
			t.Errorf("%d %d", ready.StatusCode, lives.StatusCode)
		}
	})
}

// Whatever is posted, there is an answer, and no panic but one that the guard
// itself ends: a delete is denied only if it was understood.
func FuzzReview(f *testing.F) {
	state := impacttest.State(f, clusterYAML)
	for _, name := range []string{"ClusterRole/cilium", "ClusterRoleBinding/cilium", "Service/shop/web", "Namespace/shop", "Pod/kube-system/cilium-x"} {
		f.Add([]byte(reviewBody(f, request(f, state, name))))
	}
	f.Add([]byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"DELETE","oldObject":null}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		request, err := decodeReview(body)
		if err != nil {
			return
		}
		g := rigOf(known{state: state}, state, true)
		answer := g.Review(request)
		if answer.UID != request.UID || answer.Allowed != (answer.Result == nil) {
			t.Errorf("%+v", answer)
		}
		if strings.Contains(g.log.String(), `"panic"`) {
			t.Errorf("a judge panicked:\n%s", g.log)
		}
		if _, err := json.Marshal(answer); err != nil {
			t.Error(err)
		}
		if !answer.Allowed && !bytes.Contains(body, []byte("DELETE")) {
			t.Errorf("no delete is denied: %s", body)
		}
	})
}
