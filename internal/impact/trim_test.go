// SPDX-License-Identifier: Apache-2.0

package impact_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead/internal/impact"
	"github.com/fairlead-io/fairlead/internal/impact/impacttest"
)

const secretive = `
{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: shop, annotations: {kubectl.kubernetes.io/last-applied-configuration: "{hidden}"}}, data: {password: aGlkZGVu}, stringData: {password: hidden}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: shop, managedFields: [{manager: hidden}]}, data: {password: hidden}}
---
{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: shop, annotations: {note: hidden}}, spec: {containers: [{name: web, env: [{name: PASSWORD, value: hidden}, {name: TOKEN, valueFrom: {secretKeyRef: {name: s, key: hidden-not}}}], envFrom: [{configMapRef: {name: c}}], livenessProbe: {exec: {command: [hidden]}}}], initContainers: [{name: init, env: [{name: A, value: hidden}]}]}, status: {message: hidden, conditions: [{type: Ready, status: "True", message: hidden}]}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, namespace: shop}, spec: {template: {spec: {containers: [{name: web, env: [{name: PASSWORD, value: hidden}]}]}}}}
---
{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: d, namespace: shop}, spec: {template: {spec: {containers: [{name: web, env: [{name: PASSWORD, value: hidden}]}]}}}}
---
{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: d, namespace: shop}, spec: {template: {spec: {containers: [{name: web, env: [{name: PASSWORD, value: hidden}]}]}}}}
---
{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: d, namespace: shop}, spec: {template: {spec: {containers: [{name: web, env: [{name: PASSWORD, value: hidden}]}]}}}}
---
{apiVersion: batch/v1, kind: Job, metadata: {name: d, namespace: shop}, spec: {template: {spec: {containers: [{name: web, env: [{name: PASSWORD, value: hidden}]}]}}}}
---
{apiVersion: batch/v1, kind: CronJob, metadata: {name: d, namespace: shop}, spec: {jobTemplate: {spec: {template: {spec: {containers: [{name: web, env: [{name: PASSWORD, value: hidden}]}]}}}}}}
---
{apiVersion: example.com/v1, kind: Anything, metadata: {name: a, namespace: shop, annotations: {note: hidden}}, spec: {password: hidden}}
`

// TestNoSecrets: nothing that a program is told in plain text gets into a State.
func TestNoSecrets(t *testing.T) {
	for o := range impacttest.State(t, secretive).All() {
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if left := strings.ReplaceAll(string(text), "hidden-not", ""); strings.Contains(left, "hidden") {
			t.Errorf("%s keeps what nobody reads: %s", o, text)
		}
	}
}

// TestTrimmed: what judges read is still there.
func TestTrimmed(t *testing.T) {
	s := impactPod(t)
	pod := s.PodsIn("shop")[0].Pod
	c := pod.Spec.Containers[0]
	if c.Name != "web" || len(c.Env) != 1 || c.Env[0].ValueFrom.SecretKeyRef.Name != "database" || len(c.VolumeMounts) != 2 || c.Ports[0].ContainerPort != 8080 {
		t.Errorf("of the container there is left %+v", c)
	}
	if len(pod.Spec.Volumes) != 2 || pod.Spec.Volumes[1].ConfigMap.Name != "settings" || len(pod.Spec.Volumes[0].Projected.Sources) != 1 {
		t.Errorf("of the volumes there is left %+v", pod.Spec.Volumes)
	}
	if pod.Status.Phase != corev1.PodRunning || len(pod.Status.Conditions) != 1 || pod.Status.PodIP == "" || pod.Spec.NodeName != "node-0" {
		t.Errorf("of status and node there is left %+v, %q", pod.Status, pod.Spec.NodeName)
	}
	o := s.PodsOn("node-0")[0]
	if len(o.Owners) != 1 || !o.Owners[0].Controller || o.UID == "" || o.Resource.Kind != "Pod" {
		t.Errorf("the object is %+v", o.Object)
	}
}

func impactPod(t *testing.T) *impact.State {
	t.Helper()
	s := impact.NewState(impacttest.Now)
	addPods(t, s, "shop", 1)
	return s
}

// TestComponentsAreKnown: what is left of a pod tells what component it is, also
// where that depends on a variable.
func TestComponentsAreKnown(t *testing.T) {
	for _, c := range []struct{ pod, want string }{
		{`{name: calico-node, env: [{name: DATASTORE_TYPE, value: kubernetes}, {name: PASSWORD, value: hidden}]}`, "calico-node"},
		{`{name: calico-node, env: [{name: DATASTORE_TYPE, value: etcdv3}]}`, ""},
		{`{name: cilium-agent}`, "cilium-agent"},
		{`{name: web}`, ""},
	} {
		s := impacttest.State(t, fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: shop}, spec: {containers: [%s]}, status: {phase: Running}}", c.pod))
		got := ""
		for _, r := range s.Components() {
			got = r.ID
		}
		if got != c.want {
			t.Errorf("%s is component %q, want %q", c.pod, got, c.want)
		}
	}
}
