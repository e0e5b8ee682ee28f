// SPDX-License-Identifier: Apache-2.0

package mutations

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/evidence"
	"github.com/fairlead-io/fairlead/internal/rbac"
)

// component is the one that writes the tables of a world.
func (w *world) component() rbac.Component {
	id := map[facts.DataPlane]string{facts.PlaneFairlead: "fairlead", facts.PlaneCilium: "cilium-agent", facts.PlaneKubeProxy: "kube-proxy"}[w.plane]
	all := rbac.Components()
	return all[slices.IndexFunc(all, func(c rbac.Component) bool { return c.ID == id })]
}

func account(w *world) string { return "ServiceAccount kube-system/" + w.component().Account }

// node is the world's only one with tables.
func (w *world) node() string {
	for i := range w.bundle.Records {
		if r := &w.bundle.Records[i]; tableOf(r).edit != nil {
			return r.Node
		}
	}
	return ""
}

// permitted adds the component's workload to a bundle, and a role and a binding
// unless they are nil.
func permitted(w *world, role *rbacv1.ClusterRole, binding *rbacv1.ClusterRoleBinding) (*evidence.Bundle, error) {
	c := w.component()
	labels := map[string]string{"k8s-app": c.Account}
	for key, value := range c.Labels {
		labels[key] = value
	}
	spec := corev1.PodSpec{ServiceAccountName: c.Account, Containers: []corev1.Container{{Name: c.Container, Args: c.Args}}}
	// It dials no Service, which would be a finding of its own.
	spec.Containers[0].Env = []corev1.EnvVar{{Name: "KUBERNETES_SERVICE_HOST", Value: "192.0.2.200"}, {Name: "KUBERNETES_SERVICE_PORT", Value: "6443"}}
	for _, name := range c.Env {
		spec.Containers[0].Env = append(spec.Containers[0].Env, corev1.EnvVar{Name: name, Value: "x"})
	}
	workload := &appsv1.DaemonSet{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"}, ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: c.Account},
		Spec:   appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec}},
		Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 1},
	}
	lists := map[string][]any{
		"daemonsets.apps": {workload}, "roles.rbac.authorization.k8s.io": {}, "rolebindings.rbac.authorization.k8s.io": {},
		"clusterroles.rbac.authorization.k8s.io": {}, "clusterrolebindings.rbac.authorization.k8s.io": {},
	}
	if role != nil {
		lists["clusterroles.rbac.authorization.k8s.io"] = []any{role}
	}
	if binding != nil {
		lists["clusterrolebindings.rbac.authorization.k8s.io"] = []any{binding}
	}
	b := clone(w.bundle)
	for resource, items := range lists {
		b.Records = slices.DeleteFunc(b.Records, func(r evidence.Record) bool { return slices.Contains(r.Resources, resource) })
		content, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
		if err != nil {
			return nil, err
		}
		for sample := 1; sample <= 2; sample++ {
			b.Records = append(b.Records, evidence.Record{
				Path: path.Join(fmt.Sprint(sample), "objects", resource+".json"), Kind: evidence.Objects, Resources: []string{resource}, Sample: sample,
				Command: "kubectl get " + resource + " --all-namespaces --output json", Time: b.Records[len(b.Records)-1].Time, Content: content,
			})
		}
	}
	return b, nil
}

func (w *world) role() *rbacv1.ClusterRole {
	c := w.component()
	return &rbacv1.ClusterRole{TypeMeta: metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"}, ObjectMeta: metav1.ObjectMeta{Name: c.Role}, Rules: c.Needs}
}

func (w *world) binding() *rbacv1.ClusterRoleBinding {
	c := w.component()
	return &rbacv1.ClusterRoleBinding{
		TypeMeta: metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRoleBinding"}, ObjectMeta: metav1.ObjectMeta{Name: c.Binding},
		RoleRef:  rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: c.Role},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "kube-system", Name: c.Account}},
	}
}

func allowed(_ *rand.Rand, w *world) (*evidence.Bundle, error) {
	return permitted(w, w.role(), w.binding())
}

func withoutRole(_ *rand.Rand, w *world) (*evidence.Bundle, error) {
	return permitted(w, nil, w.binding())
}

func withoutBinding(_ *rand.Rand, w *world) (*evidence.Bundle, error) {
	return permitted(w, w.role(), nil)
}

func withoutVerb(r *rand.Rand, w *world) (*evidence.Bundle, error) {
	role := w.role().DeepCopy()
	rule := &role.Rules[r.IntN(len(role.Rules))]
	i := r.IntN(len(rule.Verbs))
	rule.Verbs = slices.Delete(rule.Verbs, i, i+1)
	return permitted(w, role, w.binding())
}

// refused has a log in which the API server refuses what the component needs.
func refused(r *rand.Rand, w *world) (*evidence.Bundle, error) {
	b, err := allowed(r, w)
	if err != nil {
		return nil, err
	}
	c := w.component()
	rule := c.Needs[r.IntN(len(c.Needs))]
	resource, group := rule.Resources[r.IntN(len(rule.Resources))], rule.APIGroups[0]
	last := b.Records[len(b.Records)-1].Time
	name := resource
	if group != "" {
		name += "." + group
	}
	// The log is all that is known of permissions.
	b.Records = slices.DeleteFunc(b.Records, func(r evidence.Record) bool {
		return slices.ContainsFunc(r.Resources, func(resource string) bool { return strings.HasSuffix(resource, "rbac.authorization.k8s.io") })
	})
	line := fmt.Sprintf("E%s       1 reflector.go:205] Failed to watch: %s is forbidden: User \"system:serviceaccount:kube-system:%s\" cannot list resource \"%s\" in API group \"%s\" at the cluster scope\n",
		last.UTC().Format("0102 15:04:05.000000"), name, c.Account, resource, group)
	pod := c.Account + "-x7k2p"
	b.Records = append(b.Records, evidence.Record{
		Path: "logs/" + w.node() + "/kube-system_" + pod + "_" + c.Container + ".log", Kind: evidence.Log, Node: w.node(), Pod: "kube-system/" + pod, Container: c.Container,
		Command: "kubectl --namespace kube-system logs " + pod, Time: last.Add(time.Second), Content: []byte(strings.Repeat(line, 1+r.IntN(5))),
	})
	return b, nil
}

// initPods has endpoints without labels in the agent's list, as Cilium prints it.
func initPods(r *rand.Rand, w *world) (*evidence.Bundle, error) {
	b := clone(w.bundle)
	const row = "%-11d%-19s%-18s%-11d%-31s%-7s%-13s%s\n"
	text := bytes.NewBufferString("ENDPOINT   POLICY (ingress)   POLICY (egress)   IDENTITY   LABELS (source:key[=value])   IPv6   IPv4         STATUS   \n           ENFORCEMENT        ENFORCEMENT\n")
	fmt.Fprintf(text, row, 412, "Disabled", "Disabled", 1, "reserved:host", "", "", "ready")
	for i := range 1 + r.IntN(4) {
		fmt.Fprintf(text, row, 3000+i, "Enabled", "Enabled", 5, "reserved:init", "", fmt.Sprintf("10.0.1.%d", 100+i), "ready")
	}
	for sample := 1; sample <= 2; sample++ {
		b.Records = append(b.Records, evidence.Record{
			Path: path.Join(fmt.Sprint(sample), "nodes", w.node(), "cilium-endpoints.txt"), Kind: evidence.CiliumEndpoints, Node: w.node(), Sample: sample,
			Command: "cilium-dbg endpoint list", Time: b.Records[0].Time.Add(time.Duration(sample) * 10 * time.Second), Content: text.Bytes(),
		})
	}
	return b, nil
}

// emptied takes the endpoints of default/kubernetes out of the API, and out of
// all tables.
func emptied(_ *rand.Rand, w *world) (*evidence.Bundle, error) {
	i := slices.IndexFunc(w.services, func(s service) bool { return s.name().String() == "default/kubernetes" })
	if i < 0 {
		return nil, errUnchanged
	}
	f := fault{change: empty, service: &w.services[i]}
	b := clone(w.bundle)
	if err := edit(b, func(r *evidence.Record) ([]byte, error) {
		if table := tableOf(r); table.edit != nil {
			return table.edit(r.Content, &f)
		}
		return nil, nil
	}); err != nil {
		return nil, err
	}
	objects := facts.Read(w.bundle).Last().Objects
	var items []any
	for _, slice := range objects.EndpointSlices {
		if slice.Namespace == "default" && slice.Labels[discoveryv1.LabelServiceName] == "kubernetes" {
			slice = slice.DeepCopy()
			slice.Endpoints = nil
		}
		slice.APIVersion, slice.Kind = "discovery.k8s.io/v1", "EndpointSlice"
		items = append(items, slice)
	}
	content, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	if err != nil {
		return nil, err
	}
	return b, edit(b, func(r *evidence.Record) ([]byte, error) {
		if slices.Contains(r.Resources, "endpointslices.discovery.k8s.io") {
			return content, nil
		}
		return nil, nil
	})
}
