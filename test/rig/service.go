// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/lab/traffic"
)

// Every Service has this port, over TCP and over UDP (R27), and every backend
// this other one.
const (
	ServicePort = 80
	BackendPort = 8080
)

// Service is a Service in the short form in which a case writes it.
type Service struct {
	Name     string
	VIP      Pair     // its ClusterIPs
	Port     uint16   // of both protocols; 0 = ServicePort
	NodePort uint16   // of both protocols; 0 = the field is left out
	Only     string   // protocol, where the Service has one alone
	Ingress  []string // of status.loadBalancer, in YAML
	Spec     string   // what else the spec has, in YAML
	Metadata string   // and the metadata
}

// Ingress is the status of a load balancer with these addresses.
func Ingress(p Pair, more string) []string {
	return []string{fmt.Sprintf("{ip: %s %s}, {ip: %q %[2]s}", p.V4, more, p.V6)}
}

// YAML is the manifest of the Service and its slices.
func (s Service) YAML(endpoints []Endpoint) string {
	ips := ""
	if s.VIP.V4.IsValid() {
		ips = fmt.Sprintf("clusterIP: %s, clusterIPs: [%[1]s, %q],", s.VIP.V4, s.VIP.V6)
	}
	text := fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %s, namespace: default, %s}
spec: {%s ports: [%s], %s}
status: {loadBalancer: {ingress: [%s]}}
`, s.Name, s.Metadata, ips, s.ports(), s.Spec, strings.Join(s.Ingress, ", "))
	return text + SliceYAML(s.Name, s.Name, endpoints)
}

func (s Service) ports() string {
	var ports []string
	for _, protocol := range []string{"TCP", "UDP"} {
		if s.Only != "" && s.Only != protocol {
			continue
		}
		port := fmt.Sprintf("name: %s, protocol: %s, port: %d", strings.ToLower(protocol), protocol, cmp.Or(s.Port, ServicePort))
		if s.NodePort != 0 {
			port += fmt.Sprintf(", nodePort: %d", s.NodePort)
		}
		ports = append(ports, "{"+port+"}")
	}
	return strings.Join(ports, ", ")
}

// SliceYAML is a pair of EndpointSlices, one of each family.
func SliceYAML(name, service string, endpoints []Endpoint) string {
	var b strings.Builder
	for _, family := range []string{"IPv4", "IPv6"} {
		fmt.Fprintf(&b, `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %s-%s, namespace: default, labels: {kubernetes.io/service-name: %s}}
addressType: %s
ports: [{name: tcp, port: %d}, {name: udp, protocol: UDP, port: %[5]d}]
endpoints:`, name, strings.ToLower(family), service, family, BackendPort)
		if len(endpoints) == 0 {
			b.WriteString(" []")
		}
		b.WriteString("\n")
		for _, e := range endpoints {
			addr := e.Backend.Addrs.V4
			if family == "IPv6" {
				addr = e.Backend.Addrs.V6
			}
			fmt.Fprintf(&b, "- {addresses: [%q], nodeName: %s, conditions: {%s}%s}\n", addr, e.Backend.Node, e.Conditions, e.Hints)
		}
	}
	return b.String()
}

// Backend is a pod that serves TCP and UDP over both families.
type Backend struct {
	Name, Node string
	Addrs      Pair
	NS         *lab.NetNS
	Servers    []*traffic.Server
}

// NewBackend makes servers in a pod.
func NewBackend(t testing.TB, ns *lab.NetNS, name, node string, addrs Pair) *Backend {
	t.Helper()
	return &Backend{name, node, addrs, ns, Listen(t, ns, name, BackendPort, addrs.List()...)}
}

// Listen starts servers of both protocols at each address.
func Listen(t testing.TB, ns *lab.NetNS, name string, port uint16, addrs ...netip.Addr) []*traffic.Server {
	t.Helper()
	var servers []*traffic.Server
	for _, addr := range addrs {
		at := netip.AddrPortFrom(addr, port).String()
		servers = append(servers, traffic.Listen(t, ns, name, traffic.TCP, at), traffic.Listen(t, ns, name, traffic.UDP, at))
	}
	return servers
}

// Names are the names of backends, sorted.
func Names(backends ...*Backend) []string {
	var all []string
	for _, b := range backends {
		all = append(all, b.Name)
	}
	slices.Sort(all)
	return all
}

// Endpoint is a backend in a slice.
type Endpoint struct {
	Backend    *Backend
	Conditions string
	Hints      string // in YAML, with a comma before it
}

// Ready is a backend that serves.
func Ready(b *Backend) Endpoint {
	return Endpoint{Backend: b, Conditions: "ready: true, serving: true, terminating: false"}
}

// NotReady is a backend that does not serve.
func NotReady(b *Backend) Endpoint {
	return Endpoint{Backend: b, Conditions: "ready: false, serving: false, terminating: false"}
}

// Terminating is a backend that is about to end and serves still.
func Terminating(b *Backend) Endpoint {
	return Endpoint{Backend: b, Conditions: "ready: false, serving: true, terminating: true"}
}

// AllReady are endpoints of backends that are all ready.
func AllReady(backends ...*Backend) []Endpoint {
	endpoints := make([]Endpoint, 0, len(backends))
	for _, b := range backends {
		endpoints = append(endpoints, Ready(b))
	}
	return endpoints
}
