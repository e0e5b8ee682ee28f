// SPDX-License-Identifier: Apache-2.0

package selectorempty

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/evidence"
)

// workload is what would make pods that a Service selects.
type workload struct {
	name            string // as "Deployment shop/web"
	wants           int    // how many of them
	shown           doctor.Evidence
	scale, describe string
}

// maker returns a workload whose pods would be selected; one that wants pods
// before one that wants none.
func maker(o *facts.Objects, namespace string, selects labels.Selector) (workload, bool) {
	var all []workload
	take := func(kind string, object metav1.Object, r *evidence.Record, template map[string]string, wants int) {
		if object.GetNamespace() == namespace && selects.Matches(labels.Set(template)) {
			all = append(all, named(kind, object, r, wants))
		}
	}
	for _, d := range o.Deployments {
		wants := 1
		if d.Spec.Replicas != nil {
			wants = int(*d.Spec.Replicas)
		}
		take("Deployment", d, o.Record(d), d.Spec.Template.Labels, wants)
	}
	for _, d := range o.DaemonSets {
		take("DaemonSet", d, o.Record(d), d.Spec.Template.Labels, int(d.Status.DesiredNumberScheduled))
	}
	for _, u := range o.Others {
		if u.GetKind() == "StatefulSet" || u.GetKind() == "ReplicaSet" {
			template, wants := untyped(u)
			take(u.GetKind(), u, o.Record(u), template, wants)
		}
	}
	for _, w := range all {
		if w.wants > 0 {
			return w, true
		}
	}
	if len(all) == 0 {
		return workload{}, false
	}
	return all[0], true
}

// untyped reads a workload that there is no type for. What it does not say is
// as the API server has it by default.
func untyped(u *unstructured.Unstructured) (template map[string]string, wants int) {
	template, _, err := unstructured.NestedStringMap(u.Object, "spec", "template", "metadata", "labels")
	if err != nil {
		return nil, 0
	}
	replicas, found, err := unstructured.NestedInt64(u.Object, "spec", "replicas")
	if err != nil || !found {
		return template, 1
	}
	return template, int(replicas)
}

func named(kind string, object metav1.Object, r *evidence.Record, wants int) workload {
	target := fmt.Sprintf("%s/%s", strings.ToLower(kind), object.GetName())
	return workload{
		name: fmt.Sprintf("%s %s/%s", kind, object.GetNamespace(), object.GetName()), wants: wants,
		shown:    doctor.Excerpt(r, fmt.Sprintf("%s/%s  %d pods wanted", object.GetNamespace(), object.GetName(), wants)),
		scale:    doctor.Kubectl(object.GetNamespace(), "scale", target, "--replicas=1"),
		describe: doctor.Kubectl(object.GetNamespace(), "describe", target),
	}
}
