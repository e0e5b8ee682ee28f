// SPDX-License-Identifier: Apache-2.0

// Package dials chooses what a node should dial, and from which of its pods, by
// what is known of a cluster.
//
// Where the API tells nothing, the data plane's own tables name the addresses.
// It dials nobody, and judges nothing.
package dials

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead/internal/adapter"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/doctor/services"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/probe"
)

// kubernetes is the Service that API servers keep for themselves.
const kubernetes = "default/kubernetes"

// dnsPort is where DNS is served. In a system's namespace such a Service is the
// cluster's own, whatever its name.
const dnsPort = 53

var systemNamespaces = []string{"kube-system", "openshift-dns"}

// Pod is one of a node's pods with a network of its own.
type Pod struct {
	Name string // NAMESPACE/NAME
	UID  string
}

// maxPods is from how many pods of a node is dialled.
const maxPods = 3

// Choose says what a node should dial.
func Choose(s *facts.Sample, node string) probe.Wanted {
	all := known(s, node)
	var w probe.Wanted
	for _, service := range all {
		switch {
		case service.Protocol == "TCP" && leadsToAPI(service, all):
			w.API = append(w.API, service)
		case service.Protocol == "UDP" && isClusterDNS(service):
			w.DNS = append(w.DNS, service)
		}
	}
	if s.Objects == nil {
		return w
	}
	w.DNSLocal = localDNS(s.Objects.Pods, node)
	w.Peers = peers(s.Objects.Pods, node)
	return w
}

// leadsToAPI says that a Service has a backend in common with the API servers'
// own, or is it.
func leadsToAPI(s probe.Service, all []probe.Service) bool {
	return slices.ContainsFunc(all, func(own probe.Service) bool {
		return own.Name == kubernetes && own.Protocol == s.Protocol &&
			(s.Name == kubernetes || slices.ContainsFunc(s.Backends, func(b netip.AddrPort) bool { return slices.Contains(own.Backends, b) }))
	})
}

func isClusterDNS(s probe.Service) bool {
	namespace, _, _ := strings.Cut(s.Name, "/")
	return slices.Contains(systemNamespaces, namespace) && len(s.Addresses) > 0 && s.Addresses[0].Port() == dnsPort
}

// known are the Services of the API, or else those of the node's tables.
func known(s *facts.Sample, node string) []probe.Service {
	if objects := services.All(s.Objects); len(objects) > 0 {
		return ofObjects(objects)
	}
	n := s.Node(node)
	if n == nil {
		return nil
	}
	for _, d := range n.Dumps {
		if all := ofDump(d.Dump); len(all) > 0 {
			return all
		}
	}
	return nil
}

func ofObjects(objects []services.Service) []probe.Service {
	var all []probe.Service
	for _, s := range objects {
		if !s.Served() {
			continue
		}
		for _, port := range s.Spec.Ports {
			all = append(all, probe.Service{
				Name: s.String(), Protocol: string(cmp.Or(port.Protocol, corev1.ProtocolTCP)),
				Addresses: addressesOf(s, port), Backends: backendsOf(s, port),
			})
		}
	}
	return all
}

func addressesOf(s services.Service, port corev1.ServicePort) []netip.AddrPort {
	addresses := slices.DeleteFunc(s.Addresses(), func(a netip.AddrPort) bool { return a.Port() != uint16(port.Port) })
	slices.SortFunc(addresses, netip.AddrPort.Compare)
	return slices.Compact(addresses)
}

func backendsOf(s services.Service, port corev1.ServicePort) []netip.AddrPort {
	var backends []netip.AddrPort
	for _, e := range s.Endpoints() {
		if e.Ready && e.Port == port.Name {
			backends = append(backends, e.Address)
		}
	}
	slices.SortFunc(backends, netip.AddrPort.Compare)
	return slices.Compact(backends)
}

// ofDump are the Services whose names a table tells. That of a NodePort is an
// address of whoever asks, and is left out.
func ofDump(d adapter.Dump) []probe.Service {
	type key struct {
		service  model.Name
		port     uint16
		protocol model.Protocol
	}
	at := map[key]int{}
	var all []probe.Service
	for _, f := range d.Frontends {
		if f.Service.Name == "" || f.Address.Addr().IsUnspecified() || f.Scope == model.ScopeExternal || f.Protocol == 0 {
			continue
		}
		k := key{f.Service, f.Address.Port(), f.Protocol}
		i, have := at[k]
		if !have {
			i, at[k] = len(all), len(all)
			all = append(all, probe.Service{Name: f.Service.String(), Protocol: f.Protocol.String()})
		}
		all[i].Addresses = append(all[i].Addresses, f.Address)
		for _, b := range f.Backends {
			if b.State <= adapter.Active && !slices.Contains(all[i].Backends, b.Address) {
				all[i].Backends = append(all[i].Backends, b.Address)
			}
		}
	}
	return all
}

// localDNS are the addresses of a NodeLocal DNSCache on the node, which its
// arguments tell.
func localDNS(pods []*corev1.Pod, node string) []netip.AddrPort {
	var found []netip.AddrPort
	for _, pod := range pods {
		if pod.Spec.NodeName != node || pod.Labels["k8s-app"] != "node-local-dns" {
			continue
		}
		for _, c := range pod.Spec.Containers {
			for _, text := range strings.Split(argument(c.Args, "localip"), ",") {
				if a, err := netip.ParseAddr(text); err == nil {
					found = append(found, netip.AddrPortFrom(a, dnsPort))
				}
			}
		}
	}
	return found
}

// argument is the value of a flag, in either way of writing one; "" if it is not
// given.
func argument(args []string, name string) string {
	for i, a := range args {
		flag, value, joined := strings.Cut(strings.TrimLeft(a, "-"), "=")
		switch {
		case flag != name || flag == a:
		case joined:
			return value
		case i+1 < len(args):
			return args[i+1]
		}
	}
	return ""
}

// peers are pods of other nodes with a port of TCP, one of each node.
func peers(pods []*corev1.Pod, node string) []netip.AddrPort {
	byNode := map[string]*corev1.Pod{}
	for _, pod := range pods {
		other := pod.Spec.NodeName
		if other == "" || other == node || !running(pod) || tcpPort(pod) == 0 {
			continue
		}
		if have := byNode[other]; have == nil || nameOf(pod) < nameOf(have) {
			byNode[other] = pod
		}
	}
	var found []netip.AddrPort
	for _, pod := range byNode {
		if a, err := netip.ParseAddr(pod.Status.PodIP); err == nil {
			found = append(found, netip.AddrPortFrom(a, tcpPort(pod)))
		}
	}
	slices.SortFunc(found, netip.AddrPort.Compare)
	return found
}

// running says that a pod has a network of its own, and is ready in it.
func running(pod *corev1.Pod) bool {
	return !pod.Spec.HostNetwork && pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil && pod.Status.PodIP != ""
}

func tcpPort(pod *corev1.Pod) uint16 {
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if cmp.Or(p.Protocol, corev1.ProtocolTCP) == corev1.ProtocolTCP {
				return uint16(p.ContainerPort)
			}
		}
	}
	return 0
}

func nameOf(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

// Pods are those of a node from which to dial: of as many namespaces as there
// are, since a policy mostly selects the pods of one.
func Pods(s *facts.Sample, node string) []Pod {
	if s.Objects == nil {
		return nil
	}
	byName := slices.Clone(s.Objects.Pods)
	slices.SortFunc(byName, func(a, b *corev1.Pod) int { return cmp.Compare(nameOf(a), nameOf(b)) })
	var first, others []Pod
	seen := map[string]bool{}
	for _, pod := range byName {
		if pod.Spec.NodeName != node || !running(pod) || pod.UID == "" {
			continue
		}
		p := Pod{nameOf(pod), string(pod.UID)}
		if seen[pod.Namespace] {
			others = append(others, p)
			continue
		}
		seen[pod.Namespace] = true
		first = append(first, p)
	}
	all := append(first, others...)
	return all[:min(len(all), maxPods)]
}
