// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/internal/evidence"
)

// Objects is what the API said in one sample. A slice may be empty because
// there are none, or because nobody asked: Complete tells which.
type Objects struct {
	Time time.Time // of the oldest list

	Services            []*corev1.Service
	EndpointSlices      []*discoveryv1.EndpointSlice
	Nodes               []*corev1.Node
	Pods                []*corev1.Pod
	ConfigMaps          []*corev1.ConfigMap
	ServiceAccounts     []*corev1.ServiceAccount
	DaemonSets          []*appsv1.DaemonSet
	Deployments         []*appsv1.Deployment
	Leases              []*coordinationv1.Lease
	Roles               []*rbacv1.Role
	RoleBindings        []*rbacv1.RoleBinding
	ClusterRoles        []*rbacv1.ClusterRole
	ClusterRoleBindings []*rbacv1.ClusterRoleBinding
	// Releases are the revisions of Helm releases, by the labels of what Helm keeps
	// them in.
	Releases []*metav1.PartialObjectMetadata
	// Others are of kinds that Fairlead has no types of.
	Others []*unstructured.Unstructured

	// records are where each object came from, by its pointer; lists are the
	// resources of which all objects are here.
	records map[any]*evidence.Record
	lists   map[string]*evidence.Record
	index   map[any]any // objects by keyOf their type
}

// keyOf names an object of a type.
type keyOf[T any] struct{ name string }

// Find returns the object of a type by its name, NAMESPACE/NAME unless it has no
// namespace; nil if it is not here. Objects without a type of their own, of type
// unstructured.Unstructured, are found as "KIND NAMESPACE/NAME".
func Find[T any](o *Objects, name string) *T {
	if o == nil {
		return nil
	}
	found, _ := o.index[keyOf[T]{name}].(*T)
	return found
}

// Complete says whether all objects of a resource are here: RESOURCE or
// RESOURCE.GROUP. Nil Objects have none.
func (o *Objects) Complete(resource string) bool { return o.List(resource) != nil }

// List returns the record that holds all objects of a resource; nil: none does.
func (o *Objects) List(resource string) *evidence.Record {
	if o == nil {
		return nil
	}
	return o.lists[resource]
}

// Record returns where an object, given as a pointer to it, came from.
func (o *Objects) Record(object any) *evidence.Record { return o.records[object] }
