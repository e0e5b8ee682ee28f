// SPDX-License-Identifier: Apache-2.0

package impact

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead/internal/rbac"
)

// Running is a component whose pods run.
type Running struct {
	rbac.Component
	Pods []PodOf
}

// runningComponents are those of which pods run, in the order of rbac.Components.
var runningComponents = newIndex(func(s *State) []Running {
	known := rbac.Components()
	pods := make([][]PodOf, len(known))
	byContainer := map[string][]int{}
	for i, k := range known {
		byContainer[k.Container] = append(byContainer[k.Container], i)
	}
	for o, pod := range Contents[*corev1.Pod](s, Pods) {
		if !runs(pod) {
			continue
		}
		for _, container := range pod.Spec.Containers {
			for _, i := range byContainer[container.Name] {
				if known[i].Runs(pod.Labels, &pod.Spec) {
					pods[i] = append(pods[i], PodOf{o, pod})
				}
			}
		}
	}
	var out []Running
	for i, k := range known {
		if len(pods[i]) > 0 {
			out = append(out, Running{k, pods[i]})
		}
	}
	return out
})

// Components are those of which pods run.
func (s *State) Components() []Running { return runningComponents.of(s) }

// String names a component with where it runs: Cilium's agent (kube-system, 3
// pods running).
func (r Running) String() string {
	var namespaces []string
	for _, p := range r.Pods {
		namespaces = append(namespaces, p.Namespace)
	}
	slices.Sort(namespaces)
	return fmt.Sprintf("%s (%s, %s running)", r.Title, strings.Join(slices.Compact(namespaces), " and "), count(len(r.Pods), "pod"))
}

// groups are the API groups that the component defines itself: those that its
// rules name, and that are not Kubernetes' own.
func (r Running) groups() []string {
	var out []string
	for _, rule := range slices.Concat(r.Needs, r.Restore) {
		for _, group := range rule.APIGroups {
			if !ofKubernetes(group) {
				out = append(out, group)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ofKubernetes says that an API group is none that somebody else defines.
func ofKubernetes(group string) bool {
	return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
}
