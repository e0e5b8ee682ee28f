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
)

// The addresses by which a machine knows itself.
var (
	loopback    = pair{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}
	unspecified = pair{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
)

func TestNodePort(t *testing.T) {
	const port = 30080
	n := startNode(t)
	local, remote := n.backend(t, "local"), n.remote(t, "remote")
	web := service{name: "web", vip: n.vip(), nodePort: port, spec: "type: NodePort"}
	n.serve(t, web, allReady(local, remote)...)
	listen(t, n.other, "other node", port, otherAddrs.list()...)
	host := n.host(t)
	pod, podAddrs := n.client(t, "client")

	for _, c := range []struct {
		name   string
		client *traffic.Client
		at     pair
	}{
		{"from a pod at the node's address", pod, nodeAddrs},
		{"from the node at its own address", host, nodeAddrs},
		{"from the node at its loopback address", host, loopback},
		{"from the node at the unspecified address, which stands for loopback", host, unspecified},
	} {
		t.Run("a NodePort is served "+c.name+" (R24)", func(t *testing.T) {
			for _, w := range ways {
				expect(t, c.client, w, c.at, port, "local", "remote")
				reply := w.ask(c.client, c.at, port)
				if dialled := w.to(c.at, port); w.network != traffic.UDPUnconnected && reply.Peername != dialled {
					t.Errorf("%s: getpeername shows %s, want %s", w.name, reply.Peername, dialled)
				} else if isUDP(w.network) && reply.From != dialled {
					t.Errorf("%s: recvfrom shows %s, want %s", w.name, reply.From, dialled)
				}
			}
		})
	}

	for name, at := range map[string]pair{"loopback": loopback, "unspecified": unspecified, "own": podAddrs} {
		t.Run("a pod's "+name+" address is its own, not the node's", func(t *testing.T) {
			for _, w := range ways {
				expectClosed(t, pod, w, at, port)
			}
		})
	}

	t.Run("the ClusterIP does not answer at the NodePort", func(t *testing.T) {
		expectUntouched(t, pod, ways[0], web.vip, port)
	})

	t.Run("a pod that listens on the port itself hears itself", func(t *testing.T) {
		place, addrs := n.pod(t, "listener")
		listen(t, place.NetNS, "own", port, append(addrs.list(), loopback.list()...)...)
		client := traffic.StartClient(t, place)
		for _, w := range ways {
			expect(t, client, w, addrs, port, "own")
			expect(t, client, w, loopback, port, "own")
			expect(t, client, w, nodeAddrs, port, "local", "remote")
		}
	})

	t.Run("another node's address is left to that node", func(t *testing.T) {
		for _, w := range ways {
			expect(t, pod, w, otherAddrs, port, "other node")
			expect(t, host, w, otherAddrs, port, "other node")
		}
	})

	t.Run("an address that the node gets is served within a second", func(t *testing.T) {
		added := pair{netip.MustParseAddr("192.0.2.77"), netip.MustParseAddr("2001:db8::77")}
		began := time.Now()
		for _, addr := range added.list() {
			n.ns.Addr(t, "eth0", netip.PrefixFrom(addr, addr.BitLen()).String())
		}
		eventually(t, func() error {
			for _, addr := range added.list() {
				if served := n.status(t).NodePortAddresses; !slices.Contains(served, addr.String()) {
					return fmt.Errorf("%s is not among %v", addr, served)
				}
			}
			return nil
		})
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %s", took)
		}
		for _, w := range ways {
			expect(t, pod, w, added, port, "local", "remote")
			expect(t, host, w, added, port, "local", "remote")
		}
		removeAddresses(t, n.ns, added)
		eventually(t, func() error {
			if served := n.status(t).NodePortAddresses; len(served) != 2 {
				return fmt.Errorf("%v serve NodePorts after two addresses went", served)
			}
			return nil
		})
		for _, w := range ways {
			if got := w.ask(pod, added, port); got.Error == "" {
				t.Errorf("%s to %s: %s, want it gone", w.name, w.to(added, port), got)
			}
		}
	})

	t.Run("an exact address beats the NodePort (R27)", func(t *testing.T) {
		exact := n.backend(t, "exact")
		n.serve(t, service{
			name: "exact", vip: n.vip(), port: port,
			spec: fmt.Sprintf("externalIPs: [%s, %q]", nodeAddrs.v4, nodeAddrs.v6),
		}, ready(exact))
		for _, w := range ways {
			expect(t, pod, w, nodeAddrs, port, "exact")
			expect(t, host, w, loopback, port, "local", "remote")
		}
		n.remove(t, "exact")
		for _, w := range ways {
			expect(t, pod, w, nodeAddrs, port, "local", "remote")
		}
	})

	t.Run("a NodePort that was given up is closed (R25)", func(t *testing.T) {
		web := web
		web.nodePort = 0
		n.serve(t, web, allReady(local, remote)...)
		for _, w := range ways {
			expectClosed(t, pod, w, nodeAddrs, port)
		}
	})
}

func TestNodePortAddresses(t *testing.T) {
	const port = 30080
	n := newNode(t)
	second := pair{netip.MustParseAddr("203.0.113.9"), netip.MustParseAddr("2001:db8:9::9")}
	for _, addr := range second.list() {
		n.ns.Addr(t, "eth0", netip.PrefixFrom(addr, addr.BitLen()).String())
	}
	web := service{name: "web", vip: n.vip(), nodePort: port, spec: "type: NodePort"}
	b := n.backend(t, "web")
	n.write(t, "web.yaml", web.yaml(allReady(b)))
	pod, _ := n.client(t, "client")
	host := n.host(t)

	for _, c := range []struct {
		flag           []string
		served, closed pair
	}{
		{[]string{"203.0.113.0/24", "2001:db8:9::/64"}, second, nodeAddrs},
		{[]string{"primary"}, nodeAddrs, second},
	} {
		t.Run(fmt.Sprintf("--nodeport-addresses %q limits which addresses serve (R24)", c.flag), func(t *testing.T) {
			flags := []string{"--node-ip", nodeAddrs.v4.String(), "--node-ip", nodeAddrs.v6.String()}
			for _, value := range c.flag {
				flags = append(flags, "--nodeport-addresses", value)
			}
			n.start(t, flags...)
			for _, w := range ways {
				for _, client := range []*traffic.Client{pod, host} {
					expect(t, client, w, c.served, port, "web")
					expectClosed(t, client, w, c.closed, port)
				}
			}
		})
		n.agent.Kill()
	}
}

// removeAddresses takes both from the namespace's eth0.
func removeAddresses(t *testing.T, ns *lab.NetNS, addrs pair) {
	t.Helper()
	ns.Do(func() {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			t.Fatal(err)
		}
		for _, addr := range addrs.list() {
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
