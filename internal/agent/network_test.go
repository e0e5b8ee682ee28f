// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/test/lab"
)

// describe writes a device as the kernel told of it.
func (d netDevice) describe() string {
	text := fmt.Sprintf("%s %q %s %v", d.name, d.kind, d.link, d.addresses)
	if d.gateway {
		text += " gateway"
	}
	if d.routed {
		text += " routed"
	}
	return text
}

func TestTheKernelTellsOfDevicesAddressesAndRoutes(t *testing.T) {
	node := newNode(t, "192.0.2.1/24", "2001:db8::1/64")
	lab.Veth(t, lab.End{NetNS: node, Link: "eth1"}, lab.End{NetNS: lab.NewNetNS(t, "n3"), Link: "eth0"})
	lab.Veth(t, lab.End{NetNS: node, Link: "eth2"}, lab.End{NetNS: lab.NewNetNS(t, "n4"), Link: "eth0"})
	node.Addr(t, "lo", "10.96.0.1/32")
	node.Route(t, netip.MustParsePrefix("::/0"), netip.MustParseAddr("fe80::9"), "eth0")
	node.Pod(t, "pod", netip.MustParseAddr("10.0.1.7"), netip.MustParseAddr("fd00:1::7"))
	var n network
	node.Do(func() {
		makeDevices(t)
		var err error
		if n, err = readNetwork(); err != nil {
			t.Fatal(err)
		}
	})
	var got []string
	masters := map[string]string{}
	for _, d := range n.devices {
		got = append(got, d.describe())
		if m, ok := n.master(d); ok {
			masters[d.name] = m.name
		}
	}
	slices.Sort(got)
	want := []string{
		`br0 "bridge" ether []`,
		`eth0 "veth" ether [192.0.2.1 2001:db8::1] gateway routed`,
		`eth1 "veth" ether [] gateway routed`,
		`eth2 "veth" ether [] gateway routed`,
		`lo "" loopback [10.96.0.1]`,
		`mac0 "macvlan" ether []`,
		`pod "veth" ether [] routed`,
		`tun0 "tuntap" none []`,
		`vxlan0 "vxlan" ether [10.244.1.0] routed`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"mac0": "br0"}, masters); diff != "" {
		t.Errorf("masters (-want +got)\n%s", diff)
	}
}

// makeDevices makes one of each kind that the kernel has, and a route with
// several next hops, which lead through eth1 and eth2.
func makeDevices(t *testing.T) {
	t.Helper()
	attrs := func(name string) netlink.LinkAttrs {
		a := netlink.NewLinkAttrs()
		a.Name = name
		return a
	}
	index := func(name string) int {
		l, err := netlink.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		return l.Attrs().Index
	}
	bridge := &netlink.Bridge{LinkAttrs: attrs("br0")}
	vxlan := &netlink.Vxlan{LinkAttrs: attrs("vxlan0"), VxlanId: 1, Port: 4789}
	must(t, netlink.LinkAdd(bridge), netlink.LinkAdd(vxlan))
	mac := &netlink.Macvlan{LinkAttrs: attrs("mac0"), Mode: netlink.MACVLAN_MODE_BRIDGE}
	mac.ParentIndex = index("eth1")
	must(t, netlink.LinkAdd(mac), netlink.LinkSetMaster(mac, bridge))
	must(t, netlink.LinkAdd(&netlink.Tuntap{LinkAttrs: attrs("tun0"), Mode: netlink.TUNTAP_MODE_TUN}))
	address, err := netlink.ParseAddr("10.244.1.0/32")
	must(t, err, netlink.LinkSetUp(vxlan), netlink.AddrAdd(vxlan, address))
	hop := func(device, via string) *netlink.NexthopInfo {
		return &netlink.NexthopInfo{LinkIndex: index(device), Gw: net.ParseIP(via).To4(), Flags: int(netlink.FLAG_ONLINK)}
	}
	_, to, err := net.ParseCIDR("203.0.113.0/24")
	_, pods, podsErr := net.ParseCIDR("10.244.2.0/24")
	_, elsewhere, elsewhereErr := net.ParseCIDR("10.244.3.0/24")
	must(t, err, podsErr, elsewhereErr,
		netlink.RouteAdd(&netlink.Route{Dst: to, MultiPath: []*netlink.NexthopInfo{hop("eth1", "198.51.100.1"), hop("eth2", "198.51.100.2")}}),
		netlink.RouteAdd(&netlink.Route{Dst: pods, LinkIndex: index("vxlan0"), Scope: netlink.SCOPE_LINK}),
		// Not of the main table, and no way to anywhere.
		netlink.RouteAdd(&netlink.Route{Dst: elsewhere, LinkIndex: index("eth0"), Gw: net.ParseIP("192.0.2.9"), Table: 100}),
		netlink.RouteAdd(&netlink.Route{Dst: elsewhere, Type: unix.RTN_BLACKHOLE}))
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
