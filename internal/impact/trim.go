// SPDX-License-Identifier: Apache-2.0

package impact

import (
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/internal/rbac"
)

// NewObject is an object of which its content, or no more than its metadata, is
// given. It keeps the content, trimmed, if some judge reads such objects.
func NewObject(r *Resource, content metav1.Object) *Object {
	o := &Object{
		Resource: r, Namespace: content.GetNamespace(), Name: content.GetName(), UID: content.GetUID(),
		Finalizers: content.GetFinalizers(), Deleting: content.GetDeletionTimestamp() != nil,
	}
	for _, ref := range content.GetOwnerReferences() {
		o.Owners = append(o.Owners, Owner{ref.UID, ref.Kind, ref.Name, ref.Controller != nil && *ref.Controller})
	}
	if isRead(r.GroupResource()) {
		trim(content)
		o.Content = content
	}
	return o
}

func isRead(gr schema.GroupResource) bool {
	return slices.ContainsFunc(kinds, func(k Kind) bool { return k.GroupResource() == gr })
}

// kinds are Kinds, made once.
var kinds = Kinds()

// trim takes from an object what no judge reads: half of a large cluster is
// that. What programs are told in plain text goes for another reason too:
// passwords stand there.
func trim(content metav1.Object) {
	content.SetManagedFields(nil)
	content.SetOwnerReferences(nil) // Owners are they
	delete(content.GetAnnotations(), corev1.LastAppliedConfigAnnotation)
	switch o := content.(type) {
	case *corev1.Pod:
		maps.DeleteFunc(o.Annotations, func(key, _ string) bool { return key != corev1.MirrorPodAnnotationKey })
		if len(o.Annotations) == 0 {
			o.Annotations = nil
		}
		trimSpec(&o.Spec)
		o.Status = trimStatus(o.Status)
	case *corev1.Node:
		o.Status = corev1.NodeStatus{Conditions: o.Status.Conditions, Addresses: o.Status.Addresses}
	case *appsv1.Deployment:
		trimSpec(&o.Spec.Template.Spec)
	case *appsv1.ReplicaSet:
		trimSpec(&o.Spec.Template.Spec)
	case *appsv1.StatefulSet:
		trimSpec(&o.Spec.Template.Spec)
	case *appsv1.DaemonSet:
		trimSpec(&o.Spec.Template.Spec)
	case *batchv1.Job:
		trimSpec(&o.Spec.Template.Spec)
	case *batchv1.CronJob:
		trimSpec(&o.Spec.JobTemplate.Spec.Template.Spec)
	}
}

// trimStatus keeps whether a pod runs, is ready, and at which addresses.
func trimStatus(s corev1.PodStatus) corev1.PodStatus {
	kept := corev1.PodStatus{Phase: s.Phase, PodIP: s.PodIP, PodIPs: s.PodIPs}
	for _, c := range s.Conditions {
		if c.Type == corev1.PodReady {
			kept.Conditions = []corev1.PodCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return kept
}

// trimSpec also copies the larger lists: read from JSON, a list of one has the
// room of four.
func trimSpec(s *corev1.PodSpec) {
	s.InitContainers, s.Containers, s.Volumes = slices.Clone(s.InitContainers), slices.Clone(s.Containers), slices.Clone(s.Volumes)
	for i := range s.InitContainers {
		trimContainer(&s.InitContainers[i])
	}
	for i := range s.Containers {
		trimContainer(&s.Containers[i])
	}
	for i := range s.Volumes {
		if p := s.Volumes[i].Projected; p != nil {
			p.Sources = slices.Clone(slices.DeleteFunc(p.Sources, func(v corev1.VolumeProjection) bool { return v.Secret == nil && v.ConfigMap == nil }))
		}
	}
	s.EphemeralContainers = nil
	s.Tolerations, s.TopologySpreadConstraints, s.ReadinessGates, s.HostAliases = nil, nil, nil, nil
}

// trimContainer keeps what it is called, starts with, mounts and refers to.
func trimContainer(c *corev1.Container) {
	*c = corev1.Container{
		Name: c.Name, Command: c.Command, Args: c.Args, Ports: c.Ports,
		EnvFrom: c.EnvFrom, VolumeMounts: slices.Clone(c.VolumeMounts), VolumeDevices: c.VolumeDevices,
		Env: slices.Clone(slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool { return e.ValueFrom == nil && !tells(c.Name, e) })),
	}
}

// tells says that a variable is one by which a component is known.
func tells(container string, e corev1.EnvVar) bool {
	return slices.ContainsFunc(rbac.Components(), func(k rbac.Component) bool {
		value, ok := k.Env[e.Name]
		return ok && k.Container == container && value == e.Value
	})
}
