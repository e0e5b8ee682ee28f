// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	vxlanPort = 8472
	// vxlanRoom is what its headers take of a packet over IPv4.
	vxlanRoom = 50
)

// VXLAN adds a device that carries packets to other nodes inside UDP between
// their addresses. It learns nothing by itself: see Beyond.
func (n *NetNS) VXLAN(t testing.TB, end End, id int, underlay netip.Addr, over string) {
	t.Helper()
	below := n.device(t, over)
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = end.Link, below.Attrs().MTU-vxlanRoom
	err := n.link.LinkAdd(&netlink.Vxlan{
		LinkAttrs: attrs, VxlanId: id, VtepDevIndex: below.Attrs().Index, SrcAddr: underlay.AsSlice(), Port: vxlanPort,
	})
	if err == nil {
		err = end.setUp()
	}
	if err != nil {
		t.Fatalf("VXLAN device %s in %s: %v", end.Link, n, err)
	}
}

// Beyond tells a VXLAN device of a node at its other side: which addresses it
// has there, what its device is called by hardware, and where it is in truth.
func (n *NetNS) Beyond(t testing.TB, link string, mac net.HardwareAddr, underlay netip.Addr, addrs ...netip.Addr) {
	t.Helper()
	if err := n.beyond(n.device(t, link).Attrs().Index, mac, underlay, addrs); err != nil {
		t.Fatalf("neighbour %s of %s in %s: %v", mac, link, n, err)
	}
}

func (n *NetNS) beyond(index int, mac net.HardwareAddr, underlay netip.Addr, addrs []netip.Addr) error {
	err := n.link.NeighSet(&netlink.Neigh{
		LinkIndex: index, Family: unix.AF_BRIDGE, State: netlink.NUD_PERMANENT, Flags: netlink.NTF_SELF,
		IP: underlay.AsSlice(), HardwareAddr: mac,
	})
	if err != nil {
		return fmt.Errorf("forwarding entry: %w", err)
	}
	for _, addr := range addrs {
		err := n.link.NeighSet(&netlink.Neigh{
			LinkIndex: index, State: netlink.NUD_PERMANENT, IP: addr.AsSlice(), HardwareAddr: mac,
		})
		if err != nil {
			return fmt.Errorf("%s: %w", addr, err)
		}
	}
	return nil
}

// BridgedPod adds a pod behind a bridge of the node, as bridge CNIs do: it has
// addresses of the bridge's networks, whose own addresses are its way out. The
// node forwards.
func (n *NetNS) BridgedPod(t testing.TB, name, bridge string, gateways []netip.Addr, addrs ...netip.Prefix) *NetNS {
	t.Helper()
	pod := NewNetNS(t, name)
	eth0 := End{NetNS: pod, Link: "eth0"}
	for _, addr := range addrs {
		eth0.Addrs = append(eth0.Addrs, addr.String())
	}
	Veth(t, End{NetNS: n, Link: name}, eth0)
	n.Plug(t, name, bridge)
	// A bridge without a port has no carrier, and none of its addresses of IPv6.
	if err := (End{NetNS: n, Link: bridge}).settle(); err != nil {
		t.Fatalf("pod %s: %v", name, err)
	}
	for _, via := range gateways {
		pod.Route(t, everything(via), via, "eth0")
		n.Sysctl(t, forwarding(via), "1")
	}
	return pod
}

// Forward lets the namespace pass on what is not for itself.
func (n *NetNS) Forward(t testing.TB) {
	t.Helper()
	n.Sysctl(t, forwarding(gateway4), "1")
	n.Sysctl(t, forwarding(gateway6), "1")
}
