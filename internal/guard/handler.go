// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// longestBody is more than API servers take of an object, twice over.
	longestBody = 3 << 20
	// mostAtOnce bounds what callers can keep in memory: anyone who reaches the
	// port may be one.
	mostAtOnce = 64
)

// reviewType is the one form of question and answer that is spoken here.
var reviewType = metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}

// Handler answers the API server at /validate, and whoever asks after the
// guard's health at /healthz and /readyz.
func (g *Guard) Handler() http.Handler {
	places := make(chan struct{}, mostAtOnce)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /validate", func(w http.ResponseWriter, r *http.Request) {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
			g.validate(w, r)
		default:
			http.Error(w, "too many requests at once", http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", g.ready)
	return mux
}

func (g *Guard) ready(w http.ResponseWriter, _ *http.Request) {
	if _, err := g.view.State(); err != nil {
		http.Error(w, "no delete is judged: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "ok\n")
}

func (g *Guard) validate(w http.ResponseWriter, r *http.Request) {
	request, status, err := readReview(w, r)
	if err != nil {
		http.Error(w, err.Error(), status)
		return
	}
	answer, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: reviewType, Response: g.Review(request)})
	if err != nil {
		http.Error(w, "writing the answer: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer)
}

// readReview reads the question, or says with which status to refuse it.
func readReview(w http.ResponseWriter, r *http.Request) (*admissionv1.AdmissionRequest, int, error) {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return nil, http.StatusUnsupportedMediaType, errors.New("the body must be application/json")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, longestBody))
	if _, long := errors.AsType[*http.MaxBytesError](err); long {
		return nil, http.StatusRequestEntityTooLarge, fmt.Errorf("the body has more than %d bytes", longestBody)
	}
	if err != nil {
		return nil, http.StatusBadRequest, fmt.Errorf("reading the body: %w", err)
	}
	request, err := decodeReview(body)
	return request, http.StatusBadRequest, err
}

// decodeReview reads an AdmissionReview with a request.
func decodeReview(body []byte) (*admissionv1.AdmissionRequest, error) {
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &review); err != nil {
		return nil, fmt.Errorf("reading the AdmissionReview: %w", err)
	}
	if review.TypeMeta != reviewType {
		return nil, fmt.Errorf("this is %q of %q, and only %s of %s is answered", review.Kind, review.APIVersion, reviewType.Kind, reviewType.APIVersion)
	}
	if review.Request == nil || review.Request.UID == "" {
		return nil, errors.New("the AdmissionReview has no request, or one without a UID")
	}
	return review.Request, nil
}
