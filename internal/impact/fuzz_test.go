// SPDX-License-Identifier: Apache-2.0

package impact_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/fairlead-io/fairlead/internal/impact"
	"github.com/fairlead-io/fairlead/internal/impact/impacttest"
)

// odd are objects with fields that are empty, null, or lead nowhere.
const odd = `
{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: noname}, spec: {conversion: {strategy: Webhook}}}
---
{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: a.b.c}, spec: {group: b.c, names: {plural: a}, versions: [{}, {served: true}], conversion: {strategy: Webhook, webhook: {clientConfig: {service: {}}}}}}
---
{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: pods., finalizers: [""]}, spec: {group: "", names: {plural: pods}}}
---
{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.x}, spec: {service: {}}, status: {conditions: [{}]}}
---
{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.y}, spec: {service: null}}
---
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: v}, webhooks: [{name: a}, {clientConfig: {service: {}}, rules: [{}], failurePolicy: Odd}]}
---
{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: {name: m}, webhooks: [{namespaceSelector: {matchExpressions: [{key: a, operator: Odd}]}}]}
---
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: b}}
---
{apiVersion: v1, kind: Service, metadata: {name: "", namespace: ""}}
---
{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: shop, ownerReferences: [{}, {uid: Pod/shop/p}], finalizers: [/]}, spec: {containers: [{}], volumes: [{}, {projected: {}}, {configMap: {}}]}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: v}, spec: {persistentVolumeReclaimPolicy: Delete, csi: null}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c, namespace: shop}, spec: {volumeName: v}}
---
{apiVersion: v1, kind: Node, metadata: {name: node}}
---
{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: i, namespace: shop}, spec: {rules: [{}, {http: {paths: [{}]}}]}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: p, namespace: shop}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, namespace: shop}}
---
{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: h, namespace: shop}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: b}, roleRef: {}, subjects: [{}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: r}, aggregationRule: {clusterRoleSelectors: [{}]}, rules: [{}]}
`

// FuzzExamine: whatever objects say of themselves, each of them can be deleted,
// and all together.
func FuzzExamine(f *testing.F) {
	f.Add(odd)
	f.Add(world)
	cases, err := filepath.Glob("testdata/core/*.txtar")
	if err != nil || len(cases) == 0 {
		f.Fatalf("there are no cases: %v", err)
	}
	for _, path := range cases {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(archive.Files[0].Data))
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := impacttest.Read(text)
		if err != nil {
			return
		}
		all := slices.Collect(s.All())
		for _, cascade := range cascades {
			check(t, s, all, cascade)
			for _, o := range all[:min(len(all), 30)] {
				check(t, s, []*impact.Object{o}, cascade)
			}
		}
	})
}

// TestOdd: the objects above are read, all of them, and deleting any is judged.
func TestOdd(t *testing.T) {
	s := impacttest.State(t, odd)
	all := slices.Collect(s.All())
	if want := strings.Count(odd, "---") + 1; len(all) != want {
		t.Fatalf("%d of %d objects are read", len(all), want)
	}
	for _, o := range all {
		check(t, s, []*impact.Object{o}, impact.Background)
	}
}

func check(t *testing.T, s *impact.State, roots []*impact.Object, cascade impact.Cascade) {
	t.Helper()
	d := impact.Delete(s, roots, cascade)
	r := impact.Examine(s, d)
	total := 0
	for _, g := range r.Groups {
		total += g.Named + g.Cascaded
	}
	if total != len(d.Objects()) {
		t.Fatalf("groups count %d objects, and %d go", total, len(d.Objects()))
	}
	for _, c := range r.Consequences {
		if c.ID == "" || c.Title == "" || len(c.Objects) == 0 {
			t.Fatalf("a consequence says nothing, or not by what: %+v", c)
		}
	}
	if text := impacttest.Text(r); len(r.Consequences) > 0 && text == "" {
		t.Fatal("a report has no text")
	}
}
