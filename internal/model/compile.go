// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
)

// maxAffinitySeconds is the longest session affinity the API allows (R18).
const maxAffinitySeconds = 86400

// Compile turns a Service, its own EndpointSlices and the node into what the
// Service asks of the proxy. It is pure: equal objects give Equal results, in
// whatever order slices, endpoints and ports are listed. A slice of another
// Service has no effect (R3). A Service that is Ignored gives the zero
// Compiled.
func Compile(svc *Service, all []*EndpointSlice, node *Node, opts *Options) Compiled {
	if Ignored(svc, opts) != "" {
		return Compiled{}
	}
	c := compiler{svc: svc, slices: all, names: sliceNames(all), node: node, opts: opts}
	ports := sortedPorts(svc.Ports)
	c.reserve(ports)
	for len(ports) > 0 {
		n := sameSet(ports)
		for _, family := range families {
			if c.has(family) {
				c.compilePort(ports[:n], family)
			}
		}
		ports = ports[n:]
	}
	return Compiled{Sets: c.sets, Claims: settle(c.claims, svc.Name)}
}

// Ignored says in words why a Service has no frontends, or "" if it is served
// (R1, R2).
func Ignored(svc *Service, opts *Options) string {
	if svc.Type == ServiceExternalName {
		return "a Service of type ExternalName has no address of its own"
	}
	if svc.HasProxyName && svc.ProxyName != cmp.Or(opts.ProxyName, DefaultProxyName) {
		return "label service.kubernetes.io/service-proxy-name leaves it to the proxy " + strconv.Quote(svc.ProxyName)
	}
	if svc.Headless {
		return "label service.kubernetes.io/headless says that no proxy serves it"
	}
	if len(svc.ClusterIPs) == 0 {
		return "the Service is headless, or has no clusterIP yet"
	}
	return ""
}

var families = [...]Family{IPv4, IPv6}

// compiler holds what one Compile reads, and what it has made so far.
type compiler struct {
	svc    *Service
	slices []*EndpointSlice
	names  []Name // of the slices, at the same index
	node   *Node
	opts   *Options

	sets   []Set
	claims []Claim
}

// roles is the set of roles that a Service port needs in one family. It
// follows from the spec alone.
type roles uint8

func (r roles) with(role Role) roles { return r | 1<<role }

func (r roles) has(role Role) bool { return r&(1<<role) != 0 }

// rank counts the roles below: the place of its set among those of the port.
func (r roles) rank(role Role) int { return bits.OnesCount8(uint8(r & (1<<role - 1))) }

func (r roles) len() int { return bits.OnesCount8(uint8(r)) }

// sortedPorts orders ports so that those of one set stand together and sets
// come out in the order of their keys.
func sortedPorts(ports []ServicePort) []ServicePort {
	if slices.IsSortedFunc(ports, comparePorts) {
		return ports
	}
	return slices.SortedFunc(slices.Values(ports), comparePorts)
}

func comparePorts(a, b ServicePort) int {
	return cmp.Or(
		cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.Protocol, b.Protocol),
		cmp.Compare(a.Port, b.Port),
		cmp.Compare(a.NodePort, b.NodePort))
}

// sameSet counts the leading ports that share their sets, since endpoints know
// a Service port by name and protocol only. The API server allows just one; a
// manifest may hold more.
func sameSet(ports []ServicePort) int {
	n := 1
	for n < len(ports) && ports[n].Name == ports[0].Name && ports[n].Protocol == ports[0].Protocol {
		n++
	}
	return n
}

// has says that the Service is served in a family: as kube-proxy has it, only
// if it has a ClusterIP there, whatever its other addresses (R26).
func (c *compiler) has(family Family) bool {
	for _, a := range c.svc.ClusterIPs {
		if FamilyOf(a) == family {
			return true
		}
	}
	return false
}

// reserve makes exact room for all sets, and for all claims but duplicates.
func (c *compiler) reserve(ports []ServicePort) {
	sets, claims := 0, 0
	for len(ports) > 0 {
		n := sameSet(ports)
		for _, family := range families {
			if !c.has(family) {
				continue
			}
			sets += c.rolesOf(ports[:n], family).len()
			for _, p := range ports[:n] {
				claims += c.countClaims(p, family)
			}
		}
		ports = ports[n:]
	}
	if sets > 0 {
		c.sets = make([]Set, 0, sets)
		c.claims = make([]Claim, 0, claims)
	}
}

// compilePort adds the sets of one Service port in one family, and the claims
// of every port that shares them.
func (c *compiler) compilePort(ports []ServicePort, family Family) {
	var room [4]endpoint
	name, protocol := ports[0].Name, ports[0].Protocol
	endpoints := c.gather(room[:0], name, protocol, family)
	needed := c.rolesOf(ports, family)
	first := len(c.sets)

	var made [2]choice
	var done [2]bool
	for role := RoleClusterIP; role <= RoleVIPInternal; role++ {
		if !needed.has(role) {
			continue
		}
		policy := c.policyOf(role)
		if !done[policy] {
			made[policy], done[policy] = choose(endpoints, policy), true
		}
		set := Set{
			Key:             SetKey{c.svc.Name, name, protocol, family, role},
			Backends:        made[policy].backends,
			Draining:        made[policy].draining,
			AffinitySeconds: min(c.svc.AffinitySeconds, maxAffinitySeconds),
			Selection:       c.opts.selection(c.svc),
		}
		set.Action, set.Reason = verdict(endpoints, set.Backends, protocol, role)
		if role == RoleVIPExternal || role == RoleVIPInternal {
			set.SourceRanges = c.sourceRanges(family)
		}
		c.sets = append(c.sets, set)
	}
	for _, p := range ports {
		c.claimPort(p, family, needed, first)
	}
}

// policyOf returns the traffic policy of a role. Traffic from inside to an
// external address has policy Cluster always (R12); internalTrafficPolicy
// rules the ClusterIP only (R14).
func (c *compiler) policyOf(role Role) TrafficPolicy {
	switch role {
	case RoleClusterIP:
		return c.svc.InternalTrafficPolicy
	case RoleExternal, RoleVIPExternal:
		return c.svc.ExternalTrafficPolicy
	}
	return PolicyCluster
}

// sourceRanges returns the ranges that hold in a family. None means open to
// all: so it is if a range of the family is /0, and, as with kube-proxy, if
// all ranges are of the other family (R22).
func (c *compiler) sourceRanges(family Family) []netip.Prefix {
	n := 0
	for _, p := range c.svc.SourceRanges {
		if FamilyOf(p.Addr()) != family {
			continue
		}
		if p.Bits() == 0 {
			return nil
		}
		n++
	}
	if n == len(c.svc.SourceRanges) {
		return c.svc.SourceRanges
	}
	if n == 0 {
		return nil
	}
	ranges := make([]netip.Prefix, 0, n)
	for _, p := range c.svc.SourceRanges {
		if FamilyOf(p.Addr()) == family {
			ranges = append(ranges, p)
		}
	}
	return ranges
}
