// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
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

// listAddresses asks again when an address changed while the kernel listed
// them: such a list is neither what was nor what is.
func listAddresses() (list []netlink.Addr, err error) {
	const tries = 5
	for range tries {
		if list, err = netlink.AddrList(nil, unix.AF_UNSPEC); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return list, err
}

// addressBuffer holds the announcements of thousands of addresses at once, as
// when a device goes that had them.
const addressBuffer = 1 << 20

// followAddresses calls changed once it can miss nothing more, and after every
// change of an address, until ctx ends. An error says that changes may have
// been missed from here on, as when the kernel had more to tell than it could keep.
func followAddresses(parent context.Context, changed func()) error {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	var failure error // set before updates is closed
	updates := make(chan netlink.AddrUpdate, 64)
	err := netlink.AddrSubscribeWithOptions(updates, ctx.Done(), netlink.AddrSubscribeOptions{
		ErrorCallback:     func(err error) { failure = err },
		ReceiveBufferSize: addressBuffer,
		// Beyond net.core.rmem_max.
		ReceiveBufferForceSize: true,
	})
	if err != nil {
		return fmt.Errorf("follow the node's addresses: %w", err)
	}
	changed()
	for range updates {
		changed()
	}
	if parent.Err() != nil {
		return nil
	}
	return fmt.Errorf("follow the node's addresses: %w", failure)
}
