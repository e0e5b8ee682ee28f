// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// MTU sets what a device takes at most.
func (n *NetNS) MTU(t testing.TB, link string, mtu int) {
	t.Helper()
	if err := n.link.LinkSetMTU(n.device(t, link), mtu); err != nil {
		t.Fatalf("set the MTU of %s in %s to %d: %v", link, n, mtu, err)
	}
}

// MAC is the hardware address of a device.
func (n *NetNS) MAC(t testing.TB, link string) net.HardwareAddr {
	t.Helper()
	return n.device(t, link).Attrs().HardwareAddr
}

// Delete removes a device; of a cable, both ends go.
func (n *NetNS) Delete(t testing.TB, link string) {
	t.Helper()
	if err := n.link.LinkDel(n.device(t, link)); err != nil {
		t.Fatalf("delete %s in %s: %v", link, n, err)
	}
}

// Plug puts a device on a bridge.
func (n *NetNS) Plug(t testing.TB, link, bridge string) {
	t.Helper()
	if err := n.link.LinkSetMaster(n.device(t, link), n.device(t, bridge)); err != nil {
		t.Fatalf("put %s on %s in %s: %v", link, bridge, n, err)
	}
}

// Blackhole swallows what goes to the prefix.
func (n *NetNS) Blackhole(t testing.TB, to netip.Prefix) {
	t.Helper()
	route := &netlink.Route{
		Type: unix.RTN_BLACKHOLE,
		Dst:  &net.IPNet{IP: to.Addr().AsSlice(), Mask: net.CIDRMask(to.Bits(), to.Addr().BitLen())},
	}
	if err := n.link.RouteReplace(route); err != nil {
		t.Fatalf("blackhole for %s in %s: %v", to, n, err)
	}
}

func (n *NetNS) device(t testing.TB, name string) netlink.Link {
	t.Helper()
	link, err := n.link.LinkByName(name)
	if err != nil {
		t.Fatalf("find %s in %s: %v", name, n, err)
	}
	return link
}

// Offloads is work that a device may leave to others, or do in their place.
type Offloads struct {
	Checksums bool // checksums of what is sent are left to the device
	Segments  bool // large segments are cut by the device
	Merging   bool // small ones that come in are merged
}

// Offload sets the offloads of a device.
func (n *NetNS) Offload(t testing.TB, link string, o Offloads) {
	t.Helper()
	n.Do(func() {
		for _, setting := range []struct {
			command uint32
			on      bool
		}{
			{unix.ETHTOOL_STXCSUM, o.Checksums},
			{unix.ETHTOOL_SGSO, o.Segments}, {unix.ETHTOOL_STSO, o.Segments},
			{unix.ETHTOOL_SGRO, o.Merging},
		} {
			if err := ethtool(link, setting.command, setting.on); err != nil {
				t.Fatalf("set offload %#x of %s in %s to %v: %v", setting.command, link, n, setting.on, err)
			}
		}
	})
}

// ethtool sets a feature of a device of the calling thread's namespace.
func ethtool(link string, command uint32, on bool) error {
	value := struct{ command, data uint32 }{command: command}
	if on {
		value.data = 1
	}
	request := struct { // struct ifreq of the kernel
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&value)}
	copy(request.name[:unix.IFNAMSIZ-1], link)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	defer unix.Close(fd)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return errno
	}
	return nil
}
