// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/lab/traffic"
	"github.com/fairlead-io/fairlead/test/rig"
)

// The addresses by which a machine knows itself.
var (
	loopback    = rig.ParsePair("127.0.0.1", "::1")
	unspecified = rig.ParsePair("0.0.0.0", "::")
)

func TestNodePort(t *testing.T) {
	const port = 30080
	n := startNode(t)
	local, remote := n.backend(t, "local"), n.remote(t, "remote")
	web := rig.Service{Name: "web", VIP: n.vip(), NodePort: port, Spec: "type: NodePort"}
	n.Serve(t, web, rig.AllReady(local, remote)...)
	rig.Listen(t, n.other, "other node", port, otherAddrs.List()...)
	host := n.host(t)
	pod, podAddrs := n.client(t, "client")

	for _, c := range []struct {
		name   string
		client *traffic.Client
		at     rig.Pair
	}{
		{"from a pod at the node's address", pod, nodeAddrs},
		{"from the node at its own address", host, nodeAddrs},
		{"from the node at its loopback address", host, loopback},
		{"from the node at the unspecified address, which stands for loopback", host, unspecified},
	} {
		t.Run("a NodePort is served "+c.name+" (R24)", func(t *testing.T) {
			for _, w := range ways {
				rig.Expect(t, c.client, w, c.at, port, "local", "remote")
				reply := w.Ask(c.client, c.at, port)
				if dialled := w.To(c.at, port); w.Network != traffic.UDPUnconnected && reply.Peername != dialled {
					t.Errorf("%s: getpeername shows %s, want %s", w.Name, reply.Peername, dialled)
				} else if w.UDP() && reply.From != dialled {
					t.Errorf("%s: recvfrom shows %s, want %s", w.Name, reply.From, dialled)
				}
			}
		})
	}

	for name, at := range map[string]rig.Pair{"loopback": loopback, "unspecified": unspecified, "own": podAddrs} {
		t.Run("a pod's "+name+" address is its own, not the node's", func(t *testing.T) {
			for _, w := range ways {
				expectClosed(t, pod, w, at, port)
			}
		})
	}

	t.Run("the ClusterIP does not answer at the NodePort", func(t *testing.T) {
		rig.ExpectError(t, pod, ways[0], web.VIP, port, rejected)
	})

	t.Run("a pod that listens on the port itself hears itself", func(t *testing.T) {
		place, addrs := n.pod(t, "listener")
		rig.Listen(t, place.NetNS, "own", port, append(addrs.List(), loopback.List()...)...)
		client := traffic.StartClient(t, place)
		for _, w := range ways {
			rig.Expect(t, client, w, addrs, port, "own")
			rig.Expect(t, client, w, loopback, port, "own")
			rig.Expect(t, client, w, nodeAddrs, port, "local", "remote")
		}
	})

	t.Run("another node's address is left to that node", func(t *testing.T) {
		for _, w := range ways {
			rig.Expect(t, pod, w, otherAddrs, port, "other node")
			rig.Expect(t, host, w, otherAddrs, port, "other node")
		}
	})

	t.Run("an address that the node gets is served within a second", func(t *testing.T) {
		added := rig.ParsePair("192.0.2.77", "2001:db8::77")
		began := time.Now()
		for _, addr := range added.List() {
			n.NS.Addr(t, "eth0", netip.PrefixFrom(addr, addr.BitLen()).String())
		}
		rig.Eventually(t, func() error {
			for _, addr := range added.List() {
				if served := n.Status(t).NodePortAddresses; !slices.Contains(served, addr.String()) {
					return fmt.Errorf("%s is not among %v", addr, served)
				}
			}
			return nil
		})
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %s", took)
		}
		for _, w := range ways {
			rig.Expect(t, pod, w, added, port, "local", "remote")
			rig.Expect(t, host, w, added, port, "local", "remote")
		}
		removeAddresses(t, n.NS, added)
		rig.Eventually(t, func() error {
			if served := n.Status(t).NodePortAddresses; len(served) != 2 {
				return fmt.Errorf("%v serve NodePorts after two addresses went", served)
			}
			return nil
		})
		for _, w := range ways {
			if got := w.Ask(pod, added, port); got.Error == "" {
				t.Errorf("%s to %s: %s, want it gone", w.Name, w.To(added, port), got)
			}
		}
	})

	t.Run("an exact address beats the NodePort (R27)", func(t *testing.T) {
		exact := n.backend(t, "exact")
		n.Serve(t, rig.Service{
			Name: "exact", VIP: n.vip(), Port: port,
			Spec: fmt.Sprintf("externalIPs: [%s, %q]", nodeAddrs.V4, nodeAddrs.V6),
		}, rig.Ready(exact))
		for _, w := range ways {
			rig.Expect(t, pod, w, nodeAddrs, port, "exact")
			rig.Expect(t, host, w, loopback, port, "local", "remote")
		}
		n.Remove(t, "exact")
		for _, w := range ways {
			rig.Expect(t, pod, w, nodeAddrs, port, "local", "remote")
		}
	})

	t.Run("a NodePort that was given up is closed (R25)", func(t *testing.T) {
		web := web
		web.NodePort = 0
		n.Serve(t, web, rig.AllReady(local, remote)...)
		for _, w := range ways {
			expectClosed(t, pod, w, nodeAddrs, port)
		}
	})
}

func TestNodePortAddresses(t *testing.T) {
	const port = 30080
	n := newNode(t)
	second := rig.ParsePair("203.0.113.9", "2001:db8:9::9")
	for _, addr := range second.List() {
		n.NS.Addr(t, "eth0", netip.PrefixFrom(addr, addr.BitLen()).String())
	}
	web := rig.Service{Name: "web", VIP: n.vip(), NodePort: port, Spec: "type: NodePort"}
	b := n.backend(t, "web")
	n.Write(t, "web.yaml", web.YAML(rig.AllReady(b)))
	pod, _ := n.client(t, "client")
	host := n.host(t)

	for _, c := range []struct {
		flag           []string
		served, closed rig.Pair
	}{
		{[]string{"203.0.113.0/24", "2001:db8:9::/64"}, second, nodeAddrs},
		{[]string{"primary"}, nodeAddrs, second},
	} {
		t.Run(fmt.Sprintf("--nodeport-addresses %q limits which addresses serve (R24)", c.flag), func(t *testing.T) {
			flags := []string{"--node-ip", nodeAddrs.V4.String(), "--node-ip", nodeAddrs.V6.String()}
			for _, value := range c.flag {
				flags = append(flags, "--nodeport-addresses", value)
			}
			n.Start(t, flags...)
			for _, w := range ways {
				for _, client := range []*traffic.Client{pod, host} {
					rig.Expect(t, client, w, c.served, port, "web")
					expectClosed(t, client, w, c.closed, port)
				}
			}
		})
		n.Process.Kill()
	}
}

// removeAddresses takes both from the namespace's eth0.
func removeAddresses(t *testing.T, ns *lab.NetNS, addrs rig.Pair) {
	t.Helper()
	ns.Do(func() {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			t.Fatal(err)
		}
		for _, addr := range addrs.List() {
			text := netip.PrefixFrom(addr, addr.BitLen()).String()
			parsed, err := netlink.ParseAddr(text)
			if err != nil {
				t.Fatal(err)
			}
			if err := netlink.AddrDel(link, parsed); err != nil {
				t.Fatalf("remove %s: %v", text, err)
			}
		}
	})
}
