// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// NodePortAddresses says on which of the node's addresses NodePorts are served
// (R24). The zero value is all of them. Families are apart: a family for which
// no CIDR is given is served on all its addresses, as with kube-proxy.
type NodePortAddresses struct {
	Primary bool // on the first address of each family only
	CIDRs   []netip.Prefix
}

// ParseNodePortAddresses reads the values of --nodeport-addresses: CIDRs, or
// the single word "primary".
func ParseNodePortAddresses(values []string) (NodePortAddresses, error) {
	var n NodePortAddresses
	for _, v := range values {
		if v == "primary" {
			n.Primary = true
			continue
		}
		cidr, err := netip.ParsePrefix(v)
		if err != nil || cidr.Addr().Is4In6() {
			return NodePortAddresses{}, fmt.Errorf("--nodeport-addresses: %q is neither a CIDR such as 10.0.0.0/8 nor \"primary\"", v)
		}
		n.CIDRs = append(n.CIDRs, cidr.Masked())
	}
	if n.Primary && len(n.CIDRs) > 0 {
		return NodePortAddresses{}, fmt.Errorf("--nodeport-addresses: \"primary\" must stand alone; give it or CIDRs, not both")
	}
	return n, nil
}

// All says that NodePorts are served on all addresses of the node.
func (n NodePortAddresses) All() bool { return !n.Primary && len(n.CIDRs) == 0 }

// Serve says that NodePorts are served on the address, for every client that
// can reach it. Loopback is not among such addresses: it serves the node's own
// processes alone.
func (n NodePortAddresses) Serve(node *Node, a netip.Addr) bool {
	if a.IsLoopback() || !node.has(a) {
		return false
	}
	if n.Primary {
		return a == node.Primary(FamilyOf(a))
	}
	given := false
	for _, cidr := range n.CIDRs {
		if cidr.Contains(a) {
			return true
		}
		given = given || FamilyOf(cidr.Addr()) == FamilyOf(a)
	}
	return !given
}

// String writes the value as the flag takes it.
func (n NodePortAddresses) String() string {
	if n.Primary {
		return "primary"
	}
	texts := make([]string, len(n.CIDRs))
	for i, cidr := range n.CIDRs {
		texts[i] = cidr.String()
	}
	return strings.Join(texts, ",")
}

// has says that an address is the node's own.
func (n *Node) has(a netip.Addr) bool { return slices.Contains(n.Addresses, a) }

// Primary returns the node's first address of a family, or the zero Addr.
func (n *Node) Primary(family Family) netip.Addr {
	for _, a := range n.Addresses {
		if FamilyOf(a) == family {
			return a
		}
	}
	return netip.Addr{}
}
