// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// set is what a healthy cluster serves; the sets differ in what proxies treat
// differently.
type set struct {
	name      string
	workloads []workload
}

func sets() []set {
	dual := func(s *corev1.ServiceSpec) { s.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack) }
	of := func(kind corev1.ServiceType, more ...func(*corev1.ServiceSpec)) func(*corev1.ServiceSpec) {
		return func(s *corev1.ServiceSpec) {
			s.Type = kind
			for _, m := range more {
				m(s)
			}
		}
	}
	local := func(s *corev1.ServiceSpec) { s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal }
	inside := func(s *corev1.ServiceSpec) { s.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal) }
	external := func(ips ...string) func(*corev1.ServiceSpec) {
		return func(s *corev1.ServiceSpec) { s.ExternalIPs = ips }
	}
	ranges := func(s *corev1.ServiceSpec) {
		s.LoadBalancerSourceRanges = []string{"203.0.113.0/24", "2001:db8:9::/48"}
	}
	sticky := func(s *corev1.ServiceSpec) { s.SessionAffinity = corev1.ServiceAffinityClientIP }
	dns := []corev1.ServicePort{{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}, {Name: "dns-tcp", Port: 53, Protocol: corev1.ProtocolTCP}}
	named := []corev1.ServicePort{
		{Name: "web", Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString("web")},
		{Name: "tls", Port: 443, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(8443)},
	}
	return []set{
		{"cluster-ip", []workload{{name: "web", ready: 3}, {name: "web-v2", ready: 2}, {name: "api", ready: 1, spec: dual}}},
		{"node-port", []workload{{name: "dns", ready: 2, ports: dns, spec: of(corev1.ServiceTypeNodePort, dual)}, {name: "web", ready: 4, spec: of(corev1.ServiceTypeNodePort, local)}}},
		{"load-balancer", []workload{
			{name: "shop", ready: 3, spec: of(corev1.ServiceTypeLoadBalancer, dual, local, ranges), ingress: []string{"203.0.113.10", "2001:db8:9::10"}},
			{name: "wide", ready: 2, spec: of(corev1.ServiceTypeLoadBalancer), ingress: []string{"203.0.113.11"}}}},
		{"external-ip", []workload{{name: "mail", ready: 2, spec: external("198.51.100.20", "198.51.100.21")}, {name: "both", ready: 2, spec: of(corev1.ServiceTypeNodePort, local, external("198.51.100.22"))}}},
		{"affinity-and-names", []workload{{name: "session", ready: 3, ports: named, spec: of(corev1.ServiceTypeNodePort, sticky, dual)}, {name: "plain", ready: 2, ports: named}}},
		{"inside-only", []workload{{name: "agent", ready: 4, spec: inside}, {name: "elsewhere", ready: 2, spec: of(corev1.ServiceTypeNodePort, inside, local, dual)}}},
		{"going", []workload{{name: "last", leaving: 2, spec: of(corev1.ServiceTypeNodePort, local)}, {name: "rolling", ready: 2, leaving: 2}, {name: "gone", leaving: 3, spec: dual}}},
		{"nobody", []workload{
			{name: "empty", spec: func(s *corev1.ServiceSpec) { s.Selector = nil }}, {name: "unready", unready: 3, spec: of(corev1.ServiceTypeNodePort)},
			{name: "early", unready: 2, spec: func(s *corev1.ServiceSpec) { s.PublishNotReadyAddresses = true }}}},
		{"zones", []workload{{name: "near", ready: 6, hints: true, spec: dual}, {name: "partly", ready: 3, unready: 1, hints: true}, {name: "far", ready: 4}}},
		{"many", many()},
	}
}

// many are Services that a proxy has to leave alone among many that it serves.
func many() []workload {
	all := []workload{
		{name: "headless", ready: 2, spec: func(s *corev1.ServiceSpec) { s.ClusterIP = corev1.ClusterIPNone }},
		{name: "calls", ready: 2, ports: []corev1.ServicePort{{Name: "sctp", Port: 36412, Protocol: corev1.ProtocolSCTP}}},
	}
	for i := range 25 {
		all = append(all, workload{name: fmt.Sprintf("app-%d", i), ready: 1 + i%4})
	}
	return all
}
