// SPDX-License-Identifier: Apache-2.0

// Package targetport looks for ports of Services that lead to no port of their
// pods, or of their EndpointSlices.
package targetport

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/doctor/services"
)

//go:embed README.md
var page string

const (
	id   = "target-port"
	pods = "pods"
)

// Check follows the ports of Services to those of pods and slices.
func Check() doctor.Check {
	return doctor.Check{ID: id, Title: "ports of Services that lead nowhere", Rank: doctor.RankConfig, Page: page, Sample: check}
}

func check(s *facts.Sample) []doctor.Finding {
	var out []doctor.Finding
	byNamespace := running(s.Objects)
	for _, service := range services.All(s.Objects) {
		if service.Spec.Type == corev1.ServiceTypeExternalName {
			continue
		}
		selected := selectedBy(byNamespace[service.Namespace], service)
		for i := range service.Spec.Ports {
			port := &service.Spec.Ports[i]
			if len(selected) > 0 && port.TargetPort.Type == intstr.String {
				out = append(out, undeclared(s.Objects, service, port, selected)...)
				continue
			}
			if len(service.Spec.Selector) == 0 && service.Served() {
				out = append(out, unnamed(s.Objects, service, port)...)
			}
		}
	}
	return out
}

// running are the pods that run, or will, by namespace and name; none if not all
// pods are known. Pods of Jobs share the labels of what they work for, and seldom
// are there to be dialled.
func running(o *facts.Objects) map[string][]*corev1.Pod {
	out := map[string][]*corev1.Pod{}
	if !o.Complete(pods) {
		return out
	}
	for _, p := range o.Pods {
		over := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed || p.DeletionTimestamp != nil
		if !over && !ofJob(p) {
			out[p.Namespace] = append(out[p.Namespace], p)
		}
	}
	for _, all := range out {
		slices.SortFunc(all, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	}
	return out
}

func ofJob(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Job" })
}

// selectedBy are the pods of a Service, if any of its ports is named after one of
// theirs.
func selectedBy(all []*corev1.Pod, service services.Service) []*corev1.Pod {
	named := slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.TargetPort.Type == intstr.String })
	if !named || len(service.Spec.Selector) == 0 {
		return nil
	}
	selects := labels.SelectorFromSet(service.Spec.Selector)
	var out []*corev1.Pod
	for _, p := range all {
		if selects.Matches(labels.Set(p.Labels)) {
			out = append(out, p)
		}
	}
	return out
}

// undeclared is a port that is named after one that pods do not declare.
func undeclared(o *facts.Objects, service services.Service, port *corev1.ServicePort, selected []*corev1.Pod) []doctor.Finding {
	without := slices.DeleteFunc(slices.Clone(selected), func(p *corev1.Pod) bool { return declares(p, port) })
	if len(without) == 0 {
		return nil
	}
	name := port.TargetPort.StrVal
	f := doctor.Finding{
		Check: id, Severity: doctor.Warning, Layer: doctor.LayerAPI, Subject: service.String(),
		Key:   fmt.Sprintf("%s leads to %s", portName(port), name),
		Title: fmt.Sprintf("%s's port %s leads to a port named %s, which %s", service, portName(port), name, how(len(without), len(selected))),
		Evidence: append(services.Shown(o, service),
			doctor.Excerpt(o.Record(without[0]), fmt.Sprintf("%s/%s declares %s", without[0].Namespace, without[0].Name, declared(without[0])))),
		Remedy: []doctor.Remedy{{
			Text: "Name the port in the pods, or lead the Service to a number.",
			Commands: []string{
				doctor.Kubectl(without[0].Namespace, "get", "pod", without[0].Name, "--output", "jsonpath={.spec.containers[*].ports}"),
				doctor.Kubectl(service.Namespace, "edit", "service", service.Name),
			},
		}},
	}
	if len(without) < len(selected) {
		f.Detail = []string{"These pods are no endpoints of that port; the others take all of its connections."}
		return []doctor.Finding{f}
	}
	f.Detail = []string{fmt.Sprintf("So that port has no endpoint, and data planes refuse what dials it. Ports are found by name and protocol, here %s.", protocol(port.Protocol))}
	if len(service.Spec.Ports) == 1 {
		f.Breaks = []string{doctor.Backends(service.String(), "")}
	}
	return []doctor.Finding{f}
}

func how(without, all int) string {
	switch {
	case without < all:
		return fmt.Sprintf("%d of its %d pods do not declare", without, all)
	case all == 1:
		return "its pod does not declare"
	}
	return fmt.Sprintf("none of its %d pods declares", all)
}

// declares says whether a container that stays declares the port. Init
// containers that run beside the others count.
func declares(p *corev1.Pod, port *corev1.ServicePort) bool {
	return slices.ContainsFunc(ports(p), func(c corev1.ContainerPort) bool {
		return c.Name == port.TargetPort.StrVal && protocol(c.Protocol) == protocol(port.Protocol)
	})
}

func ports(p *corev1.Pod) []corev1.ContainerPort {
	var out []corev1.ContainerPort
	for _, c := range p.Spec.Containers {
		out = append(out, c.Ports...)
	}
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			out = append(out, c.Ports...)
		}
	}
	return out
}

func declared(p *corev1.Pod) string {
	var texts []string
	for _, c := range ports(p) {
		texts = append(texts, fmt.Sprintf("%s (%d/%s)", cmp.Or(c.Name, "no name"), c.ContainerPort, protocol(c.Protocol)))
	}
	if len(texts) == 0 {
		return "no ports"
	}
	return strings.Join(texts, ", ")
}

// unnamed is a port of a Service without a selector that none of its slices has:
// slices and Service are joined by the port's name, not by its number.
func unnamed(o *facts.Objects, service services.Service, port *corev1.ServicePort) []doctor.Finding {
	var has []string
	for _, slice := range service.Slices {
		if len(slice.Endpoints) == 0 {
			continue
		}
		for _, p := range slice.Ports {
			if fits(p, port) {
				return nil
			}
			has = append(has, sliceName(p))
		}
	}
	if len(has) == 0 {
		return nil
	}
	slices.Sort(has)
	f := doctor.Finding{
		Check: id, Severity: doctor.Warning, Layer: doctor.LayerAPI, Subject: service.String(),
		Title: fmt.Sprintf("%s's port %s is in none of its EndpointSlices, which have %s", service, portName(port), strings.Join(slices.Compact(has), ", ")),
		Detail: []string{
			"A port of a Service without a selector is joined with those of its slices by name and protocol; the number does not count. So nobody stands behind it, and data planes refuse what dials it.",
		},
		Evidence: append(services.Shown(o, service), services.ShownSlices(o, service)...),
		Remedy: []doctor.Remedy{{
			Text:     fmt.Sprintf("Give the port of the slice the Service port's name, %q.", port.Name),
			Commands: []string{doctor.Kubectl(service.Namespace, "edit", "endpointslice", service.Slices[0].Name)},
		}},
	}
	if len(service.Spec.Ports) == 1 {
		f.Breaks = []string{doctor.Backends(service.String(), "")}
	}
	return []doctor.Finding{f}
}

func fits(p discoveryv1.EndpointPort, port *corev1.ServicePort) bool {
	name, proto := "", corev1.ProtocolTCP
	if p.Name != nil {
		name = *p.Name
	}
	if p.Protocol != nil {
		proto = protocol(*p.Protocol)
	}
	return name == port.Name && proto == protocol(port.Protocol)
}

func sliceName(p discoveryv1.EndpointPort) string {
	if p.Name == nil || *p.Name == "" {
		return "a port without a name"
	}
	if p.Protocol != nil && *p.Protocol != corev1.ProtocolTCP {
		return fmt.Sprintf("%s/%s", *p.Name, *p.Protocol)
	}
	return *p.Name
}

func portName(p *corev1.ServicePort) string {
	number := fmt.Sprintf("%d/%s", p.Port, protocol(p.Protocol))
	if p.Name == "" {
		return number
	}
	return fmt.Sprintf("%s (%s)", p.Name, number)
}

func protocol(p corev1.Protocol) corev1.Protocol { return cmp.Or(p, corev1.ProtocolTCP) }
