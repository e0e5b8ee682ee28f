// SPDX-License-Identifier: Apache-2.0

package recorder

import (
	"errors"
	"io"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestAWatchGoesOnAsLongAsNothingCanBeMissing(t *testing.T) {
	of := target{Kind: servicesKind}
	ahead := apierrors.NewTimeoutError("Too large resource version: 5, current: 3", 1)
	ahead.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
	for name, c := range map[string]struct {
		err  error
		vain time.Duration // 0: not in vain
		want bool
	}{
		"nobody answers, for however long":                {of.trouble("watch", false, errors.New("connection refused")), 0, true},
		"a connection breaks":                             {of.trouble("watch", true, io.ErrUnexpectedEOF), time.Second, true},
		"every connection breaks before anything comes":   {of.trouble("watch", true, io.ErrUnexpectedEOF), time.Minute, false},
		"it is forbidden for a while":                     {of.trouble("watch", false, apierrors.NewForbidden(schema.GroupResource{}, "", nil)), 0, true},
		"the server asks for patience":                    {of.trouble("watch", false, apierrors.NewTooManyRequests("later", 1)), 0, true},
		"the server has forgotten (410)":                  {of.trouble("watch", true, apierrors.NewResourceExpired("old")), 0, false},
		"the kind is gone":                                {of.trouble("watch", false, apierrors.NewNotFound(schema.GroupResource{}, "")), 0, false},
		"a server is a little behind the others":          {of.trouble("watch", false, ahead), 30 * time.Second, true},
		"a server will never know the version":            {of.trouble("watch", false, ahead), 2 * time.Minute, false},
		"the journal cannot be read, which is no trouble": {errors.New("disk"), 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			var since time.Time
			if c.vain > 0 {
				since = time.Now().Add(-c.vain)
			}
			if got := resumable(c.err, since); got != c.want {
				t.Errorf("%v: %v", c.err, got)
			}
		})
	}
}
