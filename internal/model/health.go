// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/netip"
	"slices"
)

// HealthCheck is what a load balancer asks this node about a Service (R29).
type HealthCheck struct {
	Port           uint16
	LocalEndpoints int // ready ones on this node
}

// HealthCheckOf returns the health check that the node answers for a Service;
// false if the Service asks for none. Slices are the Service's own.
//
// Endpoints are counted by address, as kube-proxy does: one pod is one
// endpoint, on however many ports it serves. A pod of two families is one
// endpoint, too, so the family that has more of them counts.
func HealthCheckOf(svc *Service, all []*EndpointSlice, node *Node, opts *Options) (HealthCheck, bool) {
	if svc.HealthCheckNodePort == 0 || svc.Type != ServiceLoadBalancer ||
		svc.ExternalTrafficPolicy != PolicyLocal || Ignored(svc, opts) != "" {
		return HealthCheck{}, false
	}
	check := HealthCheck{Port: svc.HealthCheckNodePort}
	for _, a := range svc.ClusterIPs {
		check.LocalEndpoints = max(check.LocalEndpoints, localReady(svc, all, node, FamilyOf(a)))
	}
	return check, true
}

// localReady counts the addresses of a family on which an endpoint on this
// node is ready on some port. One that only still serves while it terminates
// does not count: a load balancer shall turn to other nodes in time.
func localReady(svc *Service, all []*EndpointSlice, node *Node, family Family) int {
	var ready []netip.Addr
	for _, s := range all {
		if s.Family != family || s.ServiceName() != svc.Name || len(s.Ports) == 0 {
			continue
		}
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			if e.Ready && e.NodeName != "" && e.NodeName == node.Name && len(e.Addresses) > 0 {
				ready = append(ready, e.Addresses[0])
			}
		}
	}
	slices.SortFunc(ready, CompareAddr)
	return len(slices.Compact(ready))
}

// NoLocalEndpoints calls count for each Service port and family whose traffic
// is dropped here since its policy is Local and endpoints are elsewhere only
// (R10, R11): external traffic, or that to the ClusterIP.
func (c *Compiled) NoLocalEndpoints(count func(external bool, family Family)) {
	var counted SetKey
	for i := range c.Sets {
		s := &c.Sets[i]
		if s.Action != ActionDrop {
			continue
		}
		external := s.Key.Role != RoleClusterIP
		// A port may have two sets for external traffic; it counts once.
		port := s.Key
		port.Role = RoleExternal
		if external && port == counted {
			continue
		}
		if external {
			counted = port
		}
		count(external, s.Key.Family)
	}
}
