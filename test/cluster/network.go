// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"
)

// The cluster's addresses. The network that they are in has no way out.
const (
	lanBits      = 24
	controlIP    = "198.19.0.10"
	podCIDR      = "10.245.0.0/16"
	serviceCIDR  = "10.97.0.0/16"
	apiServiceIP = "10.97.0.1"
	dnsServiceIP = "10.97.0.10"
	// intranetIP is that of a load balancer in front of the API server, from a
	// range of its own.
	intranetIP = "10.98.0.8"
)

const nodeCount = 3

// machine is a node as its neighbours know it.
type machine struct {
	Name    string
	IP      string
	PodCIDR string
	Zone    string
}

func machines() []machine {
	var all []machine
	for i := 1; i <= nodeCount; i++ {
		all = append(all, machine{
			Name:    fmt.Sprintf("n%d", i),
			IP:      fmt.Sprintf("198.19.0.%d", 10+i),
			PodCIDR: fmt.Sprintf("10.245.%d.0/24", i),
			Zone:    fmt.Sprintf("zone%d", i),
		})
	}
	return all
}

// bridgeName is that of the switch between the machines, in control's
// namespace.
const bridgeName = "lan0"

// makeLAN makes the network to which machines are connected. Control is in it,
// as the gateway that leads nowhere and as a client outside the nodes.
func makeLAN() error {
	if err := setUp("lo"); err != nil {
		return err
	}
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridgeName}}); err != nil {
		return fmt.Errorf("make the bridge: %w", err)
	}
	if err := addAddress(bridgeName, controlIP); err != nil {
		return err
	}
	return forwardPackets()
}

// connect lays a cable from the bridge to a machine, whose end is eth0.
func connect(m machine, pid int) error {
	bridge, err := netlink.LinkByName(bridgeName)
	if err != nil {
		return err
	}
	cable := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: m.Name, MasterIndex: bridge.Attrs().Index},
		PeerName:      "eth0",
		PeerNamespace: netlink.NsPid(pid),
	}
	if err := netlink.LinkAdd(cable); err != nil {
		return fmt.Errorf("connect node %s: %w", m.Name, err)
	}
	if err := setUp(m.Name); err != nil {
		return err
	}
	return addRoute(m.PodCIDR, m.IP)
}

// joinLAN gives a machine its address, and routes to control and to the pods
// of its neighbours.
func joinLAN(self machine, neighbours []machine) error {
	if err := setUp("lo"); err != nil {
		return err
	}
	if err := addAddress("eth0", self.IP); err != nil {
		return err
	}
	// Without a default route, a node refuses ClusterIPs before a proxy sees them.
	if err := addRoute("0.0.0.0/0", controlIP); err != nil {
		return err
	}
	for _, m := range neighbours {
		if err := addRoute(m.PodCIDR, m.IP); err != nil {
			return err
		}
	}
	return forwardPackets()
}

func setUp(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", name, err)
	}
	return nil
}

// addAddress gives a device an address of the LAN and sets it up.
func addAddress(name, ip string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	address := &net.IPNet{IP: net.ParseIP(ip), Mask: net.CIDRMask(lanBits, 32)}
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: address}); err != nil {
		return fmt.Errorf("add %s to %s: %w", address, name, err)
	}
	return setUp(name)
}

func addRoute(to, via string) error {
	_, network, err := net.ParseCIDR(to)
	if err != nil {
		return err
	}
	if err := netlink.RouteAdd(&netlink.Route{Dst: network, Gw: net.ParseIP(via)}); err != nil {
		return fmt.Errorf("add the route to %s via %s: %w", to, via, err)
	}
	return nil
}

func forwardPackets() error {
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
}
