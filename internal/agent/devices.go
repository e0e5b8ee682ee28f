// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"fmt"
	"net/netip"
	"path"
	"slices"

	"github.com/fairlead-io/fairlead/internal/datapath"
)

// netDevice is a device as the kernel tells of it.
type netDevice struct {
	name   string
	index  int
	kind   string // of rtnetlink, such as bridge; "" for a physical device
	link   string // kind of its packets: ether, loopback, none…
	master int    // index of the device that it is enslaved to; 0 for none
	// addresses are the global ones, in the kernel's order.
	addresses []netip.Addr
	gateway   bool // a route of the main table goes through it to another router
	routed    bool // a route of the main table goes through it
}

// network is what device rules look at.
type network struct {
	devices []netDevice
}

// The kinds of devices that the rules tell apart.
var (
	uplinkKinds = []string{"", "bond", "team", "vlan", "macvlan"}
	tunnelKinds = []string{
		"vxlan", "geneve", "gre", "gretap", "ip6gre", "ip6gretap", "erspan", "ip6erspan",
		"ipip", "sit", "ip6tnl", "vti", "vti6", "xfrm", "wireguard",
	}
	// masterKinds are those whose ports have no packets of their own.
	masterKinds = []string{"bridge", "bond", "team"}
)

const etherLink = "ether"

// deviceRules say which devices pass the programs.
type deviceRules struct {
	outside []string // patterns; if there are any, no other device is outside
	inside  []string // patterns
}

// chosenDevice is a device that is wanted, and why.
type chosenDevice struct {
	datapath.Device
	why     string
	skipped string // why it is not served all the same; "" if it is
}

// choose applies the rules to all devices, in the order of their names. Sources
// are addresses of the node for those that have none of their own.
func (r deviceRules) choose(n network, node []netip.Addr) []chosenDevice {
	reasons := map[int]string{}
	var chosen []chosenDevice
	for _, d := range n.devices {
		if pattern, ok := matching(r.inside, d.name); ok {
			chosen = append(chosen, d.chosen(true, "named by --pod-devices "+pattern, node))
			continue
		}
		at, why := r.outsideReason(n, d)
		if why != "" && reasons[at] == "" {
			reasons[at] = why
		}
	}
	for _, d := range n.devices {
		_, isInside := matching(r.inside, d.name)
		if why := reasons[d.index]; why != "" && !isInside {
			chosen = append(chosen, d.chosen(false, why, node))
		}
	}
	slices.SortFunc(chosen, func(a, b chosenDevice) int { return cmp.Compare(a.Name, b.Name) })
	return chosen
}

// outsideReason says which device faces other machines because of this one,
// and why: itself or, of a port, its master. The reason is "" if none does.
func (r deviceRules) outsideReason(n network, d netDevice) (index int, why string) {
	if len(r.outside) > 0 {
		if pattern, ok := matching(r.outside, d.name); ok {
			return d.index, "named by --devices " + pattern
		}
		return 0, ""
	}
	why = cmp.Or(d.facesOthers(), n.bridgesOthers(d))
	if why == "" {
		return 0, ""
	}
	if master, ok := n.master(d); ok {
		return master.index, fmt.Sprintf("its port %s: %s", d.name, why)
	}
	return d.index, why
}

// facesOthers is the rule for a device of which nobody said anything.
func (d netDevice) facesOthers() (why string) {
	isTunnel := slices.Contains(tunnelKinds, d.kind)
	switch {
	case d.link == "loopback":
		return ""
	case d.gateway:
		return "a route goes through it to a gateway"
	case slices.Contains(uplinkKinds, d.kind) && len(d.addresses) > 0:
		return fmt.Sprintf("%s with an address", cmp.Or(d.kind, "physical device"))
	case isTunnel && len(d.addresses) > 0:
		return d.kind + " tunnel with an address"
	case isTunnel && d.routed:
		return d.kind + " tunnel with a route"
	}
	return ""
}

// bridgesOthers is the rule for a bridge without a gateway: pods are behind
// ports of other kinds.
func (n network) bridgesOthers(d netDevice) (why string) {
	if d.kind != "bridge" || len(d.addresses) == 0 {
		return ""
	}
	i := slices.IndexFunc(n.devices, func(port netDevice) bool {
		return port.master == d.index && slices.Contains(uplinkKinds, port.kind)
	})
	if i < 0 {
		return ""
	}
	return "bridge with an address and the port " + n.devices[i].name
}

// master is the device whose port d is.
func (n network) master(d netDevice) (netDevice, bool) {
	i := slices.IndexFunc(n.devices, func(m netDevice) bool { return m.index == d.master && slices.Contains(masterKinds, m.kind) })
	if d.master == 0 || i < 0 {
		return netDevice{}, false
	}
	return n.devices[i], true
}

func (d netDevice) chosen(inside bool, why string, node []netip.Addr) chosenDevice {
	c := chosenDevice{Device: datapath.Device{Name: d.name, Index: d.index, Inside: inside}, why: why}
	if d.link != etherLink {
		c.skipped = fmt.Sprintf("its packets (%s) have no Ethernet header, which the programs read", cmp.Or(d.link, "unknown"))
		return c
	}
	if inside {
		return c
	}
	for _, a := range slices.Concat(inOrder(d.addresses, node), node) {
		if a.Is4() && !c.Source4.IsValid() {
			c.Source4 = a
		}
		if a.Is6() && !c.Source6.IsValid() {
			c.Source6 = a
		}
	}
	return c
}

// inOrder puts addresses first that come first among the node's: the others may
// be another node's tomorrow.
func inOrder(addresses, node []netip.Addr) []netip.Addr {
	place := func(a netip.Addr) int {
		if i := slices.Index(node, a); i >= 0 {
			return i
		}
		return len(node)
	}
	return slices.SortedStableFunc(slices.Values(addresses), func(a, b netip.Addr) int { return place(a) - place(b) })
}

// matching returns the first pattern that a name matches. Patterns were
// checked as they were read.
func matching(patterns []string, name string) (pattern string, ok bool) {
	for _, p := range patterns {
		if matched, err := path.Match(p, name); err == nil && matched {
			return p, true
		}
	}
	return "", false
}

// served are the devices that the datapath is to serve.
func served(chosen []chosenDevice) []datapath.Device {
	devices := []datapath.Device{}
	for _, c := range chosen {
		if c.skipped == "" {
			devices = append(devices, c.Device)
		}
	}
	return devices
}
