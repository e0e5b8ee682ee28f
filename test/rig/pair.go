// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/fairlead-io/fairlead/test/lab"
)

// Pair is one address of each family.
type Pair struct{ V4, V6 netip.Addr }

// ParsePair reads an address of each family.
func ParsePair(v4, v6 string) Pair { return Pair{netip.MustParseAddr(v4), netip.MustParseAddr(v6)} }

// List is the pair as a list.
func (p Pair) List() []netip.Addr { return []netip.Addr{p.V4, p.V6} }

// Items writes the pair as the items of a YAML list.
func (p Pair) Items() string { return fmt.Sprintf("%s, %q", p.V4, p.V6) }

// OnLink writes the pair as the addresses of a device whose link has a network
// of the usual length.
func (p Pair) OnLink() []string { return []string{p.V4.String() + "/24", p.V6.String() + "/64"} }

// Like is the address of that family.
func (p Pair) Like(addr netip.Addr) netip.Addr {
	if addr.Is4() {
		return p.V4
	}
	return p.V6
}

// everything is all addresses of both families.
var everything = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

// Lead lets a machine send what is for the prefixes to another one, which it
// reaches through the device; everything, where none is named.
func Lead(t testing.TB, ns *lab.NetNS, link string, to Pair, prefixes ...netip.Prefix) {
	t.Helper()
	if len(prefixes) == 0 {
		prefixes = everything
	}
	for _, prefix := range prefixes {
		ns.Route(t, prefix, to.Like(prefix.Addr()), link)
	}
}
