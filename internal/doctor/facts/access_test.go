// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/evidence"
)

func TestReadAccess(t *testing.T) {
	const user = "system:serviceaccount:kube-system:cilium"
	read := func(content string) ([]Access, error) {
		r := &evidence.Record{Kind: evidence.Access, Content: []byte(content)}
		s := &Sample{}
		err := readAccess(nil, s, r)
		for i := range s.Access {
			s.Access[i].Record = nil
		}
		return s.Access, err
	}
	list := func(items ...string) string {
		return `{"apiVersion":"v1","kind":"List","items":[` + strings.Join(items, ",") + `]}`
	}
	item := func(attributes, status string) string {
		return `{"kind":"SubjectAccessReview","spec":{"user":"` + user + `","resourceAttributes":{` + attributes + `}}` + status + `}`
	}
	for name, tt := range map[string]struct {
		content string
		want    []Access
	}{
		"what is allowed, and by what": {
			list(item(`"verb":"list","resource":"pods"`, `,"status":{"allowed":true,"reason":"RBAC: allowed by ClusterRoleBinding \"cilium\""}`)),
			[]Access{{User: user, Verb: "list", Resource: "pods", Allowed: true, Reason: `RBAC: allowed by ClusterRoleBinding "cilium"`}},
		},
		"what is refused": {
			list(item(`"verb":"patch","group":"apps","resource":"deployments","subresource":"scale","namespace":"shop","name":"web"`, `,"status":{"allowed":false}`)),
			[]Access{{User: user, Verb: "patch", Group: "apps", Resource: "deployments/scale", Namespace: "shop", Name: "web"}},
		},
		"a review that was never answered says nothing": {list(item(`"verb":"list","resource":"pods"`, ``)), nil},
		"one that ended in an error says nothing":       {list(item(`"verb":"list","resource":"pods"`, `,"status":{"allowed":false,"evaluationError":"webhook: timeout"}`)), nil},
		"one of a path says nothing of resources":       {list(`{"spec":{"user":"x","nonResourceAttributes":{"path":"/healthz","verb":"get"}},"status":{"allowed":false}}`), nil},
		"several lists": {
			list(item(`"verb":"list","resource":"pods"`, `,"status":{"allowed":true}`)) + "\n---\n" + list(item(`"verb":"watch","resource":"pods"`, `,"status":{"allowed":true}`)),
			[]Access{{User: user, Verb: "list", Resource: "pods", Allowed: true}, {User: user, Verb: "watch", Resource: "pods", Allowed: true}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := read(tt.content)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	for name, content := range map[string]string{
		"nothing":                      "",
		"an error in place of a list":  "error: You must be logged in to the server (Unauthorized)",
		"another kind of object":       `{"kind":"Pod","metadata":{"name":"x"}}`,
		"a list that breaks off":       `{"kind":"List","items":[{"spec":`,
		"reviews that are no objects":  `{"kind":"List","items":[1,2]}`,
		"a status that is not one":     `{"kind":"List","items":[{"spec":{"user":"x"},"status":"ok"}]}`,
		"something before the list":    "Warning: deprecated\n" + list(item(`"verb":"list","resource":"pods"`, ``)),
		"a command that is not there":  "sh: kubectl: command not found",
		"a list of which all is empty": `{"kind":"List"}`,
	} {
		t.Run(name+" is an error and no fact", func(t *testing.T) {
			if got, err := read(content); err == nil {
				t.Errorf("%+v", got)
			}
		})
	}
}
