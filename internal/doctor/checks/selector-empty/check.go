// SPDX-License-Identifier: Apache-2.0

// Package selectorempty looks for Services whose selectors lead to no pod that
// could answer.
package selectorempty

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/doctor/services"
)

//go:embed README.md
var page string

const (
	id   = "selector-empty"
	pods = "pods"
	// grace is how long a pod may take to become ready.
	grace = time.Minute
)

// Check compares selectors with pods.
func Check() doctor.Check {
	return doctor.Check{ID: id, Title: "Services whose selector leads to no ready pod", Rank: doctor.RankAPI, Page: page, Sample: check}
}

func check(s *facts.Sample) []doctor.Finding {
	list := s.Objects.List(pods)
	if list == nil {
		return nil
	}
	byNamespace := map[string][]*corev1.Pod{}
	for _, p := range s.Objects.Pods {
		if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed && p.DeletionTimestamp == nil {
			byNamespace[p.Namespace] = append(byNamespace[p.Namespace], p)
		}
	}
	var out []doctor.Finding
	for _, service := range services.All(s.Objects) {
		if len(service.Spec.Selector) == 0 || service.Spec.Type == corev1.ServiceTypeExternalName || answered(service) {
			continue
		}
		selects := labels.SelectorFromSet(service.Spec.Selector)
		all := byNamespace[service.Namespace]
		switch selected := matching(all, selects); {
		case len(selected) == 0:
			out = append(out, nothing(s.Objects, service, selects, all))
		case !slices.ContainsFunc(selected, func(p *corev1.Pod) bool { return ready(p) || young(p, list.Time.Add(s.Objects.Skew())) }):
			out = append(out, unready(s.Objects, service, selected))
		}
	}
	return out
}

// answered says that somebody serves a Service: where nobody is ready, those who
// go and still serve (R7).
func answered(service services.Service) bool {
	return len(service.Ready()) > 0 || slices.ContainsFunc(service.Slices, func(slice *discoveryv1.EndpointSlice) bool {
		return slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool {
			return e.Conditions.Serving != nil && *e.Conditions.Serving
		})
	})
}

func matching(all []*corev1.Pod, selects labels.Selector) []*corev1.Pod {
	var out []*corev1.Pod
	for _, p := range all {
		if selects.Matches(labels.Set(p.Labels)) {
			out = append(out, p)
		}
	}
	return out
}

func ready(p *corev1.Pod) bool {
	c := readiness(p)
	return c != nil && c.Status == corev1.ConditionTrue
}

func readiness(p *corev1.Pod) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c
		}
	}
	return nil
}

// young says that a pod has been made, or has changed, so lately that it may be
// on its way.
func young(p *corev1.Pod, now time.Time) bool {
	changed := p.CreationTimestamp.Time
	if c := readiness(p); c != nil && c.LastTransitionTime.After(changed) {
		changed = c.LastTransitionTime.Time
	}
	return !changed.IsZero() && !now.IsZero() && now.Sub(changed) < grace
}

// nothing is a selector without any pod. Nobody serves the Service, which is as
// it should be if it was scaled to zero.
func nothing(o *facts.Objects, service services.Service, selects labels.Selector, all []*corev1.Pod) doctor.Finding {
	f := doctor.Finding{
		Check: id, Severity: doctor.Warning, Layer: doctor.LayerAPI, Subject: service.String(),
		Title:    fmt.Sprintf("%s selects %s, and no pod in namespace %s has that", service, selects, service.Namespace),
		Evidence: append(services.Shown(o, service), doctor.Excerpt(o.List(pods), fmt.Sprintf("(none in namespace %s with %s)", service.Namespace, selects))),
		Breaks:   []string{doctor.Backends(service.String(), "")},
		Remedy: []doctor.Remedy{{
			Text: "Compare the labels of the pods that should serve it with the selector.",
			Commands: []string{
				doctor.Kubectl(service.Namespace, "get", "pods", "--show-labels"),
				doctor.Kubectl(service.Namespace, "get", "service", service.Name, "--output", "jsonpath={.spec.selector}"),
			},
		}},
	}
	if w, found := maker(o, service.Namespace, selects); found {
		f.Evidence = append(f.Evidence, w.shown)
		if w.wants == 0 {
			f.Severity = doctor.Info
			f.Detail = append(f.Detail, fmt.Sprintf("%s would make such pods, and is scaled to zero.", w.name))
			f.Remedy = []doctor.Remedy{{Text: "If somebody should answer, scale it up.", Commands: []string{w.scale}}}
			return f
		}
		f.Detail = append(f.Detail, fmt.Sprintf("%s should make %d such pods, and there are none.", w.name, w.wants))
		f.Remedy = []doctor.Remedy{{Text: "See why it makes none.", Commands: []string{w.describe}}}
		return f
	}
	if near, missing := nearest(all, service.Spec.Selector); near != nil {
		f.Detail = append(f.Detail, fmt.Sprintf("Pod %s/%s comes nearest: it has %s.", near.Namespace, near.Name, missing))
	}
	if !service.Served() {
		f.Severity = doctor.Info
	}
	return f
}

// nearest is the pod that has most of a selector, though not all, and what it
// has in place of the rest; nil if none has any of it.
func nearest(all []*corev1.Pod, selector map[string]string) (*corev1.Pod, string) {
	var near *corev1.Pod
	most := 0
	for _, p := range all {
		has := 0
		for key, value := range selector {
			if p.Labels[key] == value {
				has++
			}
		}
		if has > most {
			near, most = p, has
		}
	}
	if near == nil {
		return nil, ""
	}
	var rest []string
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		value, has := near.Labels[key]
		switch {
		case !has:
			rest = append(rest, "no "+key)
		case value != selector[key]:
			rest = append(rest, key+"="+value)
		}
	}
	return near, strings.Join(rest, ", ")
}

// unready are pods that are selected, and none of which can answer.
func unready(o *facts.Objects, service services.Service, selected []*corev1.Pod) doctor.Finding {
	const most = 3
	f := doctor.Finding{
		Check: id, Severity: doctor.Warning, Layer: doctor.LayerAPI, Subject: service.String(),
		Key:      "none is ready",
		Title:    fmt.Sprintf("%s selects %s, and none is ready", service, count(len(selected))),
		Detail:   []string{"So the Service has no endpoint, and data planes refuse what dials it."},
		Evidence: services.ShownSlices(o, service),
		Breaks:   []string{doctor.Backends(service.String(), "")},
		Remedy: []doctor.Remedy{{
			Text:     "See why they are not ready.",
			Commands: []string{doctor.Kubectl(selected[0].Namespace, "describe", "pod", selected[0].Name)},
		}},
	}
	for _, p := range selected[:min(most, len(selected))] {
		f.Evidence = doctor.Join(f.Evidence, doctor.Excerpt(o.Record(p), fmt.Sprintf("%s/%s  %s  %s", p.Namespace, p.Name, state(p), p.Spec.NodeName)))
	}
	for _, p := range selected {
		if p.Spec.NodeName != "" && !p.Spec.HostNetwork && !slices.Contains(f.RestsOn, doctor.PodNetwork(p.Spec.NodeName)) {
			f.RestsOn = append(f.RestsOn, doctor.PodNetwork(p.Spec.NodeName))
		}
	}
	return f
}

func count(n int) string {
	if n == 1 {
		return "1 pod"
	}
	return fmt.Sprintf("%d pods", n)
}

// state is what kubectl would call a pod's status.
func state(p *corev1.Pod) string {
	if p.DeletionTimestamp != nil {
		return "Terminating"
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if c.State.Waiting != nil && c.State.Waiting.Reason != "" {
			return c.State.Waiting.Reason
		}
	}
	if c := readiness(p); c != nil && c.Reason != "" {
		return fmt.Sprintf("%s (%s)", p.Status.Phase, c.Reason)
	}
	return string(p.Status.Phase)
}
