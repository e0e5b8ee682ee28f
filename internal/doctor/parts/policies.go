// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/internal/doctor/facts"
)

// Isolated are the namespaces with a policy for what leaves a pod. everywhere is
// that such a policy selects pods whatever their namespace.
func Isolated(o *facts.Objects) (namespaces map[string]bool, everywhere bool) {
	namespaces = map[string]bool{}
	if o == nil {
		return namespaces, false
	}
	for _, object := range o.Others {
		if !isPolicy[object.GetKind()] || !ofEgress(object) {
			continue
		}
		if namespace := object.GetNamespace(); namespace != "" {
			namespaces[namespace] = true
		} else {
			everywhere = true
		}
	}
	return namespaces, everywhere
}

// isPolicy are the kinds that may turn away what leaves a pod: Kubernetes', and
// those of Cilium and Calico.
var isPolicy = map[string]bool{
	"NetworkPolicy": true, "CiliumNetworkPolicy": true, "CiliumClusterwideNetworkPolicy": true, "GlobalNetworkPolicy": true,
	"AdminNetworkPolicy": true, "BaselineAdminNetworkPolicy": true, "ClusterNetworkPolicy": true,
}

// ofEgress says whether a policy is for what leaves a pod. Several kinds may have
// several rules in one object.
func ofEgress(object *unstructured.Unstructured) bool {
	rules, _, _ := unstructured.NestedSlice(object.Object, "specs")
	for _, rule := range append(rules, object.Object["spec"]) {
		spec, _ := rule.(map[string]any)
		for _, field := range []string{"egress", "egressDeny"} {
			if _, has := spec[field]; has {
				return true
			}
		}
		for _, field := range []string{"policyTypes", "types"} {
			types, _, _ := unstructured.NestedStringSlice(spec, field)
			if slices.Contains(types, "Egress") {
				return true
			}
		}
	}
	return false
}
