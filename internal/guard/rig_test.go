// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/impact"
	"github.com/fairlead-io/fairlead/internal/impact/impacttest"
)

// clusterYAML has a network whose agent has its rights by two bindings, a shop
// that is guarded as a whole, and what nobody uses.
const clusterYAML = `
{apiVersion: v1, kind: Namespace, metadata: {name: kube-system}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {fairlead.io/guard: "on"}}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: cilium, namespace: kube-system}}
---
apiVersion: v1
kind: Pod
metadata: {name: cilium-x, namespace: kube-system, labels: {k8s-app: cilium}}
spec: {nodeName: n1, serviceAccountName: cilium, containers: [{name: cilium-agent}]}
status: {phase: Running, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: cilium, labels: {fairlead.io/guard: "on"}}
rules:
- {apiGroups: [""], resources: [pods, nodes, namespaces, services], verbs: [get, list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
- {apiGroups: [networking.k8s.io], resources: [networkpolicies], verbs: [list, watch]}
- {apiGroups: [cilium.io], resources: ["*"], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: cilium, labels: {fairlead.io/guard: "on"}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cilium}
subjects: [{kind: ServiceAccount, name: cilium, namespace: kube-system}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: cilium-too, labels: {fairlead.io/guard: "on"}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cilium}
subjects: [{kind: ServiceAccount, name: cilium, namespace: kube-system}]
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: unused, labels: {fairlead.io/guard: "on"}}, rules: []}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: free}, rules: [{apiGroups: [""], resources: [events], verbs: [list]}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: free}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: free}
subjects: [{kind: ServiceAccount, name: cilium, namespace: kube-system}]
---
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {clusterIP: 10.96.0.80, selector: {app: web}, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: spared, namespace: shop, labels: {fairlead.io/guard: "off"}}, spec: {clusterIP: 10.96.0.81, ports: [{port: 80}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-a, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
endpoints: [{addresses: [10.0.1.7], nodeName: n1, conditions: {ready: true}, targetRef: {kind: Pod, namespace: shop, name: web-0}}]
ports: [{port: 8080}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: spared-a, namespace: shop, labels: {kubernetes.io/service-name: spared}}
addressType: IPv4
endpoints: [{addresses: [10.0.1.8], nodeName: n1, conditions: {ready: true}}]
ports: [{port: 8080}]
`

// known is a View of a State that does not change by itself.
type known struct {
	state *impact.State
	err   error
}

func (k known) State() (*impact.State, error) { return k.state, k.err }

func (k known) With(o *impact.Object) *impact.State {
	s := impact.NewState(k.state.Now)
	s.Add(o)
	for each := range k.state.All() {
		s.Add(each)
	}
	return s
}

// rig is a guard with what it logs.
type rig struct {
	*Guard
	state *impact.State
	log   *journal
}

// journal is what a guard logged.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func (j *journal) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func newRig(t testing.TB, enforce bool, yaml string) *rig {
	t.Helper()
	s := impacttest.State(t, yaml)
	return rigOf(known{state: s}, s, enforce)
}

func rigOf(v View, s *impact.State, enforce bool) *rig {
	log := &journal{}
	return &rig{New(v, enforce, NewMetrics(func() bool { return true }), log.logger()), s, log}
}

// change is what a case changes of a request.
type change func(t testing.TB, r *admissionv1.AdmissionRequest)

func by(user string, groups ...string) change {
	return func(_ testing.TB, r *admissionv1.AdmissionRequest) {
		r.UserInfo = authenticationv1.UserInfo{Username: user, Groups: groups}
	}
}

func dryRun(_ testing.TB, r *admissionv1.AdmissionRequest) { r.DryRun = new(true) }

// object changes what the request says of the object's metadata.
func object(edit func(*metav1.PartialObjectMetadata)) change {
	return func(t testing.TB, r *admissionv1.AdmissionRequest) {
		t.Helper()
		var fields map[string]any
		var m metav1.PartialObjectMetadata
		if err := json.Unmarshal(r.OldObject.Raw, &fields); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(r.OldObject.Raw, &m); err != nil {
			t.Fatal(err)
		}
		edit(&m)
		fields["metadata"] = m.ObjectMeta
		r.OldObject.Raw = encode(t, fields)
	}
}

func annotated(reason string) change {
	return object(func(m *metav1.PartialObjectMetadata) { m.Annotations = map[string]string{Override: reason} })
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// request is what an API server asks when ann deletes KIND/NAME or
// KIND/NAMESPACE/NAME.
func request(t testing.TB, s *impact.State, name string, changes ...change) *admissionv1.AdmissionRequest {
	t.Helper()
	return requestOf(t, impacttest.Roots(t, s, name)[0], changes...)
}

func requestOf(t testing.TB, o *impact.Object, changes ...change) *admissionv1.AdmissionRequest {
	t.Helper()
	r := &admissionv1.AdmissionRequest{
		UID:       types.UID("review of " + o.UID),
		Operation: admissionv1.Delete,
		Kind:      metav1.GroupVersionKind{Group: o.Resource.Group, Version: o.Resource.Version, Kind: o.Resource.Kind},
		Resource:  metav1.GroupVersionResource{Group: o.Resource.Group, Version: o.Resource.Version, Resource: o.Resource.Resource},
		Namespace: o.Namespace, Name: o.Name,
		UserInfo:  authenticationv1.UserInfo{Username: "ann", Groups: []string{"system:authenticated"}},
		OldObject: runtime.RawExtension{Raw: encode(t, o.Content)},
	}
	if o.Resource.GroupResource() == impact.Namespaces {
		r.Namespace = o.Name // as API servers have it
	}
	for _, c := range changes {
		c(t, r)
	}
	return r
}

// delete asks the rig for a delete.
func (r *rig) delete(t testing.TB, name string, changes ...change) *admissionv1.AdmissionResponse {
	t.Helper()
	return r.Review(request(t, r.state, name, changes...))
}

func told(warnings []string, part string) bool {
	for _, w := range warnings {
		if strings.Contains(w, part) {
			return true
		}
	}
	return false
}
