// SPDX-License-Identifier: Apache-2.0

package dnschain

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/doctor/parts"
	"github.com/fairlead-io/fairlead/internal/probe"
)

// The ends of links.
const (
	pods      = "pods"
	cacheName = "NodeLocal DNSCache"
	coreDNS   = "CoreDNS"
	apiServer = "the API server"
)

// chain is how DNS is set up in a cluster.
type chain struct {
	objects *facts.Objects
	parts   []parts.Part
	cache   bool   // pods ask a cache on their node
	service string // in front of CoreDNS: NAMESPACE/NAME
	account string // of CoreDNS: NAMESPACE/NAME
	servers map[netip.Addr]bool
}

// label is that of CoreDNS's pods and Services, whoever installed it.
const label = "k8s-app"

func describe(s *facts.Sample) *chain {
	c := &chain{objects: s.Objects, parts: parts.Of(s.Objects), service: "kube-system/kube-dns", account: "kube-system/coredns", servers: map[netip.Addr]bool{}}
	c.cache = cacheOnNode(s)
	for _, p := range c.parts {
		switch p.ID {
		case "node-local-dns":
			c.cache = true
		case "coredns":
			c.account = p.Name()
			for _, pod := range p.Pods {
				c.serve(pod.Status.PodIP)
			}
		}
	}
	if s.Objects == nil {
		return c
	}
	for _, service := range s.Objects.Services {
		if service.Spec.Selector[label] != "kube-dns" || !answersNames(service) {
			continue
		}
		if service.Name != "kube-dns-upstream" && service.Namespace == metav1.NamespaceSystem {
			c.service = service.Namespace + "/" + service.Name
		}
		for _, ip := range append([]string{service.Spec.ClusterIP}, service.Spec.ClusterIPs...) {
			c.serve(ip)
		}
	}
	return c
}

// answersNames tells a Service for names from one for metrics of the same pods.
func answersNames(s *corev1.Service) bool {
	const dns = 53
	return slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == dns })
}

func (c *chain) serve(ip string) {
	if a, err := netip.ParseAddr(ip); err == nil {
		c.servers[a] = true
	}
}

// linkLocal is where caches on a node listen.
var linkLocal = netip.MustParsePrefix("169.254.0.0/16")

// cacheOnNode says whether kubelets give pods an address of their own node for
// DNS, or probes found one there.
func cacheOnNode(s *facts.Sample) bool {
	if config := facts.Find[corev1.ConfigMap](s.Objects, "kube-system/kubelet-config"); config != nil && usesLinkLocal(config.Data["kubelet"]) {
		return true
	}
	return slices.ContainsFunc(s.Nodes, func(n *facts.Node) bool {
		return slices.ContainsFunc(n.Probes, func(p facts.Probe) bool { return p.Purpose == probe.DNSLocal })
	})
}

// usesLinkLocal looks at the list clusterDNS of a kubelet's configuration.
func usesLinkLocal(config string) bool {
	_, list, found := strings.Cut(config, "clusterDNS:")
	if !found {
		return false
	}
	for line := range strings.Lines(list) {
		line = strings.TrimSpace(line)
		item, is := strings.CutPrefix(line, "- ")
		if line != "" && !is {
			return false
		}
		if a, err := netip.ParseAddr(strings.Trim(item, `"'`)); err == nil && linkLocal.Contains(a) {
			return true
		}
	}
	return false
}
