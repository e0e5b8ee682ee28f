// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestATroubleNamesVerbResourceAndReason(t *testing.T) {
	slices := schema.GroupResource{Group: "discovery.k8s.io", Resource: "endpointslices"}
	undecodable := apierrors.NewClientErrorReporter(http.StatusInternalServerError, "GET", "ClientWatchDecoding").AsObject(io.ErrUnexpectedEOF)
	for name, test := range map[string]struct {
		err      error
		answered bool
		reason   Reason
		missing  string
	}{
		"403":                           {apierrors.NewForbidden(slices, "", errors.New("no")), true, ReasonForbidden, "watch endpointslices.discovery.k8s.io"},
		"401":                           {apierrors.NewUnauthorized("who"), true, ReasonUnauthorized, ""},
		"410 of an object":              {apierrors.NewGone("old"), true, ReasonExpired, ""},
		"410 of a version":              {apierrors.NewResourceExpired("old"), true, ReasonExpired, ""},
		"429":                           {apierrors.NewTooManyRequests("later", 1), true, ReasonUnavailable, ""},
		"500":                           {apierrors.NewInternalError(errors.New("oops")), true, ReasonUnavailable, ""},
		"503":                           {apierrors.NewServiceUnavailable("later"), true, ReasonUnavailable, ""},
		"504":                           {apierrors.NewTimeoutError("slow", 1), true, ReasonUnavailable, ""},
		"404":                           {apierrors.NewNotFound(slices, ""), true, ReasonRefused, ""},
		"an event that cannot be read":  {apierrors.FromObject(undecodable), true, ReasonBroken, ""},
		"an answer that ends too early": {fmt.Errorf("read: %w", io.ErrUnexpectedEOF), true, ReasonBroken, ""},
		"an answer that hangs":          {fmt.Errorf("read: %w", os.ErrDeadlineExceeded), true, ReasonTimeout, ""},
		"no answer in time":             {context.DeadlineExceeded, false, ReasonTimeout, ""},
		"a connection that ends":        {io.EOF, false, ReasonUnreachable, ""},
		"a connection that is refused":  {&net.OpError{Op: "dial", Err: errors.New("connection refused")}, false, ReasonUnreachable, ""},
		"another's certificate":         {&tls.CertificateVerificationError{Err: errors.New("unknown authority")}, false, ReasonUntrusted, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := resource{name: slices.Resource, group: slices.Group}
			err := r.trouble("watch", &exchange{answered: test.answered}, &url.Error{Op: "Get", URL: "https://192.0.2.1/x?timeout=7m", Err: test.err})
			trouble, ok := errors.AsType[*Trouble](fmt.Errorf("wrapped: %w", err))
			if !ok || trouble.Reason != test.reason || trouble.Missing() != test.missing || !errors.Is(err, test.err) {
				t.Fatalf("got %+v, want %s, missing %q", trouble, test.reason, test.missing)
			}
			if want := "watch endpointslices.discovery.k8s.io: " + test.err.Error(); err.Error() != want {
				t.Errorf("got %q, want %q", err, want)
			}
		})
	}
}
