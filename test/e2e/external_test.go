// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"

	"github.com/fairlead-io/fairlead/test/lab/traffic"
	"github.com/fairlead-io/fairlead/test/rig"
)

func TestExternalAddresses(t *testing.T) {
	n := newNode(t)
	b := n.backend(t, "web")
	plain, vip, proxied, externalIP := n.externalAddress(), n.externalAddress(), n.externalAddress(), n.externalAddress()
	for _, s := range []rig.Service{
		{Name: "plain", VIP: n.vip(), Spec: "type: LoadBalancer", Ingress: rig.Ingress(plain, "")},
		{Name: "vip", VIP: n.vip(), Spec: "type: LoadBalancer", Ingress: rig.Ingress(vip, ", ipMode: VIP")},
		{Name: "proxied", VIP: n.vip(), Spec: "type: LoadBalancer", Ingress: rig.Ingress(proxied, ", ipMode: Proxy")},
		{Name: "external-ip", VIP: n.vip(), Spec: "externalIPs: [" + externalIP.Items() + "]"},
	} {
		n.Write(t, s.Name+".yaml", s.YAML(rig.AllReady(b)))
	}
	pod, _ := n.client(t, "client")
	clients := []*traffic.Client{pod, n.host(t)}
	served := func(t *testing.T, at rig.Pair) {
		for _, w := range ways {
			for _, c := range clients {
				rig.Expect(t, c, w, at, rig.ServicePort, "web")
			}
		}
	}
	untouched := func(t *testing.T, at rig.Pair) {
		for _, w := range ways {
			for _, c := range clients {
				expectUntouched(t, c, w, at, rig.ServicePort)
			}
		}
	}

	n.Start(t)
	t.Run("an address without ipMode is served (R21)", func(t *testing.T) { served(t, plain) })
	t.Run("an address of ipMode VIP is served (R21)", func(t *testing.T) { served(t, vip) })
	t.Run("an address of ipMode Proxy is left to the load balancer (R21)", func(t *testing.T) { untouched(t, proxied) })
	t.Run("an externalIP is served (R23)", func(t *testing.T) { served(t, externalIP) })

	n.Process.Kill()
	n.Start(t, "--disable-external-ips")
	t.Run("--disable-external-ips takes them out of force, and nothing else (R23)", func(t *testing.T) {
		untouched(t, externalIP)
		served(t, plain)
	})
}

// A Service could otherwise take what the node itself serves (CVE-2020-8554).
func TestNodeAddressClaims(t *testing.T) {
	const port = 6443
	n := newNode(t)
	rig.Listen(t, n.NS, "node", port, nodeAddrs.List()...)
	b := n.backend(t, "web")
	claim := rig.Service{Name: "claim", VIP: n.vip(), Port: port, Spec: "externalIPs: [" + nodeAddrs.Items() + "]"}
	n.Write(t, "claim.yaml", claim.YAML(rig.AllReady(b)))
	pod, _ := n.client(t, "client")

	for _, c := range []struct {
		flags          []string
		server, action string
	}{
		{nil, "node", "shadowed"},
		{[]string{"--allow-node-address-claims"}, "web", "forward"},
	} {
		t.Run(fmt.Sprintf("with flags %q an externalIP on which the node listens is %s", c.flags, c.action), func(t *testing.T) {
			n.Start(t, c.flags...)
			defer n.Process.Kill()
			n.Settle(t)
			if row := n.Row(t, "claim", nodeAddrs.V4, port, "TCP"); row.Action != c.action {
				t.Errorf("the row is %+v", row)
			}
			for _, w := range ways {
				rig.Expect(t, pod, w, nodeAddrs, port, c.server)
				rig.Expect(t, pod, w, claim.VIP, port, "web")
			}
		})
	}
}
