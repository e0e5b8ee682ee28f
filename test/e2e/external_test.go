// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/fairlead-io/fairlead/test/lab/traffic"
)

// ips writes a pair as the items of a YAML list.
func (p pair) ips() string { return fmt.Sprintf("%s, %q", p.v4, p.v6) }

// ingressOf is the status of a load balancer with these addresses.
func ingressOf(p pair, more string) []string {
	return []string{fmt.Sprintf("{ip: %s %s}, {ip: %q %[2]s}", p.v4, more, p.v6)}
}

func TestExternalAddresses(t *testing.T) {
	n := newNode(t)
	b := n.backend(t, "web")
	plain, vip, proxied, externalIP := n.externalAddress(), n.externalAddress(), n.externalAddress(), n.externalAddress()
	for _, s := range []service{
		{name: "plain", vip: n.vip(), spec: "type: LoadBalancer", ingress: ingressOf(plain, "")},
		{name: "vip", vip: n.vip(), spec: "type: LoadBalancer", ingress: ingressOf(vip, ", ipMode: VIP")},
		{name: "proxied", vip: n.vip(), spec: "type: LoadBalancer", ingress: ingressOf(proxied, ", ipMode: Proxy")},
		{name: "external-ip", vip: n.vip(), spec: "externalIPs: [" + externalIP.ips() + "]"},
	} {
		n.write(t, s.name+".yaml", s.yaml(allReady(b)))
	}
	pod, _ := n.client(t, "client")
	clients := []*traffic.Client{pod, n.host(t)}
	served := func(t *testing.T, at pair) {
		for _, w := range ways {
			for _, c := range clients {
				expect(t, c, w, at, servicePort, "web")
			}
		}
	}
	untouched := func(t *testing.T, at pair) {
		for _, w := range ways {
			for _, c := range clients {
				expectUntouched(t, c, w, at, servicePort)
			}
		}
	}

	n.start(t)
	t.Run("an address without ipMode is served (R21)", func(t *testing.T) { served(t, plain) })
	t.Run("an address of ipMode VIP is served (R21)", func(t *testing.T) { served(t, vip) })
	t.Run("an address of ipMode Proxy is left to the load balancer (R21)", func(t *testing.T) { untouched(t, proxied) })
	t.Run("an externalIP is served (R23)", func(t *testing.T) { served(t, externalIP) })

	n.agent.Kill()
	n.start(t, "--disable-external-ips")
	t.Run("--disable-external-ips takes them out of force, and nothing else (R23)", func(t *testing.T) {
		untouched(t, externalIP)
		served(t, plain)
	})
}

// A Service could otherwise take what the node itself serves (CVE-2020-8554).
func TestNodeAddressClaims(t *testing.T) {
	const port = 6443
	n := newNode(t)
	listen(t, n.ns, "node", port, nodeAddrs.list()...)
	b := n.backend(t, "web")
	claim := service{name: "claim", vip: n.vip(), port: port, spec: "externalIPs: [" + nodeAddrs.ips() + "]"}
	n.write(t, "claim.yaml", claim.yaml(allReady(b)))
	pod, _ := n.client(t, "client")

	for _, c := range []struct {
		flags          []string
		server, action string
	}{
		{nil, "node", "shadowed"},
		{[]string{"--allow-node-address-claims"}, "web", "forward"},
	} {
		t.Run(fmt.Sprintf("with flags %q an externalIP on which the node listens is %s", c.flags, c.action), func(t *testing.T) {
			n.start(t, c.flags...)
			defer n.agent.Kill()
			n.settle(t)
			if row := n.row(t, "claim", nodeAddrs.v4, port, "TCP"); row.Action != c.action {
				t.Errorf("the row is %+v", row)
			}
			for _, w := range ways {
				expect(t, pod, w, nodeAddrs, port, c.server)
				expect(t, pod, w, claim.vip, port, "web")
			}
		})
	}
}

func TestSourceRanges(t *testing.T) {
	const port = 30080
	n := startNode(t)
	b := n.backend(t, "web")
	place, addrs := n.pod(t, "client")
	vip := n.externalAddress()
	web := service{name: "web", vip: n.vip(), nodePort: port, ingress: ingressOf(vip, "")}

	for _, c := range []struct {
		name           string
		ranges         string
		bound, unbound string // errors of sockets with and without an address of their own
	}{
		{"a source in range is let through once it is known (R22)", `" 10.0.1.0/24 ", "fd00:1::/64"`, "", dropped},
		{"a source out of range is dropped (R22)", `"10.9.0.0/16", "fd00:9::/64"`, dropped, dropped},
		{"a range of all addresses is open (R22)", `"0.0.0.0/0", "::/0"`, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			web := web
			web.spec = "type: LoadBalancer, loadBalancerSourceRanges: [" + c.ranges + "]"
			n.serve(t, web, ready(b))
			client := traffic.StartClient(t, place)
			for _, w := range ways {
				client.From = netip.AddrPort{}
				expectError(t, client, w, vip, servicePort, c.unbound)
				client.From = netip.AddrPortFrom(w.to(addrs, 0).Addr(), 0)
				expectError(t, client, w, vip, servicePort, c.bound)
				// Neither ClusterIP nor NodePort knows ranges.
				for _, from := range []netip.AddrPort{{}, client.From} {
					client.From = from
					expect(t, client, w, web.vip, servicePort, "web")
					expect(t, client, w, nodeAddrs, port, "web")
				}
			}
		})
	}
}
