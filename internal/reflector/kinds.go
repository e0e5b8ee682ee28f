// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"fmt"
	"reflect"
	"strings"

	yaml "go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kinds knows which objects of a manifest are read, and which are a mistake.
type kinds struct {
	scheme *runtime.Scheme // every kind of the two API groups that are read
}

func newKinds() (kinds, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return kinds{}, fmt.Errorf("registering the kinds of manifests: %w", err)
		}
	}
	return kinds{scheme}, nil
}

// complaint is what is wrong with the kind of an object.
type complaint struct{ field, message string }

// find returns an empty object to decode into; nothing for an object that is
// not read, with a complaint if it looks as if it should have been: one of
// another group that has the name of ours, or one that no group has.
func (k kinds) find(h head) (into metav1.Object, kind Kind, wrong complaint) {
	core, discovery := corev1.SchemeGroupVersion.String(), discoveryv1.SchemeGroupVersion.String()
	switch {
	case h.kind == "":
		return nil, 0, complaint{"kind", "the kind is missing"}
	case h.apiVersion == "":
		return nil, 0, complaint{"apiVersion", "the apiVersion is missing"}
	case h.apiVersion == core && h.kind == KindService.String():
		return &corev1.Service{}, KindService, complaint{}
	case h.apiVersion == core && h.kind == KindNode.String():
		return &corev1.Node{}, KindNode, complaint{}
	case h.apiVersion == discovery && h.kind == KindEndpointSlice.String():
		return &discoveryv1.EndpointSlice{}, KindEndpointSlice, complaint{}
	case h.apiVersion == core || h.apiVersion == discovery:
		if k.scheme.Recognizes(schema.FromAPIVersionAndKind(h.apiVersion, h.kind)) {
			return nil, 0, complaint{}
		}
		return nil, 0, complaint{"kind", fmt.Sprintf("%s is no kind of %s; Service and Node of %s and EndpointSlice of %s are read",
			quote(h.kind), h.apiVersion, core, discovery)}
	}
	for kind, version := range map[Kind]string{KindService: core, KindNode: core, KindEndpointSlice: discovery} {
		if strings.EqualFold(h.kind, kind.String()) {
			return nil, 0, complaint{"apiVersion", fmt.Sprintf("ignored: the %s of %s is another kind of object; the one of %s is read",
				kind, quote(h.apiVersion), version)}
		}
	}
	return nil, 0, complaint{}
}

// list says whether an object is a list, and what its items are unless they
// say so themselves.
func (kinds) list(h head) (item head, isList bool) {
	core, discovery := corev1.SchemeGroupVersion.String(), discoveryv1.SchemeGroupVersion.String()
	switch {
	case h.apiVersion == core && h.kind == "List":
		return head{}, true
	case h.apiVersion == core && (h.kind == "ServiceList" || h.kind == "NodeList"),
		h.apiVersion == discovery && h.kind == "EndpointSliceList":
		return head{apiVersion: h.apiVersion, kind: strings.TrimSuffix(h.kind, "List")}, true
	}
	return head{}, false
}

// hasType says whether a YAML value is what the JSON decoder calls a string,
// a number, a bool, an array or an object.
func hasType(name string) func(*yaml.Node) bool {
	return func(n *yaml.Node) bool {
		switch {
		case n.Kind == yaml.SequenceNode:
			return name == "array"
		case n.Kind == yaml.MappingNode:
			return name == "object"
		case n.Tag == "!!int", n.Tag == "!!float":
			return strings.HasPrefix(name, "number")
		case n.Tag == "!!bool":
			return name == "bool"
		}
		// What YAML 1.1 takes for a bool or a number, YAML 1.2 may call a string.
		return n.Kind == yaml.ScalarNode
	}
}

// typeName says in words what a field holds.
func typeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "a mapping"
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "a whole number"
	}
	return "a " + t.String()
}

// article puts "a" or "an" before a word of the JSON decoder.
func article(word string) string {
	if strings.HasPrefix(word, "a") || strings.HasPrefix(word, "o") {
		return "an " + word
	}
	return "a " + word
}
