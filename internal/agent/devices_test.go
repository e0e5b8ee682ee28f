// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/datapath"
)

// dev is an Ethernet device; its index is that of its place in a test's list.
func dev(name, kind string, more ...func(*netDevice)) netDevice {
	d := netDevice{name: name, kind: kind, link: etherLink}
	for _, m := range more {
		m(&d)
	}
	return d
}

func with(addresses ...string) func(*netDevice) {
	return func(d *netDevice) { d.addresses = parse(addresses...) }
}

func gateway(d *netDevice) { d.gateway, d.routed = true, true }

func routed(d *netDevice) { d.routed = true }

func packets(link string) func(*netDevice) { return func(d *netDevice) { d.link = link } }

// portOf enslaves to the device with this index.
func portOf(master int) func(*netDevice) { return func(d *netDevice) { d.master = master } }

func networkOf(devices ...netDevice) network {
	for i := range devices {
		devices[i].index = i + 1
	}
	return network{devices}
}

// line writes a device that was chosen as a test wants it.
func line(c chosenDevice) string {
	side := "outside"
	if c.Inside {
		side = "inside"
	}
	if c.skipped != "" {
		side = "skipped"
	}
	return fmt.Sprintf("%s %s: %s", c.Name, side, c.why)
}

func TestDevicesThatFaceOtherMachinesAreOutside(t *testing.T) {
	for _, c := range []struct {
		name    string
		network network
		rules   deviceRules
		want    []string
	}{
		{"a node with nothing but loopback has none", networkOf(dev("lo", "", packets("loopback"), with("192.0.2.9"), gateway)), deviceRules{}, nil},
		{"whatever leads to a gateway is, even a veth or a bridge", networkOf(
			dev("veth0", "veth", gateway), dev("br0", "bridge", gateway, with("192.0.2.1")), dev("dummy0", "dummy", gateway)),
			deviceRules{}, []string{
				"br0 outside: a route goes through it to a gateway", "dummy0 outside: a route goes through it to a gateway",
				"veth0 outside: a route goes through it to a gateway",
			}},
		{"physical devices and what stands for them are, with an address", networkOf(
			dev("eth0", "", with("192.0.2.1")), dev("eth1", ""), dev("bond0", "bond", with("2001:db8::1")), dev("team0", "team", with("192.0.2.3")),
			dev("eth0.7", "vlan", with("192.0.2.4")), dev("mac0", "macvlan", with("192.0.2.5")), dev("eth0.8", "vlan", routed)),
			deviceRules{}, []string{
				"bond0 outside: bond with an address", "eth0 outside: physical device with an address",
				"eth0.7 outside: vlan with an address", "mac0 outside: macvlan with an address", "team0 outside: team with an address",
			}},
		{"tunnels are, with an address or a route", networkOf(
			dev("flannel.1", "vxlan", with("10.244.1.0")), dev("vxlan.calico", "vxlan", routed), dev("geneve0", "geneve"), dev("gretap0", "gretap", routed)),
			deviceRules{}, []string{
				"flannel.1 outside: vxlan tunnel with an address", "gretap0 outside: gretap tunnel with a route", "vxlan.calico outside: vxlan tunnel with a route",
			}},
		{"what leads to pods is not", networkOf(
			dev("cni0", "bridge", with("10.244.1.1"), routed), dev("cali1", "veth", routed), dev("tap0", "tun", with("192.0.2.1"), routed),
			dev("nodelocaldns", "dummy", with("169.254.20.10", "10.96.0.10")), dev("kube-ipvs0", "dummy", with("10.96.0.1"))), deviceRules{}, nil},
		{"what has no Ethernet header is skipped, and says so", networkOf(
			dev("tunl0", "ipip", packets("ipip"), with("10.1.1.1")), dev("wg0", "wireguard", packets("none"), gateway), dev("sit0", "sit", packets("sit"))),
			deviceRules{}, []string{"tunl0 skipped: ipip tunnel with an address", "wg0 skipped: a route goes through it to a gateway"}},
		{"a port's master is taken in its stead", networkOf(
			dev("bond0", "bond"), dev("eth0", "", portOf(1), with("192.0.2.1")), dev("eth1", "", portOf(1)),
			dev("br0", "bridge"), dev("eth2", "", portOf(4), gateway), dev("vrf0", "vrf"), dev("eth3", "", portOf(6), with("192.0.2.2"))),
			deviceRules{}, []string{
				"bond0 outside: its port eth0: physical device with an address", "br0 outside: its port eth2: a route goes through it to a gateway",
				"eth3 outside: physical device with an address",
			}},
		{"a master that is outside by itself keeps its own reason", networkOf(
			dev("bond0", "bond", gateway, with("192.0.2.1")), dev("eth0", "", portOf(1))),
			deviceRules{}, []string{"bond0 outside: a route goes through it to a gateway"}},
		{"a bridge with an address is, once it has a port that leads out", networkOf(
			dev("br0", "bridge", with("192.0.2.1")), dev("eth0", "", portOf(1)), dev("veth1", "veth", portOf(1)),
			dev("cni0", "bridge", with("10.244.1.1")), dev("veth2", "veth", portOf(4)), dev("br1", "bridge"), dev("eth1", "", portOf(6))),
			deviceRules{}, []string{"br0 outside: bridge with an address and the port eth0"}},
		{"--devices overrides the rule", networkOf(
			dev("lo", "", packets("loopback")), dev("eth0", "", gateway), dev("br1", "bridge"), dev("port", "veth", portOf(3))),
			deviceRules{outside: []string{"br?", "port", "nothing*", "lo"}}, []string{
				"br1 outside: named by --devices br?", "lo skipped: named by --devices lo", "port outside: named by --devices port",
			}},
		{"--pod-devices go before all else", networkOf(
			dev("eth0", "", gateway), dev("kata1", "veth", gateway), dev("tap1", "tun", portOf(1))),
			deviceRules{inside: []string{"kata*", "tap[0-9]"}}, []string{
				"eth0 outside: a route goes through it to a gateway", "kata1 inside: named by --pod-devices kata*", "tap1 inside: named by --pod-devices tap[0-9]",
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, d := range c.rules.choose(c.network, nil) {
				got = append(got, line(d))
				if (d.skipped == "") != slices.Contains(served([]chosenDevice{d}), d.Device) {
					t.Errorf("%s: skipped %q", d.Name, d.skipped)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestTheSourceIsAnAddressOfTheDeviceOrElseTheNodes(t *testing.T) {
	node := parse("192.0.2.1", "192.0.2.99", "2001:db8::1")
	for _, c := range []struct {
		name   string
		device netDevice
		v4, v6 string
	}{
		{"of both families its own", dev("eth0", "", with("198.51.100.1", "198.51.100.2", "2001:db8:1::1", "2001:db8:1::2")), "198.51.100.1", "2001:db8:1::1"},
		{"the node's of the family that it lacks", dev("eth0", "", with("2001:db8:1::1")), "192.0.2.1", "2001:db8:1::1"},
		{"the node's", dev("eth0", ""), "192.0.2.1", "2001:db8::1"},
		{"of its own the one that is the node's first: IPv6 lists the newest first, which may move to another node",
			dev("eth0", "", with("192.0.2.99", "192.0.2.1", "2001:db8::99", "2001:db8::1")), "192.0.2.1", "2001:db8::1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := deviceRules{outside: []string{"*"}}.choose(networkOf(c.device), node)
			if len(got) != 1 || got[0].Source4 != netip.MustParseAddr(c.v4) || got[0].Source6 != netip.MustParseAddr(c.v6) {
				t.Errorf("got %+v, want %s and %s", got, c.v4, c.v6)
			}
		})
	}
	t.Run("none where nobody has one, nor inside", func(t *testing.T) {
		rules := deviceRules{outside: []string{"eth0"}, inside: []string{"tap0"}}
		for _, d := range rules.choose(networkOf(dev("eth0", ""), dev("tap0", "tun", with("192.0.2.7"))), nil) {
			if d.Source4.IsValid() || d.Source6.IsValid() {
				t.Errorf("%s has %v and %v", d.Name, d.Source4, d.Source6)
			}
		}
	})
}

// Whatever the devices are, each is chosen at most once, on one side, and
// never loopback but by name, or for its ports.
func TestDevicesAreChosenOnce(t *testing.T) {
	kinds := slices.Concat(uplinkKinds, tunnelKinds, masterKinds, []string{"veth", "tun", "dummy", "vrf"})
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.IntRange(0, 8).Draw(t, "devices")
		var devices []netDevice
		for i := range count {
			d := dev(fmt.Sprintf("dev%d", i), rapid.SampledFrom(kinds).Draw(t, "kind"))
			d.link = rapid.SampledFrom([]string{etherLink, "loopback", "none"}).Draw(t, "link")
			d.gateway, d.routed = rapid.Bool().Draw(t, "gateway"), rapid.Bool().Draw(t, "routed")
			d.master = rapid.IntRange(0, count+1).Draw(t, "master")
			if rapid.Bool().Draw(t, "address") {
				d.addresses = parse("192.0.2.1")
			}
			devices = append(devices, d)
		}
		rules := deviceRules{inside: []string{rapid.SampledFrom([]string{"none", "dev1", "dev[24]", "*"}).Draw(t, "inside")}}
		n := networkOf(devices...)
		seen := map[string]bool{}
		for _, c := range rules.choose(n, nil) {
			if seen[c.Name] {
				t.Fatalf("%s is chosen twice", c.Name)
			}
			seen[c.Name] = true
			d := n.devices[c.Index-1]
			if _, named := matching(rules.inside, d.name); named != c.Inside {
				t.Fatalf("%s is inside: %v", c.Name, c.Inside)
			}
			byPort := strings.HasPrefix(c.why, "its port") || strings.Contains(c.why, " and the port ")
			if d.link == "loopback" && !c.Inside && !byPort {
				t.Fatalf("%s is loopback and outside: %s", c.Name, c.why)
			}
			if (c.skipped == "") != (d.link == etherLink) {
				t.Fatalf("%s (%s) is skipped: %q", c.Name, d.link, c.skipped)
			}
		}
	})
}

func TestDeviceListsAreNeverNil(t *testing.T) {
	if got := served(nil); got == nil || !slices.Equal(got, []datapath.Device{}) {
		t.Errorf("got %#v", got)
	}
}
