// SPDX-License-Identifier: Apache-2.0

package impact_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/impact"
	"github.com/fairlead-io/fairlead/internal/impact/impacttest"
	"github.com/fairlead-io/fairlead/internal/inventory"
	"github.com/fairlead-io/fairlead/test/kube"
	"github.com/fairlead-io/fairlead/test/lab"
)

// onServer is what judges have an opinion of. The webhooks see one namespace, in
// which nothing is written before their Service is gone.
const onServer = `
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: hooked, labels: {hooked: "yes"}}}
---
{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: orders.orders.example}, spec: {group: orders.example, scope: Namespaced, names: {plural: orders, singular: order, kind: Order}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 1000}
---
{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: kata}, handler: kata}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: shop, name: web}, spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {priorityClassName: high, runtimeClassName: kata, containers: [{name: web, image: web}]}}}}
---
{apiVersion: v1, kind: Service, metadata: {namespace: shop, name: hook}, spec: {ports: [{port: 443}]}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {namespace: shop, name: hook-1, labels: {kubernetes.io/service-name: hook}}, addressType: IPv4, endpoints: [{addresses: [192.0.2.10], conditions: {ready: true}}], ports: [{port: 443}]}
---
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: strict}, webhooks: [{name: strict.shop.example, failurePolicy: Fail, sideEffects: None, admissionReviewVersions: [v1], clientConfig: {service: {namespace: shop, name: hook}}, namespaceSelector: {matchLabels: {hooked: "yes"}}, rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [configmaps], scope: Namespaced}]}]}
---
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: lax}, webhooks: [{name: lax.shop.example, failurePolicy: Ignore, sideEffects: None, admissionReviewVersions: [v1], clientConfig: {service: {namespace: shop, name: hook}}, namespaceSelector: {matchLabels: {hooked: "yes"}}, rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [secrets], scope: Namespaced}]}]}
---
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: no-limits}, spec: {matchConstraints: {resourceRules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [limitranges]}]}, validations: [{expression: "false"}]}}
---
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: no-limits}, spec: {policyName: no-limits, validationActions: [Deny]}}
`

// TestServer holds what judges say of the API server itself against a real one:
// what they foresee of a delete is there after it.
func TestServer(t *testing.T) {
	ns := lab.NewNetNS(t, "control-plane")
	addr := netip.MustParseAddr("198.51.100.10")
	ns.Addr(t, "lo", addr.String()+"/32")
	c := kube.StartAt(t, ns, addr)
	c.Apply(onServer)
	for _, r := range foreseen(c) {
		t.Run(r.name, func(t *testing.T) {
			s, err := inventory.Read(t.Context(), inventory.Config{REST: c.REST})
			if err != nil {
				t.Fatal(err)
			}
			if r.before != nil {
				eventually(t, r.before)
			}
			r.foresees(t, impact.Examine(s, impacttest.Delete(t, s, impact.Background, r.object)))
			err = deleteIt(t.Context(), c, impacttest.Roots(t, s, r.object)[0])
			if r.refused != apierrors.IsForbidden(err) || !r.refused && err != nil {
				t.Fatalf("the API server answers the delete with %v", err)
			}
			eventually(t, r.after)
		})
	}
}

type prophecy struct {
	name, object  string
	want          string
	refused       bool
	before, after func(context.Context) error
}

func (p prophecy) foresees(t *testing.T, report impact.Report) {
	t.Helper()
	var lines []string
	for _, c := range report.Consequences {
		if lines = append(lines, line(c)); lines[len(lines)-1] == p.want {
			return
		}
	}
	t.Errorf("%q is not among\n%s", p.want, strings.Join(lines, "\n"))
}

func foreseen(c *kube.Cluster) []prophecy {
	core, options := c.Client.CoreV1(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	pod := func(spec corev1.PodSpec) func(context.Context) error {
		spec.Containers = []corev1.Container{{Name: "a", Image: "a"}}
		return func(ctx context.Context) error {
			_, err := core.Pods("shop").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: spec}, options)
			return err
		}
	}
	kata := "kata"
	withClass, withRuntime := pod(corev1.PodSpec{PriorityClassName: "high"}), pod(corev1.PodSpec{RuntimeClassName: &kata})
	limits := func(ctx context.Context) error {
		_, err := core.LimitRanges("shop").Create(ctx, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, options)
		return err
	}
	there := func(path string) func(context.Context) error {
		return func(ctx context.Context) error {
			return c.Client.Discovery().RESTClient().Get().AbsPath(path).Do(ctx).Error()
		}
	}
	return []prophecy{
		{
			name: "a priority class", object: "priorityclass/high",
			want:   "Breaks priority-class-gone: new pods of Deployment shop/web are refused: they name PriorityClass high",
			before: withClass, after: fails(withClass, "no PriorityClass with name high"),
		},
		{
			name: "a runtime class", object: "runtimeclass/kata",
			want:   "Breaks runtime-class-gone: new pods of Deployment shop/web are refused: they name RuntimeClass kata",
			before: withRuntime, after: fails(withRuntime, `RuntimeClass "kata" not found`),
		},
		{
			name: "a priority class of Kubernetes' own", object: "priorityclass/system-node-critical", refused: true,
			want:  "Note priority-class-gone: the API server does not let PriorityClass system-node-critical go",
			after: there("/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical"),
		},
		{
			name: "the binding of a policy", object: "validatingadmissionpolicybinding/no-limits",
			want:   "Breaks policy-unbound: opens: creates of limitranges are no longer checked by ValidatingAdmissionPolicy no-limits",
			before: fails(limits, "no-limits"), after: limits,
		},
		{
			name: "the Service of webhooks that fail", object: "service/shop/hook",
			want: "Outage writes-fail: creates of configmaps are refused until somebody puts it back: nobody answers for ValidatingWebhookConfiguration strict, whose failurePolicy is Fail",
			after: func(ctx context.Context) error {
				if _, err := core.Secrets("hooked").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, options); err != nil {
					return fmt.Errorf("what a webhook checks that is ignored: %w", err)
				}
				return fails(func(ctx context.Context) error {
					_, err := core.ConfigMaps("hooked").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, options)
					return err
				}, `service "hook" not found`)(ctx)
			},
		},
		{
			name: "the API servers' Service", object: "service/default/kubernetes",
			want:  "Outage service-gone: pods no longer reach the API server: Service default/kubernetes is the address by which they know it",
			after: there("/api/v1/namespaces/default/services/kubernetes"),
		},
		{
			name: "the API servers' addresses", object: "endpointslice/default/kubernetes",
			want:  "Outage service-empty: pods do not reach the API server until it writes its addresses again: Service default/kubernetes loses its only ready endpoint",
			after: there("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"),
		},
		{
			name: "a group of a definition", object: "apiservice/v1.orders.example",
			want:  "Note api-group-gone: APIService v1.orders.example comes back within seconds: the API server writes it for a CustomResourceDefinition",
			after: there("/apis/apiregistration.k8s.io/v1/apiservices/v1.orders.example"),
		},
		{
			name: "a group of the API server's own", object: "apiservice/v1.apps",
			want:  "Note api-group-gone: APIService v1.apps goes; the API server serves apps/v1 all the same, and writes it again when it starts anew",
			after: there("/apis/apps/v1/namespaces/shop/deployments/web"),
		},
	}
}

// fails says that something does not work any more, for a reason.
func fails(do func(context.Context) error, because string) func(context.Context) error {
	return func(ctx context.Context) error {
		err := do(ctx)
		switch {
		case err == nil:
			return errors.New("it still works")
		case !strings.Contains(err.Error(), because):
			return fmt.Errorf("it fails, but not because of %q: %w", because, err)
		}
		return nil
	}
}

func deleteIt(ctx context.Context, c *kube.Cluster, o *impact.Object) error {
	r := o.Resource
	path := []string{"/apis", r.Group, r.Version}
	if r.Group == "" {
		path = []string{"/api", r.Version}
	}
	if o.Namespace != "" {
		path = append(path, "namespaces", o.Namespace)
	}
	return c.Client.Discovery().RESTClient().Delete().AbsPath(append(path, r.Resource, o.Name)...).Do(ctx).Error()
}

func eventually(t *testing.T, try func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("it does not come about: %v", err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
