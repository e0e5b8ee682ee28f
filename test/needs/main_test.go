// SPDX-License-Identifier: Apache-2.0

// Package needs tests that Fairlead's own parts need no more and no less than
// they say: the rights that are published for them, those that their manifests
// grant, and those that they make use of on a real API server that notes every
// request.
package needs

import (
	"os"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/guard"
	"github.com/fairlead-io/fairlead/internal/rbac"
	"github.com/fairlead-io/fairlead/internal/rights"
	"github.com/fairlead-io/fairlead/internal/rights/source"
	"github.com/fairlead-io/fairlead/test/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }

// namespace is where the manifests put Fairlead's parts.
const namespace = "kube-system"

// manifest is what users apply.
func manifest(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// published is what is published for a component.
func published(t *testing.T, id string) rbac.Component {
	t.Helper()
	for _, c := range rbac.Components() {
		if c.ID == id {
			return c
		}
	}
	t.Fatalf("there is no component %s", id)
	return rbac.Component{}
}

// asObjects are roles and bindings that give a component what is published for
// it.
func asObjects(c rbac.Component) *source.Objects {
	meta := metav1.ObjectMeta{Name: c.Role}
	local := metav1.ObjectMeta{Name: c.Role, Namespace: namespace}
	ref := func(kind string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: c.Role}
	}
	account := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: c.Account}}
	return &source.Objects{
		ClusterRoles:        []*rbacv1.ClusterRole{{ObjectMeta: meta, Rules: c.Restoration()}},
		ClusterRoleBindings: []*rbacv1.ClusterRoleBinding{{ObjectMeta: meta, RoleRef: ref("ClusterRole"), Subjects: account}},
		Roles:               []*rbacv1.Role{{ObjectMeta: local, Rules: c.Local}},
		RoleBindings:        []*rbacv1.RoleBinding{{ObjectMeta: local, RoleRef: ref("Role"), Subjects: account}},
	}
}

// given are the rights that objects give an account, one line each.
func given(objects *source.Objects, account string) string {
	needs := &rights.Needs{}
	needs.AddAccess("", rights.NewAccess(objects.Policy(), rbac.ServiceAccount(namespace, account)))
	var lines strings.Builder
	for _, n := range needs.Rules() {
		lines.WriteString(strings.Join(n.Verbs, ",") + " " + n.Target() + " " + n.Namespace + "\n")
	}
	return lines.String()
}

// TestManifests compares what is published with what manifests grant.
func TestManifests(t *testing.T) {
	var guards strings.Builder
	if err := guard.Manifests(&guards, guard.ManifestOptions{Namespace: namespace, Image: "fairlead"}, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ id, manifest string }{
		{"fairlead", manifest(t, "rbac")}, {"fairlead-recorder", manifest(t, "recorder")}, {"fairlead-doctor", manifest(t, "doctor")}, {"fairlead-guard", guards.String()},
	} {
		t.Run(c.id+"'s manifest grants what is published, and nothing else", func(t *testing.T) {
			component, objects := published(t, c.id), &source.Objects{}
			if err := objects.AddManifests(strings.NewReader(c.manifest), ""); err != nil {
				t.Fatal(err)
			}
			got, want := given(objects, component.Account), given(asObjects(component), component.Account)
			if got != want || got == "" {
				t.Errorf("the manifest grants\n%swhat is published is\n%s", got, want)
			}
		})
		t.Run("what "+c.id+" cannot do without is part of that", func(t *testing.T) {
			component := published(t, c.id)
			access := rights.NewAccess(asObjects(component).Policy(), rbac.ServiceAccount(namespace, component.Account))
			for _, r := range component.Requests() {
				if !access.Allows(rights.Right{Request: r}) {
					t.Errorf("%s is not", r)
				}
			}
		})
	}
}
