// SPDX-License-Identifier: Apache-2.0

package source

import (
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/internal/rbac"
)

const manifests = `{apiVersion: v1, kind: Secret, metadata: {name: s}}
---
# nothing but a comment
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleList
items:
- {apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: r}, rules: [{apiGroups: [""], resources: [pods], verbs: [list]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: r}, roleRef: {kind: Role, name: r}, subjects: [{kind: ServiceAccount, name: a}]}
---
{apiVersion: example.com/v1, kind: ClusterRole, metadata: {name: of another group}}
`

func TestManifests(t *testing.T) {
	t.Run("objects without a namespace lie in the one that is given, and other kinds are passed over", func(t *testing.T) {
		o := &Objects{}
		if err := o.AddManifests(strings.NewReader(manifests), "shop"); err != nil {
			t.Fatal(err)
		}
		if len(o.ClusterRoles) > 0 || len(o.Roles) != 1 {
			t.Errorf("%+v", o)
		}
		for namespace, want := range map[string]bool{"shop": true, "": false, "other": false} {
			if _, may := o.Policy().May(rbac.ServiceAccount("shop", "a"), rbac.Request{Verb: "list", Resource: "pods", Namespace: namespace}); may != want {
				t.Errorf("in %q it may: %v", namespace, may)
			}
		}
	})
	t.Run("a broken document is named", func(t *testing.T) {
		for text, want := range map[string]string{
			"{kind: A, apiVersion: v1}\n---\na: [":                              "document 2",
			`{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, rules: no}`: "document 1",
		} {
			if err := new(Objects).AddManifests(strings.NewReader(text), ""); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", text, err)
			}
		}
	})
}

func FuzzManifests(f *testing.F) {
	f.Add(manifests)
	f.Add(`{"apiVersion":"v1","kind":"List","items":[{"kind":"Role"},null,1]}`)
	f.Add("kind: List\nitems: {}")
	f.Fuzz(func(t *testing.T, text string) {
		o := &Objects{}
		if err := o.AddManifests(strings.NewReader(text), "shop"); err != nil {
			return
		}
		for _, r := range o.Roles {
			if r.Namespace == "" {
				t.Error("a Role lies nowhere")
			}
		}
	})
}

func TestDenials(t *testing.T) {
	line := `pods is forbidden: User "a" cannot list resource "pods" in API group "" at the cluster scope`
	found := func(text string) (n int) {
		if err := Denials(strings.NewReader(text), func(d rbac.Denial) {
			if d.User != "a" || d.Verb != "list" {
				t.Errorf("%+v", d)
			}
			n++
		}); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, c := range []struct {
		name, text string
		want       int
	}{
		{"each line counts", line + "\n\nfine\n" + line + "\n", 2},
		{"the last line needs no end", line, 1},
		{"the beginning of a line of any length is looked at", line + strings.Repeat("x", 3*maxLine) + "\n" + line, 2},
		{"its rest is not", strings.Repeat("x", maxLine) + line + "\n", 0},
		{"nothing", "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := found(c.text); got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
}
