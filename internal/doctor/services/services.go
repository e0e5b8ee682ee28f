// SPDX-License-Identifier: Apache-2.0

// Package services joins what the API says of a Service: the object and its
// EndpointSlices.
//
// It is for checks that ask how the API's objects fit each other, so it keeps
// what the objects say, also what no data plane would serve. What a data plane
// makes of them is for package model to say, and may not enter.
package services

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
)

// The resources by which lists are known.
const (
	resource       = "services"
	sliceResource  = "endpointslices.discovery.k8s.io"
	headlessLabel  = "service.kubernetes.io/headless"
	proxyNameLabel = "service.kubernetes.io/service-proxy-name"
)

// Service is a Service with its slices.
type Service struct {
	*corev1.Service
	Slices []*discoveryv1.EndpointSlice // by name
}

// Endpoint is one address and port of a Service.
type Endpoint struct {
	Address netip.AddrPort
	Port    string // its name
	Ready   bool   // a condition that is not given is true
	Slice   *discoveryv1.EndpointSlice
}

// All returns the Services of a sample, by namespace and name. It returns none if not all
// Services or not all EndpointSlices are known.
func All(o *facts.Objects) []Service {
	if !o.Complete(resource) || !o.Complete(sliceResource) {
		return nil
	}
	bySlice := map[string][]*discoveryv1.EndpointSlice{}
	for _, slice := range o.EndpointSlices {
		if name := slice.Labels[discoveryv1.LabelServiceName]; name != "" {
			key := slice.Namespace + "/" + name
			bySlice[key] = append(bySlice[key], slice)
		}
	}
	var all []Service
	for _, s := range o.Services {
		own := bySlice[s.Namespace+"/"+s.Name]
		slices.SortFunc(own, func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
		all = append(all, Service{s, own})
	}
	slices.SortFunc(all, func(a, b Service) int { return compare(a, b.Namespace, b.Name) })
	return all
}

func compare(s Service, namespace, name string) int {
	return cmp.Or(cmp.Compare(s.Namespace, namespace), cmp.Compare(s.Name, name))
}

// Find returns one of them by NAMESPACE/NAME.
func Find(all []Service, name string) (Service, bool) {
	namespace, bare, _ := strings.Cut(name, "/")
	i, found := slices.BinarySearchFunc(all, bare, func(s Service, bare string) int { return compare(s, namespace, bare) })
	if !found {
		return Service{}, false
	}
	return all[i], true
}

// String is NAMESPACE/NAME.
func (s Service) String() string { return s.Namespace + "/" + s.Name }

// Served says that data planes have frontends for it: it is not headless, has
// an address of its own, and is not given to another proxy.
func (s Service) Served() bool {
	_, headless := s.Labels[headlessLabel]
	_, foreign := s.Labels[proxyNameLabel]
	return !headless && !foreign && s.Spec.Type != corev1.ServiceTypeExternalName && len(s.clusterIPs()) > 0
}

// Endpoints are those of all its slices, as often as they stand there.
func (s Service) Endpoints() []Endpoint {
	var out []Endpoint
	for _, slice := range s.Slices {
		for _, e := range slice.Endpoints {
			for _, address := range e.Addresses {
				out = append(out, ofSlice(slice, &e, address)...)
			}
		}
	}
	return out
}

func ofSlice(slice *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint, address string) []Endpoint {
	addr, err := netip.ParseAddr(address)
	if err != nil {
		return nil
	}
	var out []Endpoint
	for _, p := range slice.Ports {
		if p.Port == nil || *p.Port < 1 || *p.Port > 65535 {
			continue
		}
		out = append(out, Endpoint{
			Address: netip.AddrPortFrom(addr.Unmap(), uint16(*p.Port)),
			Port:    value(p.Name),
			Ready:   e.Conditions.Ready == nil || *e.Conditions.Ready,
			Slice:   slice,
		})
	}
	return out
}

// Ready are the addresses of its ready endpoints, sorted, each once.
func (s Service) Ready() []netip.AddrPort {
	var out []netip.AddrPort
	for _, e := range s.Endpoints() {
		if e.Ready {
			out = append(out, e.Address)
		}
	}
	slices.SortFunc(out, netip.AddrPort.Compare)
	return slices.Compact(out)
}

// Addresses are what its clients dial, but for NodePorts: each address with each
// port. A load balancer's address that traffic is to pass through is none.
func (s Service) Addresses() []netip.AddrPort {
	addrs := s.clusterIPs()
	for _, text := range s.Spec.ExternalIPs {
		addrs = appendAddr(addrs, text)
	}
	for _, in := range s.Status.LoadBalancer.Ingress {
		if in.IPMode == nil || *in.IPMode != corev1.LoadBalancerIPModeProxy {
			addrs = appendAddr(addrs, in.IP)
		}
	}
	var out []netip.AddrPort
	for _, a := range addrs {
		for _, p := range s.Spec.Ports {
			out = append(out, netip.AddrPortFrom(a, uint16(p.Port)))
		}
	}
	return out
}

func (s Service) clusterIPs() []netip.Addr {
	texts := s.Spec.ClusterIPs
	if len(texts) == 0 {
		texts = []string{s.Spec.ClusterIP}
	}
	var out []netip.Addr
	for _, text := range texts {
		out = appendAddr(out, text)
	}
	return out
}

func appendAddr(addrs []netip.Addr, text string) []netip.Addr {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return addrs
	}
	return append(addrs, a.Unmap())
}

// Shown is the evidence of Services, as kubectl lists them.
func Shown(o *facts.Objects, all ...Service) []doctor.Evidence {
	var out []doctor.Evidence
	for _, s := range all {
		out = doctor.Join(out, doctor.Excerpt(o.Record(s.Service), s.line()))
	}
	return out
}

// ShownSlices is the evidence of Services' EndpointSlices, as kubectl lists them;
// of a Service without any, that there is none.
func ShownSlices(o *facts.Objects, all ...Service) []doctor.Evidence {
	var out []doctor.Evidence
	for _, s := range all {
		out = doctor.Join(out, s.slices(o))
	}
	return out
}

func (s Service) slices(o *facts.Objects) doctor.Evidence {
	if len(s.Slices) == 0 {
		return doctor.Excerpt(o.List(sliceResource), fmt.Sprintf("(none with the label %s=%s in namespace %s)", discoveryv1.LabelServiceName, s.Name, s.Namespace))
	}
	const most = 3
	var lines []string
	for _, slice := range s.Slices[:min(most, len(s.Slices))] {
		lines = append(lines, sliceLine(slice))
	}
	if more := len(s.Slices) - most; more > 0 {
		lines = append(lines, fmt.Sprintf("(and %d more)", more))
	}
	return doctor.Excerpt(o.Record(s.Slices[0]), lines...)
}

func (s Service) line() string {
	var external []string
	for _, in := range s.Status.LoadBalancer.Ingress {
		external = append(external, cmp.Or(in.IP, in.Hostname))
	}
	external = append(external, s.Spec.ExternalIPs...)
	var ports []string
	for _, p := range s.Spec.Ports {
		text := fmt.Sprintf("%d/%s", p.Port, cmp.Or(string(p.Protocol), "TCP"))
		if p.NodePort != 0 {
			text = fmt.Sprintf("%d:%d/%s", p.Port, p.NodePort, cmp.Or(string(p.Protocol), "TCP"))
		}
		ports = append(ports, text)
	}
	return strings.Join([]string{s.String(), string(cmp.Or(s.Spec.Type, corev1.ServiceTypeClusterIP)),
		cmp.Or(s.Spec.ClusterIP, "<none>"), list(external), list(ports)}, "  ")
}

func sliceLine(slice *discoveryv1.EndpointSlice) string {
	var ports, addrs []string
	for _, p := range slice.Ports {
		if p.Port != nil {
			ports = append(ports, fmt.Sprint(*p.Port))
		}
	}
	for _, e := range slice.Endpoints {
		for _, a := range e.Addresses {
			if e.Conditions.Ready != nil && !*e.Conditions.Ready {
				a += " (not ready)"
			}
			addrs = append(addrs, a)
		}
	}
	const most = 4
	if more := len(addrs) - most; more > 0 {
		addrs = append(addrs[:most:most], fmt.Sprintf("+ %d more", more))
	}
	return strings.Join([]string{slice.Namespace + "/" + slice.Name, string(slice.AddressType), list(ports), list(addrs)}, "  ")
}

// list writes a column as kubectl does.
func list(values []string) string {
	if len(values) == 0 {
		return "<none>"
	}
	return strings.Join(values, ",")
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
