// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/rtnl"
)

// localAddresses are those of the network namespace's interfaces, but for
// loopback and link-local ones, which nobody else can dial.
func localAddresses() ([]netip.Addr, error) {
	list, err := listAddresses()
	if err != nil {
		return nil, fmt.Errorf("list the addresses of all interfaces: %w", err)
	}
	var addresses []netip.Addr
	for _, l := range list {
		a, ok := netip.AddrFromSlice(l.IP)
		a = a.Unmap()
		if ok && !a.IsLoopback() && !a.IsLinkLocalUnicast() {
			addresses = append(addresses, a)
		}
	}
	return addresses, nil
}

func listAddresses() ([]netlink.Addr, error) {
	return rtnl.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, unix.AF_UNSPEC) })
}

// followAddresses calls changed as followKernel does, for addresses.
func followAddresses(ctx context.Context, changed func()) error {
	err := followKernel(ctx, func([]syscall.NetlinkMessage) { changed() }, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR)
	if err != nil {
		return fmt.Errorf("follow the node's addresses: %w", err)
	}
	return nil
}
