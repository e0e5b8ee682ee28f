// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Reason says in a word why a kind cannot be followed.
type Reason string

// The reasons.
const (
	ReasonForbidden    Reason = "Forbidden"    // 403: the user may not do this
	ReasonUnauthorized Reason = "Unauthorized" // 401: the token or the certificate is not accepted
	ReasonExpired      Reason = "Expired"      // 410: what happened since is forgotten; a new list follows
	ReasonUnavailable  Reason = "Unavailable"  // 429 or 5xx: the server cannot do it now
	ReasonRefused      Reason = "Refused"      // any other status
	ReasonTimeout      Reason = "Timeout"      // no answer in time
	ReasonUnreachable  Reason = "Unreachable"  // no answer
	ReasonUntrusted    Reason = "Untrusted"    // the server's certificate is vouched for by nobody we trust
	ReasonBroken       Reason = "Broken"       // an answer that ends too early, or that cannot be understood
)

// Trouble is why a kind of an API server cannot be followed. A Handler finds
// it in the error of Stale with errors.As.
type Trouble struct {
	Verb     string // list | watch, as in RBAC rules; follow for both at once
	Resource string // endpointslices
	Group    string // discovery.k8s.io; "" is the core group
	Reason   Reason
	Err      error
}

// Error says what was being done to what, and what came of it.
func (t *Trouble) Error() string { return fmt.Sprintf("%s: %v", t.request(), t.Err) }

// Unwrap returns what came of it.
func (t *Trouble) Unwrap() error { return t.Err }

// Missing names the permission that is missing, such as "list
// endpointslices.discovery.k8s.io"; "" if it is something else.
func (t *Trouble) Missing() string {
	if t.Reason != ReasonForbidden {
		return ""
	}
	return t.request()
}

func (t *Trouble) request() string { return t.Verb + " " + t.GroupResource() }

// GroupResource names the resource with its group, as kubectl does:
// "endpointslices.discovery.k8s.io".
func (t *Trouble) GroupResource() string {
	return schema.GroupResource{Group: t.Group, Resource: t.Resource}.String()
}

// trouble wraps an error of a request for the resource. What the transport
// says of the exchange tells a server that is away from one that answers badly.
func (r resource) trouble(verb string, sent *exchange, err error) error {
	if err == nil {
		return nil
	}
	return NewTrouble(verb, schema.GroupResource{Group: r.group, Resource: r.name}, sent.answered, err)
}

// NewTrouble says what came of a request. Answered says that the answer had
// begun.
func NewTrouble(verb string, of schema.GroupResource, answered bool, err error) *Trouble {
	// The URL of a request says what verb and resource say, and a random timeout.
	if request, ok := errors.AsType[*url.Error](err); ok {
		err = request.Err
	}
	return &Trouble{Verb: verb, Resource: of.Resource, Group: of.Group, Reason: reasonOf(answered, err), Err: err}
}

func reasonOf(answered bool, err error) Reason {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return reasonOfStatus(status.Status())
	}
	var late interface{ Timeout() bool }
	switch {
	case errors.As(err, &late) && late.Timeout():
		return ReasonTimeout
	case isUntrusted(err):
		return ReasonUntrusted
	case answered:
		return ReasonBroken
	}
	return ReasonUnreachable
}

func isUntrusted(err error) bool {
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	return untrusted
}

func reasonOfStatus(status metav1.Status) Reason {
	switch {
	case isUndecodable(status):
		return ReasonBroken
	case status.Code == http.StatusForbidden:
		return ReasonForbidden
	case status.Code == http.StatusUnauthorized:
		return ReasonUnauthorized
	case status.Code == http.StatusGone:
		return ReasonExpired
	case status.Code == http.StatusTooManyRequests, status.Code >= http.StatusInternalServerError:
		return ReasonUnavailable
	}
	return ReasonRefused
}

// isUndecodable says that a status did not come from the server: client-go
// makes one of an event of a watch that it cannot read.
func isUndecodable(status metav1.Status) bool {
	if status.Details == nil {
		return false
	}
	for _, cause := range status.Details.Causes {
		if cause.Type == "ClientWatchDecoding" {
			return true
		}
	}
	return false
}

// exchange is how a request went as the transport saw it. client-go keeps some
// errors of a watch to itself.
type exchange struct {
	answered bool
	err      error
}

type exchangeKey struct{}

// withExchange returns a context for one request, and what is to become of it.
func withExchange(ctx context.Context) (context.Context, *exchange) {
	e := new(exchange)
	return context.WithValue(ctx, exchangeKey{}, e), e
}

// exchanges is a transport that notes how requests go.
type exchanges struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t exchanges) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.RoundTripper.RoundTrip(r)
	if e, ok := r.Context().Value(exchangeKey{}).(*exchange); ok {
		e.answered, e.err = err == nil, err
	}
	return answer, err
}
