// SPDX-License-Identifier: Apache-2.0

package impact_test

import (
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/internal/impact"
	"github.com/fairlead-io/fairlead/internal/impact/impacttest"
)

// TestUnknownPods says that nothing is milder because pods may not be listed.
func TestUnknownPods(t *testing.T) {
	s := impacttest.State(t, `
{apiVersion: apps/v1, kind: DaemonSet, metadata: {namespace: kube-system, name: cilium}, spec: {selector: {}, template: {metadata: {labels: {k8s-app: cilium}}, spec: {containers: [{name: cilium-agent, image: a}]}}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {namespace: shop, name: web}}
`)
	s.SetUnknown(impact.Pods, "the API server does not let ann list them")
	r := impacttest.Report(t, s, "daemonset/kube-system/cilium", "configmap/shop/web")
	if r.Worst() != impact.Outage || r.Consequences[0].ID != "stops" {
		t.Errorf("the network's DaemonSet goes, and people would see\n%s", impacttest.Text(r))
	}
	for _, want := range []string{"who uses them", "which pods run"} {
		if all := strings.Join(r.Incomplete, "\n"); !strings.Contains(all, want) {
			t.Errorf("%q is not among what is not known:\n%s", want, all)
		}
	}
}
