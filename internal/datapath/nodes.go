// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// SetNodeAddresses makes the map of addresses that serve NodePorts hold
// exactly these (R24). Loopback needs no entry: programs know it.
func (d *Datapath) SetNodeAddresses(addresses []netip.Addr) error {
	m := d.current.maps[mapNodes]
	wanted := make(map[address]struct{}, len(addresses))
	for _, a := range addresses {
		k := addressOf(a)
		wanted[k] = struct{}{}
		if err := m.Put(k, uint32(1)); err != nil {
			return fmt.Errorf("write node address %s: %w", a, err)
		}
	}
	var k address
	var v uint32
	var gone []address
	entries := m.Iterate()
	for entries.Next(&k, &v) {
		if _, ok := wanted[k]; !ok {
			gone = append(gone, k)
		}
	}
	if err := entries.Err(); err != nil {
		return fmt.Errorf("read the node addresses: %w", err)
	}
	for _, k := range gone {
		if err := ignoreMissing(m.Delete(k)); err != nil {
			return fmt.Errorf("delete node address %s: %w", k.addr(), err)
		}
	}
	return nil
}

// NetNSCookie returns the cookie of the calling thread's network namespace,
// as bpf_get_netns_cookie gives it to programs.
func NetNSCookie() (uint64, error) {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open a socket to ask for the namespace's cookie: %w", err)
	}
	defer unix.Close(s)
	cookie, err := unix.GetsockoptUint64(s, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0, fmt.Errorf("ask for the network namespace's cookie (Linux 5.14): %w", err)
	}
	return cookie, nil
}
