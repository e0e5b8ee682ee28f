// SPDX-License-Identifier: Apache-2.0

package impact_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// rightsCluster makes manifests of lines as people say them:
//
//	clusterrole NAME VERBS RESOURCES … [label:KEY] [aggregates:KEY] [names:A,B]
//	role NAMESPACE/NAME VERBS RESOURCES …
//	clusterrolebinding NAME ROLE SUBJECT … [label:KEY]
//	rolebinding NAMESPACE/NAME ROLE|role:ROLE SUBJECT …
//	account NAMESPACE/NAME
//	namespace NAME
//	pods KIND NAMESPACE/NAME N ACCOUNT CONTAINER [host] [ended] [static] [tokenless] [label:KEY=VALUE] [env:KEY=VALUE] [arg:ARG]
//	maker KIND NAMESPACE/NAME ACCOUNT N
//
// A resource is RESOURCE[.GROUP] or a path; a subject NAMESPACE/ACCOUNT,
// user:NAME or group:NAME.
func rightsCluster(t testing.TB, text string) string {
	t.Helper()
	var docs []string
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		for _, o := range rightsObjects(t, words[0], words[1], words[2:]) {
			data, err := yaml.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			docs = append(docs, string(data))
		}
	}
	return strings.Join(docs, "---\n")
}

func rightsObjects(t testing.TB, kind, name string, words []string) []any {
	t.Helper()
	meta := metav1.ObjectMeta{Name: name}
	if namespace, rest, has := strings.Cut(name, "/"); has {
		meta.Namespace, meta.Name = namespace, rest
	}
	words, options := options(words)
	if key, has := options["label"]; has {
		label, value, _ := strings.Cut(key, "=")
		meta.Labels = map[string]string{label: value}
	}
	rbacOf := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: kind}
	}
	switch kind {
	case "clusterrole":
		role := &rbacv1.ClusterRole{TypeMeta: rbacOf("ClusterRole"), ObjectMeta: meta, Rules: rightsRules(words, options)}
		if key, has := options["aggregates"]; has {
			role.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{key: ""}}}}
		}
		return []any{role}
	case "role":
		return []any{&rbacv1.Role{TypeMeta: rbacOf("Role"), ObjectMeta: meta, Rules: rightsRules(words, options)}}
	case "clusterrolebinding":
		return []any{&rbacv1.ClusterRoleBinding{TypeMeta: rbacOf("ClusterRoleBinding"), ObjectMeta: meta, RoleRef: roleRef(words[0]), Subjects: subjects(words[1:])}}
	case "rolebinding":
		return []any{&rbacv1.RoleBinding{TypeMeta: rbacOf("RoleBinding"), ObjectMeta: meta, RoleRef: roleRef(words[0]), Subjects: subjects(words[1:])}}
	case "account":
		return []any{&corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: meta}}
	case "namespace":
		return []any{&corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: meta}}
	case "pods":
		return podsOf(t, name, words, options)
	case "maker":
		namespace, of, _ := strings.Cut(words[0], "/")
		n, err := strconv.Atoi(words[2])
		if err != nil {
			t.Fatal(err)
		}
		return []any{maker(name, namespace, of, corev1.PodSpec{ServiceAccountName: words[1], Containers: []corev1.Container{{Name: "c"}}}, n)}
	}
	t.Fatalf("no kind %s", kind)
	return nil
}

func options(words []string) (rest []string, options map[string]string) {
	options = map[string]string{}
	for _, w := range words {
		switch key, value, _ := strings.Cut(w, ":"); {
		case key == "label" || key == "aggregates" || key == "names" || key == "env" || key == "arg":
			options[key] = value
		case w == "host" || w == "ended" || w == "static" || w == "tokenless":
			options[w] = ""
		default:
			rest = append(rest, w)
		}
	}
	return rest, options
}

func rightsRules(words []string, options map[string]string) (rules []rbacv1.PolicyRule) {
	for i := 0; i+1 < len(words); i += 2 {
		for _, resource := range strings.Split(words[i+1], ",") {
			rule := rbacv1.PolicyRule{Verbs: strings.Split(words[i], ",")}
			if strings.HasPrefix(resource, "/") {
				rule.NonResourceURLs = []string{resource}
			} else {
				resource, group, _ := strings.Cut(resource, ".")
				rule.Resources, rule.APIGroups = []string{resource}, []string{group}
			}
			if names, has := options["names"]; has {
				rule.ResourceNames = strings.Split(names, ",")
			}
			rules = append(rules, rule)
		}
	}
	return rules
}

func roleRef(name string) rbacv1.RoleRef {
	if role, is := strings.CutPrefix(name, "role:"); is {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role}
	}
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
}

func subjects(words []string) (out []rbacv1.Subject) {
	for _, w := range words {
		if user, is := strings.CutPrefix(w, "user:"); is {
			out = append(out, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: user})
		} else if group, is := strings.CutPrefix(w, "group:"); is {
			out = append(out, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "Group", Name: group})
		} else {
			namespace, name, _ := strings.Cut(w, "/")
			out = append(out, rbacv1.Subject{Kind: "ServiceAccount", Namespace: namespace, Name: name})
		}
	}
	return out
}

// podsOf are pods under what makes them: KIND NAMESPACE/NAME N ACCOUNT CONTAINER.
func podsOf(t testing.TB, kind string, words []string, options map[string]string) []any {
	t.Helper()
	namespace, name, _ := strings.Cut(words[0], "/")
	n, err := strconv.Atoi(words[1])
	if err != nil {
		t.Fatal(err)
	}
	yes := true
	one := corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, Controller: &yes}}},
		Spec:       corev1.PodSpec{ServiceAccountName: words[2], Containers: []corev1.Container{{Name: words[3]}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	adorn(&one, options)
	var all []any
	if len(one.OwnerReferences) > 0 {
		all = append(all, maker(kind, namespace, name, one.Spec, n))
	}
	for i := range n {
		pod := one
		pod.Name = fmt.Sprintf("%s-%d", name, i)
		all = append(all, pod)
	}
	return all
}

func adorn(pod *corev1.Pod, options map[string]string) {
	if label, has := options["label"]; has {
		key, value, _ := strings.Cut(label, "=")
		pod.Labels = map[string]string{key: value}
	}
	if env, has := options["env"]; has {
		key, value, _ := strings.Cut(env, "=")
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: key, Value: value}}
	}
	if arg, has := options["arg"]; has {
		pod.Spec.Containers[0].Args = []string{arg}
	}
	if _, has := options["host"]; has {
		pod.Spec.Volumes = []corev1.Volume{{Name: "k", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/x/kubeconfig"}}}}
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "k", MountPath: "/k"}}
	}
	if _, has := options["ended"]; has {
		pod.Status.Phase = corev1.PodSucceeded
	}
	if _, has := options["static"]; has {
		pod.Annotations, pod.OwnerReferences = map[string]string{corev1.MirrorPodAnnotationKey: "x"}, nil
	}
	if _, has := options["tokenless"]; has {
		no := false
		pod.Spec.AutomountServiceAccountToken = &no
	}
}

// maker is a workload that makes such pods.
func maker(kind, namespace, name string, pod corev1.PodSpec, n int) any {
	template := map[string]any{"spec": pod}
	spec := map[string]any{"template": template, "selector": map[string]any{}}
	version := "apps/v1"
	switch kind {
	case "Deployment", "StatefulSet":
		spec["replicas"] = n
	case "CronJob":
		version, spec = "batch/v1", map[string]any{"schedule": "@daily", "jobTemplate": map[string]any{"spec": map[string]any{"template": template}}}
	}
	return map[string]any{"apiVersion": version, "kind": kind, "metadata": map[string]any{"namespace": namespace, "name": name}, "spec": spec}
}
