// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"net/netip"
	"slices"
)

// twoScopes says that external addresses need a row for each scope: traffic
// from outside is then bound to this node's endpoints, and traffic from inside
// is not (R11, R12).
func (c *compiler) twoScopes() bool { return c.svc.ExternalTrafficPolicy == PolicyLocal }

// nodePort returns the port's NodePort, or 0 if it has none (R25).
func (c *compiler) nodePort(p ServicePort) uint16 {
	if c.svc.Type == ServiceNodePort || c.svc.Type == ServiceLoadBalancer {
		return p.NodePort
	}
	return 0
}

// externalIPs returns the externalIPs the operator lets Services have (R23).
func (c *compiler) externalIPs() []netip.Addr {
	if c.opts.DisableExternalIPs {
		return nil
	}
	return c.svc.ExternalIPs
}

// isVIP says that the address is programmed for the family (R21). The type of
// the Service does not matter, as with kube-proxy: the API server clears the
// status of Services that are no load balancers.
func isVIP(in LoadBalancerIngress, family Family) bool {
	return !in.Proxy && FamilyOf(in.Address) == family
}

// rolesOf returns the roles that some claim of the ports needs in the family.
func (c *compiler) rolesOf(ports []ServicePort, family Family) roles {
	needed := roles(0).with(RoleClusterIP)
	external := slices.ContainsFunc(c.externalIPs(), func(a netip.Addr) bool { return FamilyOf(a) == family })
	for _, p := range ports {
		external = external || c.nodePort(p) != 0
	}
	if external {
		needed = needed.with(RoleInternal)
	}
	vip := slices.ContainsFunc(c.svc.LoadBalancerIngress, func(in LoadBalancerIngress) bool { return isVIP(in, family) })
	if vip {
		needed = needed.with(RoleVIPInternal)
	}
	if external && c.twoScopes() {
		needed = needed.with(RoleExternal)
	}
	if vip && c.twoScopes() {
		needed = needed.with(RoleVIPExternal)
	}
	return needed
}

// countClaims returns how many claims claimPort makes.
func (c *compiler) countClaims(p ServicePort, family Family) int {
	internal, external := 0, 0
	for _, a := range c.svc.ClusterIPs {
		if FamilyOf(a) == family {
			internal++
		}
	}
	for _, in := range c.svc.LoadBalancerIngress {
		if isVIP(in, family) {
			external++
		}
	}
	for _, a := range c.externalIPs() {
		if FamilyOf(a) == family {
			external++
		}
	}
	if c.nodePort(p) != 0 {
		external++
	}
	if c.twoScopes() {
		external *= 2
	}
	return internal + external
}

// claimPort adds every claim of a port in a family. Its sets begin at index
// first and stand in the order of their roles. A ClusterIP has one row even
// for traffic from outside (R41).
func (c *compiler) claimPort(p ServicePort, family Family, needed roles, first int) {
	for _, a := range c.svc.ClusterIPs {
		if FamilyOf(a) == family {
			c.claim(a, p.Port, ScopeAll, TypeClusterIP, p, first+needed.rank(RoleClusterIP))
		}
	}
	for _, in := range c.svc.LoadBalancerIngress {
		if isVIP(in, family) {
			c.claimExternal(in.Address, p.Port, TypeLoadBalancer, p, first+needed.rank(RoleVIPInternal), first+needed.rank(RoleVIPExternal))
		}
	}
	internal, external := first+needed.rank(RoleInternal), first+needed.rank(RoleExternal)
	for _, a := range c.externalIPs() {
		if FamilyOf(a) == family {
			c.claimExternal(a, p.Port, TypeExternalIP, p, internal, external)
		}
	}
	if port := c.nodePort(p); port != 0 {
		c.claimExternal(family.Unspecified(), port, TypeNodePort, p, internal, external)
	}
}

// claimExternal adds the claims on an address that is reached from outside.
func (c *compiler) claimExternal(a netip.Addr, port uint16, t FrontendType, p ServicePort, internal, external int) {
	if !c.twoScopes() {
		c.claim(a, port, ScopeAll, t, p, internal)
		return
	}
	c.claim(a, port, ScopeInternal, t, p, internal)
	c.claim(a, port, ScopeExternal, t, p, external)
}

func (c *compiler) claim(a netip.Addr, port uint16, scope Scope, t FrontendType, p ServicePort, set int) {
	claim := Claim{
		Key:      FrontendKey{a, port, p.Protocol, scope},
		Type:     t,
		PortName: p.Name,
		Set:      set,
	}
	if t == TypeLoadBalancer || t == TypeExternalIP {
		claim.Shadowed = c.refusal(claim.Key.Spot())
	}
	c.claims = append(c.claims, claim)
}

// refusal says in words who keeps a VIP or externalIP from a Service, "" for
// nobody. Whoever may write a Service could otherwise take over what the node
// itself serves (the class of CVE-2020-8554), its loopback, or the wildcard
// that stands for NodePorts.
func (c *compiler) refusal(s Spot) string {
	if s.Address.IsUnspecified() || s.Address.IsLoopback() {
		return "nobody: an unspecified or loopback address is no Service's to claim"
	}
	if c.opts.AllowNodeAddressClaims || !c.node.listens(s) {
		return ""
	}
	return "this node, which listens on " + s.String() + "; --allow-node-address-claims lets the Service take it"
}

// listens says that the spot is an address of the node on which the node
// itself accepts traffic. A listener on :: counts for both families, for
// whether it is bound to IPv6 alone cannot be seen from outside.
func (n *Node) listens(s Spot) bool {
	if !slices.Contains(n.Addresses, s.Address) {
		return false
	}
	return slices.ContainsFunc(n.Listening, func(l Listener) bool {
		if l.Protocol != s.Protocol || l.AddrPort.Port() != s.Port {
			return false
		}
		at := l.AddrPort.Addr().Unmap().WithZone("")
		return at == s.Address || at == IPv6.Unspecified() || at == FamilyOf(s.Address).Unspecified()
	})
}

// AffectedBy says that Compile may make something else of the Service on the
// node as it is than on the node as it was. The name and the zone choose among
// endpoints (R15, R42); the rest decides who gets an address of the node's own.
func (s *Service) AffectedBy(was, is *Node) bool {
	if was.Name != is.Name || was.Zone != is.Zone {
		return true
	}
	if slices.Equal(was.Addresses, is.Addresses) && slices.Equal(was.Listening, is.Listening) {
		return false
	}
	own := func(a netip.Addr) bool { return slices.Contains(was.Addresses, a) || slices.Contains(is.Addresses, a) }
	return slices.ContainsFunc(s.ExternalIPs, own) ||
		slices.ContainsFunc(s.LoadBalancerIngress, func(in LoadBalancerIngress) bool { return own(in.Address) })
}

// settle sorts the claims of one Service, makes one of exact repeats, and
// gives each spot that several of its types claim to one of them (R27).
func settle(claims []Claim, service Name) []Claim {
	slices.SortFunc(claims, func(a, b Claim) int {
		return cmp.Or(a.Key.Compare(b.Key), a.precedes(b))
	})
	claims = slices.CompactFunc(claims, func(a, b Claim) bool {
		return a.Key == b.Key && a.Type == b.Type && a.PortName == b.PortName
	})
	for i := 0; i < len(claims); {
		end := i + 1
		for end < len(claims) && claims[end].Key.Spot() == claims[i].Key.Spot() {
			end++
		}
		shadowRivals(claims[i:end], service)
		i = end
	}
	return claims
}

// precedes compares two claims of one Service on one spot: the smaller holds it.
func (c Claim) precedes(o Claim) int {
	return cmp.Or(cmp.Compare(c.Type, o.Type), cmp.Compare(c.PortName, o.PortName))
}

// shadowRivals leaves the spot on which all these claims lie to the first of
// them that was not refused, in all its scopes.
func shadowRivals(claims []Claim, service Name) {
	if len(claims) == 1 {
		return
	}
	holder := -1
	for i, claim := range claims {
		if claim.Shadowed == "" && (holder < 0 || claim.precedes(claims[holder]) < 0) {
			holder = i
		}
	}
	for i := range claims {
		if claims[i].Shadowed == "" && claims[i].precedes(claims[holder]) != 0 {
			claims[i].Shadowed = service.String() + " (" + claims[holder].Type.String() + ")"
		}
	}
}
