// SPDX-License-Identifier: Apache-2.0

package impact

import (
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind is a kind of object that some judge reads.
type Kind struct {
	schema.GroupVersionResource
	// New makes an empty object into which JSON is read; of a
	// PartialObjectMetadata no more than that is asked for.
	New func() metav1.Object
}

// The resources that judges name.
var (
	Pods                 = core("pods")
	Namespaces           = core("namespaces")
	Nodes                = core("nodes")
	Services             = core("services")
	Secrets              = core("secrets")
	ConfigMaps           = core("configmaps")
	ServiceAccounts      = core("serviceaccounts")
	Claims               = core("persistentvolumeclaims")
	Volumes              = core("persistentvolumes")
	EndpointSlices       = in("discovery.k8s.io", "endpointslices")
	Deployments          = in("apps", "deployments")
	ReplicaSets          = in("apps", "replicasets")
	StatefulSets         = in("apps", "statefulsets")
	DaemonSets           = in("apps", "daemonsets")
	Jobs                 = in("batch", "jobs")
	CronJobs             = in("batch", "cronjobs")
	Ingresses            = in("networking.k8s.io", "ingresses")
	IngressClasses       = in("networking.k8s.io", "ingressclasses")
	NetworkPolicies      = in("networking.k8s.io", "networkpolicies")
	Roles                = in(rbacv1.GroupName, "roles")
	RoleBindings         = in(rbacv1.GroupName, "rolebindings")
	ClusterRoles         = in(rbacv1.GroupName, "clusterroles")
	ClusterRoleBindings  = in(rbacv1.GroupName, "clusterrolebindings")
	Definitions          = in("apiextensions.k8s.io", "customresourcedefinitions")
	APIServices          = in("apiregistration.k8s.io", "apiservices")
	ValidatingWebhooks   = in("admissionregistration.k8s.io", "validatingwebhookconfigurations")
	MutatingWebhooks     = in("admissionregistration.k8s.io", "mutatingwebhookconfigurations")
	AdmissionPolicies    = in("admissionregistration.k8s.io", "validatingadmissionpolicies")
	AdmissionBindings    = in("admissionregistration.k8s.io", "validatingadmissionpolicybindings")
	StorageClasses       = in("storage.k8s.io", "storageclasses")
	CSIDrivers           = in("storage.k8s.io", "csidrivers")
	VolumeAttachments    = in("storage.k8s.io", "volumeattachments")
	PriorityClasses      = in("scheduling.k8s.io", "priorityclasses")
	RuntimeClasses       = in("node.k8s.io", "runtimeclasses")
	Autoscalers          = in("autoscaling", "horizontalpodautoscalers")
	PodDisruptionBudgets = in("policy", "poddisruptionbudgets")
	Leases               = in("coordination.k8s.io", "leases")
)

func core(resource string) schema.GroupResource { return in("", resource) }

func in(group, resource string) schema.GroupResource {
	return schema.GroupResource{Group: group, Resource: resource}
}

// Kinds are all that some judge reads, with the version in which it does.
func Kinds() []Kind {
	kind := func(gr schema.GroupResource, version string, empty func() metav1.Object) Kind {
		return Kind{gr.WithVersion(version), empty}
	}
	return []Kind{
		kind(Pods, "v1", func() metav1.Object { return &corev1.Pod{} }),
		kind(Namespaces, "v1", func() metav1.Object { return &corev1.Namespace{} }),
		kind(Nodes, "v1", func() metav1.Object { return &corev1.Node{} }),
		kind(Services, "v1", func() metav1.Object { return &corev1.Service{} }),
		// Of Secrets and ConfigMaps nobody reads more than names and labels.
		kind(Secrets, "v1", func() metav1.Object { return &metav1.PartialObjectMetadata{} }),
		kind(ConfigMaps, "v1", func() metav1.Object { return &metav1.PartialObjectMetadata{} }),
		kind(ServiceAccounts, "v1", func() metav1.Object { return &corev1.ServiceAccount{} }),
		kind(Claims, "v1", func() metav1.Object { return &corev1.PersistentVolumeClaim{} }),
		kind(Volumes, "v1", func() metav1.Object { return &corev1.PersistentVolume{} }),
		kind(EndpointSlices, "v1", func() metav1.Object { return &discoveryv1.EndpointSlice{} }),
		kind(Deployments, "v1", func() metav1.Object { return &appsv1.Deployment{} }),
		kind(ReplicaSets, "v1", func() metav1.Object { return &appsv1.ReplicaSet{} }),
		kind(StatefulSets, "v1", func() metav1.Object { return &appsv1.StatefulSet{} }),
		kind(DaemonSets, "v1", func() metav1.Object { return &appsv1.DaemonSet{} }),
		kind(Jobs, "v1", func() metav1.Object { return &batchv1.Job{} }),
		kind(CronJobs, "v1", func() metav1.Object { return &batchv1.CronJob{} }),
		kind(Ingresses, "v1", func() metav1.Object { return &networkingv1.Ingress{} }),
		kind(IngressClasses, "v1", func() metav1.Object { return &networkingv1.IngressClass{} }),
		kind(NetworkPolicies, "v1", func() metav1.Object { return &networkingv1.NetworkPolicy{} }),
		kind(Roles, "v1", func() metav1.Object { return &rbacv1.Role{} }),
		kind(RoleBindings, "v1", func() metav1.Object { return &rbacv1.RoleBinding{} }),
		kind(ClusterRoles, "v1", func() metav1.Object { return &rbacv1.ClusterRole{} }),
		kind(ClusterRoleBindings, "v1", func() metav1.Object { return &rbacv1.ClusterRoleBinding{} }),
		kind(Definitions, "v1", func() metav1.Object { return &Definition{} }),
		kind(APIServices, "v1", func() metav1.Object { return &APIService{} }),
		kind(ValidatingWebhooks, "v1", func() metav1.Object { return &admissionv1.ValidatingWebhookConfiguration{} }),
		kind(MutatingWebhooks, "v1", func() metav1.Object { return &admissionv1.MutatingWebhookConfiguration{} }),
		kind(AdmissionPolicies, "v1", func() metav1.Object { return &admissionv1.ValidatingAdmissionPolicy{} }),
		kind(AdmissionBindings, "v1", func() metav1.Object { return &admissionv1.ValidatingAdmissionPolicyBinding{} }),
		kind(StorageClasses, "v1", func() metav1.Object { return &storagev1.StorageClass{} }),
		kind(CSIDrivers, "v1", func() metav1.Object { return &storagev1.CSIDriver{} }),
		kind(VolumeAttachments, "v1", func() metav1.Object { return &storagev1.VolumeAttachment{} }),
		kind(PriorityClasses, "v1", func() metav1.Object { return &schedulingv1.PriorityClass{} }),
		kind(RuntimeClasses, "v1", func() metav1.Object { return &nodev1.RuntimeClass{} }),
		kind(Autoscalers, "v2", func() metav1.Object { return &autoscalingv2.HorizontalPodAutoscaler{} }),
		kind(PodDisruptionBudgets, "v1", func() metav1.Object { return &policyv1.PodDisruptionBudget{} }),
		kind(Leases, "v1", func() metav1.Object { return &coordinationv1.Lease{} }),
	}
}

// KindOf is how judges want to have a kind of object, if any of them reads it.
func KindOf(gr schema.GroupResource) (Kind, bool) {
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.GroupResource() == gr })
	if i < 0 {
		return Kind{}, false
	}
	return kinds[i], true
}

// Definition is as much of a CustomResourceDefinition as judges read.
type Definition struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Group string `json:"group"`
		Scope string `json:"scope"` // Namespaced or Cluster
		Names struct {
			Plural string `json:"plural"`
			Kind   string `json:"kind"`
		} `json:"names"`
		Versions []struct {
			Name   string `json:"name"`
			Served bool   `json:"served"`
		} `json:"versions"`
		Conversion struct {
			Strategy string `json:"strategy"`
			Webhook  struct {
				ClientConfig admissionv1.WebhookClientConfig `json:"clientConfig"`
			} `json:"webhook"`
		} `json:"conversion"`
	} `json:"spec"`
}

// APIService is as much of an APIService as judges read.
type APIService struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Group   string `json:"group"`
		Version string `json:"version"`
		// Service is nil for what the API server serves itself.
		Service *struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		} `json:"service"`
	} `json:"spec"`
	Status struct {
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
	} `json:"status"`
}
