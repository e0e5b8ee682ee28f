// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/internal/rbac"
)

// trim leaves out of an object what nobody who reads it needs: which fields were
// written and a second copy of the object, half of its size, and what programs of
// the cluster's users are told. Who wrote it when stays.
func trim(object *unstructured.Unstructured) {
	writers := object.GetManagedFields()
	for i := range writers {
		writers[i].FieldsV1 = nil
	}
	object.SetManagedFields(writers)
	unstructured.RemoveNestedField(object.Object, "metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration")
	if spec := podSpec(object); spec != nil && !ofSystem(object.GetNamespace(), spec) {
		hushed(spec)
	}
}

// podSpec is what the pods are that an object is, or makes; nil if it is none of
// these.
func podSpec(object *unstructured.Unstructured) map[string]any {
	path := []string{"spec", "template", "spec"}
	if object.GetKind() == "Pod" {
		path = path[:1]
	}
	spec, _, _ := unstructured.NestedFieldNoCopy(object.Object, path...)
	fields, _ := spec.(map[string]any)
	return fields
}

// ofSystem says of pods that they are a part of the cluster, or may be one by the
// name of a container: how those are started is what some defects depend on.
func ofSystem(namespace string, spec map[string]any) bool {
	priority, _ := spec["priorityClassName"].(string)
	if namespace == metav1.NamespaceSystem || strings.HasPrefix(priority, systemPriority) {
		return true
	}
	known := rbac.Components()
	return slices.ContainsFunc(containers(spec), func(k map[string]any) bool {
		return slices.ContainsFunc(known, func(c rbac.Component) bool { return k["name"] == c.Container })
	})
}

// hushed takes away what containers are started with. Passwords stand there
// under any name, and nothing of it is about Services.
func hushed(spec map[string]any) {
	for _, k := range containers(spec) {
		for _, field := range []string{"env", "args", "command", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe"} {
			delete(k, field)
		}
	}
}

func containers(spec map[string]any) (all []map[string]any) {
	for _, field := range []string{"containers", "initContainers", "ephemeralContainers"} {
		list, _ := spec[field].([]any)
		for _, one := range list {
			if k, is := one.(map[string]any); is {
				all = append(all, k)
			}
		}
	}
	return all
}
