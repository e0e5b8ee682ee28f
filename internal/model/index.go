// SPDX-License-Identifier: Apache-2.0

package model

import "net/netip"

// Index finds rows by where they stand. The zero value has none.
type Index struct {
	spots     map[Spot][]Row
	addresses map[netip.Addr][]Row
}

// NewIndex returns an index of resolved candidates, shadowed rows included.
func NewIndex(resolved []Candidate) Index {
	x := Index{map[Spot][]Row{}, map[netip.Addr][]Row{}}
	for _, c := range resolved {
		for _, claim := range c.Compiled.Claims {
			row := Row{c.Service, claim, c.Compiled.Sets[claim.Set]}
			spot := claim.Key.Spot()
			x.spots[spot] = append(x.spots[spot], row)
			if claim.Type != TypeNodePort {
				x.addresses[spot.Address] = append(x.addresses[spot.Address], row)
			}
		}
	}
	return x
}

// On returns every row on a spot, in any order.
func (x Index) On(s Spot) []Row { return x.spots[s] }

// At returns every row on an address, whatever the port, in any order. NodePorts
// have no address of their own.
func (x Index) At(a netip.Addr) []Row { return x.addresses[a] }

// UnknownAddress says that an address means something although no row takes a
// flow to it (R38).
type UnknownAddress struct {
	// ClusterIP is a row that has the address as its ClusterIP, on another port;
	// nil if there is none.
	ClusterIP *Row
	// CIDR is the range of ClusterIPs of which no Service has the address.
	CIDR netip.Prefix
}

// Unknown returns what an address means, if only that: nothing else answers at
// a ClusterIP, so what no row takes is refused rather than sent to wherever the
// default route leads. What has rows of another type, or is the node's own, may
// answer itself.
func (x Index) Unknown(a netip.Addr, node *Node, serviceCIDRs []netip.Prefix) UnknownAddress {
	known := node.has(a)
	var clusterIP *Row
	for _, row := range x.At(a) {
		if row.Claim.Shadowed != "" || row.Set.Action == ActionUnsupported {
			continue
		}
		known = true
		if row.Claim.Type == TypeClusterIP && (clusterIP == nil || row.compare(*clusterIP) < 0) {
			clusterIP = &row
		}
	}
	if clusterIP != nil || known {
		return UnknownAddress{ClusterIP: clusterIP}
	}
	cidr, _ := containing(serviceCIDRs, a)
	return UnknownAddress{CIDR: cidr}
}
