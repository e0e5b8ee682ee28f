// SPDX-License-Identifier: Apache-2.0

package cutoff

import (
	"net"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/fairlead-io/fairlead/internal/doctor/facts"
)

// notPermitted is what connect() says where a program refuses it.
const notPermitted = "operation not permitted"

var (
	dialled = regexp.MustCompile(`dial tcp[46]? ([0-9a-fA-F.:\[\]]+:\d+): (?:connect: |i/o: )?(operation not permitted|permission denied|connection refused|i/o timeout|connection timed out|no route to host|network is unreachable)`)
	asked   = regexp.MustCompile(`(?:Get|Post|Put|Patch) "https://([^"/]+:\d+)/[^"]*": .*?(x509: [^"\n]+|net/http: TLS handshake timeout|context deadline exceeded|connection reset by peer|unexpected EOF|EOF$)`)
)

// Failure finds in a line of a log which address could not be reached, and how
// that failed, in the kernel's or in TLS's words.
func Failure(line string) (address, problem string, found bool) {
	if !strings.Contains(line, "dial tcp") && !strings.Contains(line, `"https://`) {
		return "", "", false
	}
	line = strings.ReplaceAll(line, `\"`, `"`)
	if m := dialled.FindStringSubmatch(line); m != nil {
		return m[1], m[2], true
	}
	if m := asked.FindStringSubmatch(line); m != nil {
		problem, _, _ = strings.Cut(m[2], ` (possibly because of`)
		return m[1], problem, true
	}
	return "", "", false
}

// addressesOf are those at which the API server answers, with the Service of
// each: those of default/kubernetes, its endpoints, and the addresses of any
// other Service with the same endpoints.
func addressesOf(o *facts.Objects) map[string]string {
	out := map[string]string{}
	if o == nil {
		return out
	}
	own := map[string]bool{}
	for _, at := range ownAddresses(o) {
		own[at] = true
		out[at] = ""
	}
	for _, s := range o.EndpointSlices {
		name := s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]
		service := facts.Find[corev1.Service](o, name)
		if service == nil || name != "default/kubernetes" && !leadsTo(s, own) {
			continue
		}
		addService(out, name, service)
	}
	if service := facts.Find[corev1.Service](o, "default/kubernetes"); service != nil {
		addService(out, "default/kubernetes", service)
	}
	return out
}

func leadsTo(s *discoveryv1.EndpointSlice, own map[string]bool) bool {
	for _, at := range endpointsOf(s) {
		if own[at] {
			return true
		}
	}
	return false
}

// ownAddresses are the endpoints of default/kubernetes.
func ownAddresses(o *facts.Objects) []string {
	if o == nil {
		return nil
	}
	var out []string
	for _, s := range o.EndpointSlices {
		if s.Namespace == "default" && s.Labels[discoveryv1.LabelServiceName] == "kubernetes" {
			out = append(out, endpointsOf(s)...)
		}
	}
	return out
}

func endpointsOf(s *discoveryv1.EndpointSlice) []string {
	var out []string
	for _, e := range s.Endpoints {
		for _, address := range e.Addresses {
			for _, port := range s.Ports {
				if port.Port != nil {
					out = append(out, net.JoinHostPort(address, strconv.Itoa(int(*port.Port))))
				}
			}
		}
	}
	return out
}

func addService(out map[string]string, name string, service *corev1.Service) {
	addresses := append([]string{service.Spec.ClusterIP}, service.Spec.ClusterIPs...)
	addresses = append(addresses, service.Spec.ExternalIPs...)
	for _, i := range service.Status.LoadBalancer.Ingress {
		addresses = append(addresses, i.IP)
	}
	for _, address := range addresses {
		for _, port := range service.Spec.Ports {
			if net.ParseIP(address) != nil {
				out[net.JoinHostPort(address, strconv.Itoa(int(port.Port)))] = name
			}
		}
	}
}
