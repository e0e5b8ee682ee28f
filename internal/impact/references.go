// SPDX-License-Identifier: Apache-2.0

package impact

import (
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// reference is that one object names another, which the API server lets go all
// the same.
type reference struct {
	from     *Object
	how      string // mounts, runs as
	optional bool
}

// How pods and others use what they name.
const (
	mounts     = "mounts"
	reads      = "takes its environment from"
	pullsWith  = "pulls images with"
	runsAs     = "runs as"
	ranksBy    = "takes its priority from"
	runsIn     = "runs in"
	encrypts   = "serves TLS with"
	routesTo   = "routes to"
	isOfClass  = "is of"
	isBoundTo  = "is bound to"
	attaches   = "attaches"
	scales     = "scales"
	opensWith  = "is opened with"
	handedDown = "hands to its pods"
)

// references are all references, by what they name.
var references = newIndex(func(s *State) map[Key][]reference {
	r := refs{}
	for _, gr := range []schema.GroupResource{
		Pods, Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs, CronJobs, ServiceAccounts,
		Ingresses, Claims, Volumes, VolumeAttachments, Autoscalers,
	} {
		for _, o := range s.Of(gr) {
			r.read(o)
		}
	}
	return r
})

type refs map[Key][]reference

func (r refs) add(from *Object, how string, optional *bool, gr schema.GroupResource, namespace, name string) {
	if name == "" {
		return
	}
	key := Key{gr, namespace, name}
	r[key] = append(r[key], reference{from, how, optional != nil && *optional})
}

func (r refs) read(o *Object) {
	if spec := podSpec(o); spec != nil {
		r.pod(o, spec)
	}
	switch content := o.Content.(type) {
	case *appsv1.StatefulSet:
		for i := range content.Spec.VolumeClaimTemplates {
			r.claim(o, &content.Spec.VolumeClaimTemplates[i].Spec)
		}
	case *corev1.ServiceAccount:
		for _, s := range content.ImagePullSecrets {
			r.add(o, handedDown, nil, Secrets, o.Namespace, s.Name)
		}
	case *networkingv1.Ingress:
		r.ingress(o, content)
	case *corev1.PersistentVolumeClaim:
		r.claim(o, &content.Spec)
		r.add(o, isBoundTo, nil, Volumes, "", content.Spec.VolumeName)
	case *corev1.PersistentVolume:
		r.volume(o, &content.Spec)
	case *storagev1.VolumeAttachment:
		r.add(o, attaches, nil, CSIDrivers, "", content.Spec.Attacher)
	case *autoscalingv2.HorizontalPodAutoscaler:
		if gr, ok := scalable[content.Spec.ScaleTargetRef.Kind]; ok {
			r.add(o, scales, nil, gr, o.Namespace, content.Spec.ScaleTargetRef.Name)
		}
	}
}

// scalable are the kinds that autoscalers scale.
var scalable = map[string]schema.GroupResource{
	"Deployment": Deployments, "ReplicaSet": ReplicaSets, "StatefulSet": StatefulSets,
}

// podSpec is what pods are made from, or a pod's own; nil of other kinds.
func podSpec(o *Object) *corev1.PodSpec {
	if pod, ok := o.Content.(*corev1.Pod); ok {
		return &pod.Spec
	}
	if t := template(o); t != nil {
		return &t.Spec
	}
	return nil
}

// template is what an object makes pods from; nil if it makes none.
func template(o *Object) *corev1.PodTemplateSpec {
	switch content := o.Content.(type) {
	case *appsv1.Deployment:
		return &content.Spec.Template
	case *appsv1.ReplicaSet:
		return &content.Spec.Template
	case *appsv1.StatefulSet:
		return &content.Spec.Template
	case *appsv1.DaemonSet:
		return &content.Spec.Template
	case *batchv1.Job:
		return &content.Spec.Template
	case *batchv1.CronJob:
		return &content.Spec.JobTemplate.Spec.Template
	}
	return nil
}

func (r refs) pod(o *Object, spec *corev1.PodSpec) {
	account := spec.ServiceAccountName
	if account == "" {
		account = "default"
	}
	r.add(o, runsAs, nil, ServiceAccounts, o.Namespace, account)
	r.add(o, ranksBy, nil, PriorityClasses, "", spec.PriorityClassName)
	if spec.RuntimeClassName != nil {
		r.add(o, runsIn, nil, RuntimeClasses, "", *spec.RuntimeClassName)
	}
	for _, s := range spec.ImagePullSecrets {
		r.add(o, pullsWith, nil, Secrets, o.Namespace, s.Name)
	}
	for i := range spec.Volumes {
		r.podVolume(o, &spec.Volumes[i])
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			r.environment(o, &containers[i])
		}
	}
}

func (r refs) environment(o *Object, c *corev1.Container) {
	for _, e := range c.EnvFrom {
		if s := e.SecretRef; s != nil {
			r.add(o, reads, s.Optional, Secrets, o.Namespace, s.Name)
		}
		if m := e.ConfigMapRef; m != nil {
			r.add(o, reads, m.Optional, ConfigMaps, o.Namespace, m.Name)
		}
	}
	for _, e := range c.Env {
		if e.ValueFrom == nil {
			continue
		}
		if s := e.ValueFrom.SecretKeyRef; s != nil {
			r.add(o, reads, s.Optional, Secrets, o.Namespace, s.Name)
		}
		if m := e.ValueFrom.ConfigMapKeyRef; m != nil {
			r.add(o, reads, m.Optional, ConfigMaps, o.Namespace, m.Name)
		}
	}
}

func (r refs) podVolume(o *Object, v *corev1.Volume) {
	if s := v.Secret; s != nil {
		r.add(o, mounts, s.Optional, Secrets, o.Namespace, s.SecretName)
	}
	if m := v.ConfigMap; m != nil {
		r.add(o, mounts, m.Optional, ConfigMaps, o.Namespace, m.Name)
	}
	if v.Projected != nil {
		for _, p := range v.Projected.Sources {
			if s := p.Secret; s != nil {
				r.add(o, mounts, s.Optional, Secrets, o.Namespace, s.Name)
			}
			if m := p.ConfigMap; m != nil {
				r.add(o, mounts, m.Optional, ConfigMaps, o.Namespace, m.Name)
			}
		}
	}
	if c := v.PersistentVolumeClaim; c != nil {
		r.add(o, mounts, nil, Claims, o.Namespace, c.ClaimName)
	}
	if e := v.Ephemeral; e != nil && e.VolumeClaimTemplate != nil {
		r.claim(o, &e.VolumeClaimTemplate.Spec)
		if _, ok := o.Content.(*corev1.Pod); ok {
			r.add(o, mounts, nil, Claims, o.Namespace, o.Name+"-"+v.Name)
		}
	}
	if c := v.CSI; c != nil {
		r.add(o, mounts, nil, CSIDrivers, "", c.Driver)
		r.local(o, c.NodePublishSecretRef)
	}
	r.oldVolume(o, &v.VolumeSource)
}

// oldVolume reads the kinds of volume that came before CSI and name a Secret.
func (r refs) oldVolume(o *Object, v *corev1.VolumeSource) {
	if v.AzureFile != nil {
		r.add(o, opensWith, nil, Secrets, o.Namespace, v.AzureFile.SecretName)
	}
	if v.CephFS != nil {
		r.local(o, v.CephFS.SecretRef)
	}
	if v.RBD != nil {
		r.local(o, v.RBD.SecretRef)
	}
	if v.ISCSI != nil {
		r.local(o, v.ISCSI.SecretRef)
	}
	if v.FlexVolume != nil {
		r.local(o, v.FlexVolume.SecretRef)
	}
}

func (r refs) local(o *Object, s *corev1.LocalObjectReference) {
	if s != nil {
		r.add(o, opensWith, nil, Secrets, o.Namespace, s.Name)
	}
}

func (r refs) claim(o *Object, spec *corev1.PersistentVolumeClaimSpec) {
	if spec.StorageClassName != nil {
		r.add(o, isOfClass, nil, StorageClasses, "", *spec.StorageClassName)
	}
}

func (r refs) volume(o *Object, spec *corev1.PersistentVolumeSpec) {
	r.add(o, isOfClass, nil, StorageClasses, "", spec.StorageClassName)
	if spec.CSI == nil {
		return
	}
	r.add(o, attaches, nil, CSIDrivers, "", spec.CSI.Driver)
	for _, s := range []*corev1.SecretReference{
		spec.CSI.NodePublishSecretRef, spec.CSI.NodeStageSecretRef, spec.CSI.ControllerPublishSecretRef,
		spec.CSI.ControllerExpandSecretRef, spec.CSI.NodeExpandSecretRef,
	} {
		if s != nil {
			r.add(o, opensWith, nil, Secrets, s.Namespace, s.Name)
		}
	}
}

func (r refs) ingress(o *Object, content *networkingv1.Ingress) {
	for _, tls := range content.Spec.TLS {
		r.add(o, encrypts, nil, Secrets, o.Namespace, tls.SecretName)
	}
	r.add(o, isOfClass, nil, IngressClasses, "", ingressClass(content))
	for _, service := range backendsOf(content) {
		r.add(o, routesTo, nil, Services, o.Namespace, service)
	}
}

// ingressClass is the class that an Ingress names, also in the old way.
func ingressClass(i *networkingv1.Ingress) string {
	if i.Spec.IngressClassName != nil {
		return *i.Spec.IngressClassName
	}
	return i.Annotations["kubernetes.io/ingress.class"]
}

// backendsOf are the Services that an Ingress names, each once.
func backendsOf(i *networkingv1.Ingress) []string {
	seen := map[string]bool{}
	var out []string
	add := func(b *networkingv1.IngressBackend) {
		if b != nil && b.Service != nil && !seen[b.Service.Name] {
			seen[b.Service.Name] = true
			out = append(out, b.Service.Name)
		}
	}
	add(i.Spec.DefaultBackend)
	for _, rule := range i.Spec.Rules {
		if rule.HTTP == nil {
			continue
		}
		for j := range rule.HTTP.Paths {
			add(&rule.HTTP.Paths[j].Backend)
		}
	}
	return out
}
