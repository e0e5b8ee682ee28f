// SPDX-License-Identifier: Apache-2.0

// Package restore holds a cluster against what should be there, by a Helm
// release, a journal or manifests, and makes again what is missing.
//
// It changes no object that exists, and forces nothing: what differs is told,
// with the values of secrets left out. Why something is missing, and who should
// have rights, may not enter.
package restore

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// FieldManager is who the API server says has made what is restored.
const FieldManager = "fairlead-restore"

// Wanted is what should be there.
type Wanted struct {
	// Source says where that is known from, and By is its kind in one word:
	// release, journal or manifest.
	Source, By string
	// Namespace is that of objects that name none.
	Namespace string
	Objects   []Object
	// LeftOut says of what stands in the source why it is not wanted.
	LeftOut []string
}

// Object is one object that should be there.
type Object struct {
	*unstructured.Unstructured
	// Refused is why it cannot be made if it is missing; empty if it can.
	Refused string
}

// add takes an object in, as it can be made: without what only the API server
// writes.
func (w *Wanted) add(u *unstructured.Unstructured) {
	o := Object{Unstructured: u, Refused: refusal(u)}
	strip(u)
	w.Objects = append(w.Objects, o)
}

// refusal says why an object must not be made by a program.
func refusal(u *unstructured.Unstructured) string {
	switch {
	case u.GetName() == "" && u.GetGenerateName() != "":
		return fmt.Sprintf("it has no name, only generateName %s: who makes it again makes another one; use kubectl create", u.GetGenerateName())
	case u.GetName() == "":
		return "it has no name"
	case u.GroupVersionKind().GroupKind() == schema.GroupKind{Group: "batch", Kind: "Job"}:
		return "a Job would run once more: if that is meant, use kubectl create"
	}
	return ""
}

// serverFields are those of an object's metadata that belong to one life of it.
var serverFields = []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"}

// boundNotes are annotations by which a claim is believed to have its volume.
var boundNotes = []string{"pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller"}

func strip(u *unstructured.Unstructured) {
	delete(u.Object, "status")
	metadata, _ := u.Object["metadata"].(map[string]any)
	for _, field := range serverFields {
		delete(metadata, field)
	}
	if annotations, isMap := metadata["annotations"].(map[string]any); isMap {
		for _, note := range boundNotes {
			delete(annotations, note)
		}
	}
}

// kinds names the kinds of what is wanted.
func (w *Wanted) kinds() string {
	seen := map[string]bool{}
	for _, o := range w.Objects {
		seen[o.GetKind()] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(seen)), ", ")
}

// reference names an object as KIND NAMESPACE/NAME.
func reference(kind, namespace, name string) string {
	if namespace != "" {
		name = namespace + "/" + name
	}
	return kind + " " + name
}

// ranks say what is made before what: an object comes after those that it
// cannot do without. What stands in no row comes before workloads.
var ranks = [][]string{
	{"Namespace"},
	{"ClusterRole", "Role"},
	{"ClusterRoleBinding", "RoleBinding"},
	{"ServiceAccount"},
	{"CustomResourceDefinition"},
	{"PriorityClass", "StorageClass", "RuntimeClass", "IngressClass", "CSIDriver", "ResourceQuota", "LimitRange"},
	{"ConfigMap", "Secret"},
	{"PersistentVolume", "PersistentVolumeClaim"},
	{"Service", "EndpointSlice", "NetworkPolicy"},
	{},
	{"DaemonSet", "Deployment", "StatefulSet", "ReplicaSet", "ReplicationController", "CronJob", "Pod"},
	// They call workloads, and refuse requests until these answer.
	{"APIService", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"},
}

func rank(kind string) int {
	others := 0
	for i, kinds := range ranks {
		if slices.Contains(kinds, kind) {
			return i
		}
		if len(kinds) == 0 {
			others = i
		}
	}
	return others
}

func inOrder(a, b *Item) int {
	return cmp.Or(cmp.Compare(rank(a.Kind), rank(b.Kind)), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
