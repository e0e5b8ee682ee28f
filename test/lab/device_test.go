// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/test/lab"
)

// answers says whether a datagram from one namespace to an address in another
// one comes back.
func answers(t *testing.T, from, to *lab.NetNS, addr netip.Addr, size int) bool {
	t.Helper()
	var server net.PacketConn
	var client net.Conn
	to.Do(func() {
		var err error
		if server, err = net.ListenPacket("udp", netip.AddrPortFrom(addr, 0).String()); err != nil {
			t.Fatal(err)
		}
	})
	defer server.Close()
	from.Do(func() {
		var err error
		if client, err = net.Dial("udp", server.LocalAddr().String()); err != nil {
			t.Fatal(err)
		}
	})
	defer client.Close()
	go func() {
		buffer := make([]byte, 1<<16)
		if n, peer, err := server.ReadFrom(buffer); err == nil {
			server.WriteTo(buffer[:n], peer)
		}
	}()
	if _, err := client.Write(make([]byte, size)); err != nil {
		return false
	}
	client.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	n, err := client.Read(make([]byte, 1<<16))
	return err == nil && n == size
}

func TestOverlay(t *testing.T) {
	const device = "flannel.1"
	a, b := lab.NewNetNS(t, "a"), lab.NewNetNS(t, "b")
	below := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")}
	lab.Veth(t,
		lab.End{NetNS: a, Link: "eth0", Addrs: []string{"192.0.2.1/24"}},
		lab.End{NetNS: b, Link: "eth0", Addrs: []string{"192.0.2.2/24"}})
	a.VXLAN(t, lab.End{NetNS: a, Link: device, Addrs: []string{"10.244.1.0/32", "fd00:244:1::/128"}}, 1, below[0], "eth0")
	b.VXLAN(t, lab.End{NetNS: b, Link: device, Addrs: []string{"10.244.2.0/32", "fd00:244:2::/128"}}, 1, below[1], "eth0")
	tell := func(here, there *lab.NetNS, underlay netip.Addr, ends, ranges []string) {
		for i, end := range ends {
			addr := netip.MustParseAddr(end)
			here.Beyond(t, device, there.MAC(t, device), underlay, addr)
			here.Route(t, netip.MustParsePrefix(ranges[i]), addr, device)
		}
	}
	tell(a, b, below[1], []string{"10.244.2.0", "fd00:244:2::"}, []string{"10.244.2.0/24", "fd00:244:2::/64"})
	tell(b, a, below[0], []string{"10.244.1.0", "fd00:244:1::"}, []string{"10.244.1.0/24", "fd00:244:1::/64"})
	b.Bridge(t, lab.End{NetNS: b, Link: "cni0", Addrs: []string{"10.244.2.1/24", "fd00:244:2::1/64"}})
	gateways := []netip.Addr{netip.MustParseAddr("10.244.2.1"), netip.MustParseAddr("fd00:244:2::1")}
	pod := b.BridgedPod(t, "pod", "cni0", gateways, netip.MustParsePrefix("10.244.2.5/24"), netip.MustParsePrefix("fd00:244:2::5/64"))

	for _, addr := range []string{"10.244.2.5", "fd00:244:2::5"} {
		t.Run("a pod on a bridge is reached through a tunnel: "+addr, func(t *testing.T) {
			if !answers(t, a, pod, netip.MustParseAddr(addr), 1000) {
				t.Error("no answer")
			}
		})
	}
}

func TestDevices(t *testing.T) {
	a, b := lab.NewNetNS(t, "a"), lab.NewNetNS(t, "b")
	lab.Veth(t,
		lab.End{NetNS: a, Link: "eth0", Addrs: []string{"192.0.2.1/24"}},
		lab.End{NetNS: b, Link: "eth0", Addrs: []string{"192.0.2.2/24"}})
	there := netip.MustParseAddr("192.0.2.2")

	t.Run("what does not fit comes in pieces", func(t *testing.T) {
		a.MTU(t, "eth0", 1300)
		b.MTU(t, "eth0", 1300)
		if mtu := deviceOf(t, a, "eth0").MTU; mtu != 1300 {
			t.Errorf("the MTU is %d", mtu)
		}
		if !answers(t, a, b, there, 2000) {
			t.Error("it did not come")
		}
	})
	t.Run("offloads may be on or off", func(t *testing.T) {
		for _, o := range []lab.Offloads{{}, {Checksums: true, Segments: true, Merging: true}} {
			a.Offload(t, "eth0", o)
			if !answers(t, a, b, there, 1000) {
				t.Errorf("no answer with %+v", o)
			}
		}
	})
	t.Run("a blackhole swallows", func(t *testing.T) {
		b.Blackhole(t, netip.MustParsePrefix("192.0.2.1/32"))
		if answers(t, a, b, there, 10) {
			t.Error("there was an answer")
		}
	})
	t.Run("a device that is deleted is gone at both ends", func(t *testing.T) {
		a.Delete(t, "eth0")
		b.Do(func() {
			if _, err := net.InterfaceByName("eth0"); err == nil {
				t.Error("the other end is there still")
			}
		})
	})
}

func deviceOf(t *testing.T, ns *lab.NetNS, name string) *net.Interface {
	t.Helper()
	var device *net.Interface
	ns.Do(func() {
		var err error
		if device, err = net.InterfaceByName(name); err != nil {
			t.Fatal(err)
		}
	})
	return device
}
