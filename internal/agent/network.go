// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/rtnl"
)

// readNetwork asks the kernel for the devices of this network namespace, their
// addresses, and the routes of the main table.
func readNetwork() (network, error) {
	links, err := rtnl.Whole(netlink.LinkList)
	if err != nil {
		return network{}, fmt.Errorf("list the devices: %w", err)
	}
	addresses, err := listAddresses()
	if err != nil {
		return network{}, fmt.Errorf("list the addresses of all devices: %w", err)
	}
	routes, err := rtnl.Whole(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(unix.AF_UNSPEC, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return network{}, fmt.Errorf("list the routes of the main table: %w", err)
	}
	return newNetwork(links, addresses, routes), nil
}

func newNetwork(links []netlink.Link, addresses []netlink.Addr, routes []netlink.Route) network {
	var n network
	at := map[int]int{} // place in devices, by index
	for _, l := range links {
		a := l.Attrs()
		at[a.Index] = len(n.devices)
		n.devices = append(n.devices, netDevice{name: a.Name, index: a.Index, kind: kindOf(l), link: a.EncapType, master: a.MasterIndex})
	}
	for _, a := range addresses {
		i, known := at[a.LinkIndex]
		if ip, ok := netip.AddrFromSlice(a.IP); known && ok && ip.Unmap().IsGlobalUnicast() && lasting(a) {
			n.devices[i].addresses = append(n.devices[i].addresses, ip.Unmap())
		}
	}
	for _, r := range routes {
		if r.Type != unix.RTN_UNICAST {
			continue
		}
		for _, hop := range hopsOf(r) {
			i, known := at[hop.LinkIndex]
			if !known {
				continue
			}
			n.devices[i].gateway = n.devices[i].gateway || hop.Gw != nil || hop.Via != nil
			n.devices[i].routed = n.devices[i].routed || leadsElsewhere(r.Dst)
		}
	}
	return n
}

// kindOf is "" for a physical device, whose type the library calls device.
func kindOf(l netlink.Link) string {
	if kind := l.Type(); kind != "device" {
		return kind
	}
	return ""
}

// lasting says that others may be told of an address: it is in use, and not
// one that the kernel makes up for some hours.
func lasting(a netlink.Addr) bool {
	return a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED|unix.IFA_F_DEPRECATED) == 0 &&
		!(a.IP.To4() == nil && a.Flags&unix.IFA_F_TEMPORARY != 0)
}

// hopsOf are the next hops of a route, of which most have one.
func hopsOf(r netlink.Route) []*netlink.NexthopInfo {
	if len(r.MultiPath) > 0 {
		return r.MultiPath
	}
	return []*netlink.NexthopInfo{{LinkIndex: r.LinkIndex, Gw: r.Gw, Via: r.Via}}
}

// leadsElsewhere is false for the routes that every device has by itself.
func leadsElsewhere(to *net.IPNet) bool {
	return to == nil || !to.IP.IsLinkLocalUnicast() && !to.IP.IsMulticast()
}
