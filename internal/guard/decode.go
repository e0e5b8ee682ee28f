// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/internal/impact"
)

// decodeObject reads an object as the judges do; of kinds that no judge reads,
// or not in that version, its metadata. The second answer is the same object,
// with its labels and annotations.
func decodeObject(resource metav1.GroupVersionResource, kind string, raw []byte) (*impact.Object, metav1.Object, error) {
	r := &impact.Resource{
		GroupVersionResource: schema.GroupVersionResource{Group: resource.Group, Version: resource.Version, Resource: resource.Resource},
		Kind:                 kind,
	}
	content := emptyOf(r.GroupVersionResource)
	if len(raw) == 0 {
		return nil, nil, fmt.Errorf("the request has no %s that would go", kind)
	}
	if err := json.Unmarshal(raw, content); err != nil {
		return nil, nil, fmt.Errorf("reading the %s that would go: %w", kind, err)
	}
	if content.GetName() == "" || content.GetUID() == "" {
		return nil, nil, fmt.Errorf("the %s that would go has no name or no UID", kind)
	}
	r.Namespaced = content.GetNamespace() != ""
	return impact.NewObject(r, content), content, nil
}

func emptyOf(gvr schema.GroupVersionResource) metav1.Object {
	if kind, judged := impact.KindOf(gvr.GroupResource()); judged && kind.GroupVersionResource == gvr {
		return kind.New()
	}
	return &metav1.PartialObjectMetadata{}
}
