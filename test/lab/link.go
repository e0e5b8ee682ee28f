// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The addresses by which a pod knows its node: they are the same for every
// pod and lie on the pod's own link only.
var (
	gateway4 = netip.MustParseAddr("169.254.1.1")
	gateway6 = netip.MustParseAddr("fe80::1")
)

// End is one end of a cable: a device with its addresses in a namespace.
type End struct {
	NetNS *NetNS
	Link  string
	Addrs []string // with prefix length
}

// Veth connects two namespaces, or one with itself, by a cable that is up at
// both ends, and whose addresses can be used at once.
func Veth(t testing.TB, a, b End) {
	t.Helper()
	if err := veth(a, b); err != nil {
		t.Fatalf("cable from %s in %s to %s in %s: %v", a.Link, a.NetNS, b.Link, b.NetNS, err)
	}
}

func veth(a, b End) error {
	index, err := cableIndex(a.NetNS, b.NetNS)
	if err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Index = a.Link, index
	err = a.NetNS.link.LinkAdd(&netlink.Veth{
		LinkAttrs:     attrs,
		PeerName:      b.Link,
		PeerNamespace: netlink.NsFd(b.NetNS.file.Fd()),
	})
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	for _, end := range []End{a, b} {
		if err := end.setUp(); err != nil {
			return err
		}
	}
	for _, end := range []End{a, b} {
		if err := end.settle(); err != nil {
			return err
		}
	}
	return nil
}

// settle waits until the kernel has noticed that the other end is up too, and
// may use the device's own address of IPv6. What is sent before is lost, and
// sent again after a second.
func (e End) settle() error {
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Microsecond) {
		settled, err := e.settled()
		if err != nil || settled {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s in %s is not ready after %s", e.Link, e.NetNS, patience)
		}
	}
}

func (e End) settled() (bool, error) {
	link, err := e.NetNS.link.LinkByName(e.Link)
	if err != nil {
		return false, fmt.Errorf("find %s in %s: %w", e.Link, e.NetNS, err)
	}
	addrs, err := e.NetNS.link.AddrList(link, unix.AF_INET6)
	if err != nil {
		return false, fmt.Errorf("list the addresses of %s in %s: %w", e.Link, e.NetNS, err)
	}
	tentative := slices.ContainsFunc(addrs, func(a netlink.Addr) bool { return a.Flags&unix.IFA_F_TENTATIVE != 0 })
	return link.Attrs().OperState == netlink.OperUp && !tentative, nil
}

// cableIndex returns an index for one end of a cable that the other end will
// not get by itself. Where both ends have the same index, the kernel takes
// them for a device that is linked to nothing, and lets up to a second pass
// before it notices that the cable can be used.
func cableIndex(ends ...*NetNS) (int, error) {
	last := 0
	for _, ns := range ends {
		links, err := ns.link.LinkList()
		if err != nil {
			return 0, fmt.Errorf("list the devices of %s: %w", ns, err)
		}
		for _, link := range links {
			last = max(last, link.Attrs().Index)
		}
	}
	return last + 2, nil
}

func (e End) setUp() error {
	link, err := e.NetNS.link.LinkByName(e.Link)
	if err != nil {
		return fmt.Errorf("find %s in %s: %w", e.Link, e.NetNS, err)
	}
	for _, text := range e.Addrs {
		addr, err := netlink.ParseAddr(text)
		if err != nil {
			return fmt.Errorf("address of %s in %s: %w", e.Link, e.NetNS, err)
		}
		addr.Flags = unix.IFA_F_NODAD
		if err := e.NetNS.link.AddrAdd(link, addr); err != nil {
			return fmt.Errorf("add %s to %s in %s: %w", text, e.Link, e.NetNS, err)
		}
	}
	if err := e.NetNS.link.LinkSetUp(link); err != nil {
		return fmt.Errorf("set up %s in %s: %w", e.Link, e.NetNS, err)
	}
	return nil
}

// Bridge puts devices of the namespace on a new bridge, which itself has
// addresses where any are given, as a node's uplink switch or a CNI's bridge.
func (n *NetNS) Bridge(t testing.TB, bridge End, ports ...string) {
	t.Helper()
	if err := n.bridge(bridge, ports); err != nil {
		t.Fatalf("bridge %s in %s: %v", bridge.Link, n, err)
	}
}

func (n *NetNS) bridge(bridge End, ports []string) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = bridge.Link
	master := &netlink.Bridge{LinkAttrs: attrs}
	if err := n.link.LinkAdd(master); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	for _, port := range ports {
		link, err := n.link.LinkByName(port)
		if err != nil {
			return fmt.Errorf("find %s: %w", port, err)
		}
		if err := n.link.LinkSetMaster(link, master); err != nil {
			return fmt.Errorf("add %s: %w", port, err)
		}
	}
	if err := bridge.setUp(); err != nil || len(ports) == 0 {
		return err
	}
	return bridge.settle()
}

// Addr adds an address with prefix length to a device. It can be used at once.
func (n *NetNS) Addr(t testing.TB, link, addr string) {
	t.Helper()
	if err := (End{n, link, []string{addr}}).setUp(); err != nil {
		t.Fatal(err)
	}
	if err := n.awaitRoute(netip.MustParsePrefix(addr).Addr()); err != nil {
		t.Fatal(err)
	}
}

// awaitRoute waits until the kernel takes an address for the namespace's own.
// It makes the route to one of IPv6 in its own time.
func (n *NetNS) awaitRoute(addr netip.Addr) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Microsecond) {
		routes, err := n.link.RouteGet(addr.AsSlice())
		if err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s is not an own address of %s after %s: the routes to it are %v, %v", addr, n, patience, routes, err)
		}
	}
}

// SetLink sets a device up or down. With one end of a cable down the other one
// has no carrier, and what is sent into it is lost.
func (n *NetNS) SetLink(t testing.TB, link string, up bool) {
	t.Helper()
	set := n.link.LinkSetDown
	if up {
		set = n.link.LinkSetUp
	}
	device, err := n.link.LinkByName(link)
	if err == nil {
		err = set(device)
	}
	if err != nil {
		t.Fatalf("set %s in %s up: %v: %v", link, n, up, err)
	}
}

// Route sends what goes to the prefix to another machine, or to a device's
// own link where via is not valid.
func (n *NetNS) Route(t testing.TB, to netip.Prefix, via netip.Addr, link string) {
	t.Helper()
	if err := n.route(to, via, link); err != nil {
		t.Fatalf("route to %s via %s dev %s in %s: %v", to, via, link, n, err)
	}
}

func (n *NetNS) route(to netip.Prefix, via netip.Addr, link string) error {
	route := &netlink.Route{Dst: &net.IPNet{
		IP:   to.Addr().AsSlice(),
		Mask: net.CIDRMask(to.Bits(), to.Addr().BitLen()),
	}}
	if via.IsValid() {
		// The other machine need not lie in any network of the device's.
		route.Gw, route.Flags = via.AsSlice(), int(netlink.FLAG_ONLINK)
	} else {
		route.Scope = netlink.SCOPE_LINK
	}
	dev, err := n.link.LinkByName(link)
	if err != nil {
		return err
	}
	route.LinkIndex = dev.Attrs().Index
	return n.link.RouteReplace(route)
}

// Pod adds a pod with the given addresses to the node n, as a routing CNI
// does: a device eth0 in a namespace of its own, whose only way out is the
// node, and on the node a device of the pod's name with a route to each of its
// addresses. The node forwards.
func (n *NetNS) Pod(t testing.TB, name string, addrs ...netip.Addr) *NetNS {
	t.Helper()
	pod := NewNetNS(t, name)
	node := End{NetNS: n, Link: name}
	eth0 := End{NetNS: pod, Link: "eth0"}
	for _, addr := range addrs {
		eth0.Addrs = append(eth0.Addrs, hostPrefix(addr).String())
		node.Addrs = append(node.Addrs, gatewayPrefix(addr))
	}
	Veth(t, node, eth0)
	for _, addr := range addrs {
		n.Route(t, hostPrefix(addr), netip.Addr{}, name)
		pod.Route(t, everything(addr), gateway(addr), "eth0")
		n.Sysctl(t, forwarding(addr), "1")
	}
	return pod
}

func hostPrefix(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func gateway(family netip.Addr) netip.Addr {
	if family.Is4() {
		return gateway4
	}
	return gateway6
}

// gatewayPrefix is a /32 where IPv4 asks for no network, and the link's own
// /64 where IPv6 does.
func gatewayPrefix(family netip.Addr) string {
	if family.Is4() {
		return hostPrefix(gateway4).String()
	}
	return netip.PrefixFrom(gateway6, 64).String()
}

func everything(family netip.Addr) netip.Prefix {
	if family.Is4() {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

func forwarding(family netip.Addr) string {
	if family.Is4() {
		return "net.ipv4.ip_forward"
	}
	return "net.ipv6.conf.all.forwarding"
}
