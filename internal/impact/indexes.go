// SPDX-License-Identifier: Apache-2.0

package impact

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// index is a table in which judges look up what is in a State. Every State
// builds its own, once, when somebody first asks for it; so a judge that has
// nothing to judge costs nothing, and one deleted object costs no scan.
type index[T any] struct{ build func(*State) T }

func newIndex[T any](build func(*State) T) *index[T] { return &index[T]{build} }

// of is the index of a State to which nothing is added any more.
func (i *index[T]) of(s *State) T {
	built, ok := s.indexes.Load(i)
	if !ok {
		built, _ = s.indexes.LoadOrStore(i, sync.OnceValue(func() T { return i.build(s) }))
	}
	return built.(func() T)()
}

// PodOf is a pod with the object that it is.
type PodOf struct {
	*Object
	Pod *corev1.Pod
}

var (
	podsByNamespace = newIndex(func(s *State) map[string][]PodOf {
		return podsBy(s, func(p *corev1.Pod) string { return p.Namespace })
	})
	podsByNode = newIndex(func(s *State) map[string][]PodOf {
		return podsBy(s, func(p *corev1.Pod) string { return p.Spec.NodeName })
	})
)

func podsBy(s *State, key func(*corev1.Pod) string) map[string][]PodOf {
	pods := map[string][]PodOf{}
	for o, pod := range Contents[*corev1.Pod](s, Pods) {
		pods[key(pod)] = append(pods[key(pod)], PodOf{o, pod})
	}
	return pods
}

// PodsIn are the pods in a namespace.
func (s *State) PodsIn(namespace string) []PodOf { return podsByNamespace.of(s)[namespace] }

// PodsOn are the pods that are bound to a node.
func (s *State) PodsOn(node string) []PodOf { return podsByNode.of(s)[node] }
