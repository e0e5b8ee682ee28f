// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/test/lab/packet"
	"github.com/fairlead-io/fairlead/test/rig"
)

// refused is how many refusals at an address `status` counts.
func (n *node) refused(t *testing.T, addr netip.Addr) uint64 {
	t.Helper()
	sum := uint64(0)
	for _, r := range n.Status(t).Refusals {
		if r.Address == addr.String() {
			sum += r.Count
		}
	}
	return sum
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	net := start(t, routed, 2, "--service-cidr", "10.96.0.0/16", "--service-cidr", "fd00:96::/32")
	n1, n2 := net.nodes[0], net.nodes[1]
	local, remote := n1.backend(t, "local"), n2.backend(t, "remote")
	client, wire := net.outside(t), watch(t, net.client, "eth0", fromNode)

	t.Run("an unknown port of a ClusterIP is refused in its name (R38)", func(t *testing.T) {
		service := net.full("web", "")
		net.serve(t, service.Service, rig.Ready(local))
		for _, w := range ways {
			to := target{"ClusterIP", service.VIP, rig.ServicePort + 1}
			outcome{err: rejected}.check(t, client, w, to)
			wire.expect(t, to)
		}
	})

	t.Run("a ClusterIP that no Service has is dropped (R38)", func(t *testing.T) {
		for _, w := range ways {
			outcome{err: silence}.check(t, client, w, target{"ClusterIP", net.clusterIP(), rig.ServicePort})
		}
	})

	t.Run("a NodePort that was given up is closed (R25)", func(t *testing.T) {
		service := net.full("web", "")
		net.serve(t, service.Service, rig.Ready(local))
		to := service.external(n1)[0]
		for _, w := range ways {
			answeredBy(local).check(t, client, w, to)
		}
		service.NodePort = 0
		service.Spec += "allocateLoadBalancerNodePorts: false"
		net.serve(t, service.Service, rig.Ready(local))
		for _, w := range ways {
			outcome{err: rejected}.check(t, client, w, to) // by the node itself
			answeredBy(local).check(t, client, w, target{"VIP", service.vip, rig.ServicePort})
		}
	})

	t.Run("an address that two Services claim has one holder, and the other takes over (R27)", func(t *testing.T) {
		older, younger := net.full("older", ""), net.full("younger", "")
		younger.Spec = strings.Replace(older.Spec, "LoadBalancer", "ClusterIP", 1) // the same externalIPs
		younger.NodePort, younger.Ingress = 0, nil
		older.Metadata, younger.Metadata = "creationTimestamp: '2026-01-01T00:00:00Z'", "creationTimestamp: '2026-01-02T00:00:00Z'"
		net.serve(t, younger.Service, rig.Ready(remote))
		to := target{"externalIP", older.externalIP, rig.ServicePort}
		for _, w := range ways {
			answeredBy(remote).check(t, client, w, to)
		}
		net.serve(t, older.Service, rig.Ready(local))
		for _, w := range ways {
			answeredBy(local).check(t, client, w, to)
		}
		n1.Remove(t, "older")
		for _, w := range ways {
			answeredBy(remote).check(t, client, w, to)
		}
		n1.Remove(t, "younger")
	})

	t.Run("two protocols at one port are two Service ports (R27)", func(t *testing.T) {
		connections := net.full("connections", "")
		datagrams := connections
		datagrams.Name, datagrams.VIP, datagrams.NodePort = "datagrams", net.clusterIP(), connections.NodePort+1
		connections.Only, datagrams.Only = "TCP", "UDP"
		net.serve(t, connections.Service, rig.Ready(local))
		net.serve(t, datagrams.Service, rig.Ready(remote))
		for _, w := range ways {
			want := answeredBy(local)
			if w.UDP() {
				want = answeredBy(remote)
			}
			want.check(t, client, w, target{"VIP", connections.vip, rig.ServicePort})
			want.check(t, client, w, target{"externalIP", connections.externalIP, rig.ServicePort})
		}
		n1.Remove(t, "datagrams", "connections")
	})

	t.Run("SCTP is said to be unsupported, and passes untouched (R28)", func(t *testing.T) {
		service := net.full("web", "")
		n1.Write(t, "web.yaml", strings.ReplaceAll(service.YAML(rig.AllReady(local)), "protocol: UDP", "protocol: SCTP"))
		net.settle(t)
		if row := n1.Row(t, "web", service.vip.V4, rig.ServicePort, "SCTP"); row.Action != "unsupported" {
			t.Errorf("row %+v, want the action unsupported", row)
		}
		wire, sender := packet.NewTap(t, n1.NS, uplink), packet.NewSender(t, net.client)
		for _, family := range []rig.Way{{}, {V6: true}} {
			wire.Forget()
			// Ports 1000 and 80, a tag, and no chunk.
			sent := packet.Packet{
				Source: family.To(clientAddrs, 0), Target: family.To(service.vip, 0), Protocol: unix.IPPROTO_SCTP, TTL: 5,
				Payload: []byte{0x03, 0xe8, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0},
			}
			sender.Send(sent)
			expectPassed(t, wire, sent)
		}
	})
}

// expectPassed expects that a packet for an address that is not the node's
// came in and went out again as it was, one hop on.
func expectPassed(t *testing.T, tap *packet.Tap, sent packet.Packet) {
	t.Helper()
	came := uint8(0)
	for _, p := range tap.Packets() {
		if p.Protocol != sent.Protocol || string(p.Payload) != string(sent.Payload) || p.Source != sent.Source || p.Target != sent.Target {
			continue
		}
		if !p.Outgoing && came == 0 {
			came = p.TTL
		}
		if p.Outgoing && p.TTL == came-1 {
			return
		}
	}
	t.Errorf("%s did not pass; there were %v", sent, tap.Packets())
}

func TestNodePortAddresses(t *testing.T) {
	const strangersPort = 1000
	t.Parallel()
	net := newNetwork(t, routed, 1)
	n1 := net.nodes[0]
	second := rig.ParsePair("192.0.2.77", "2001:db8::77")
	n1.NS.Addr(t, uplink, second.V4.String()+"/24")
	n1.NS.Addr(t, uplink, second.V6.String()+"/64")
	local := n1.backend(t, "local")
	service := net.full("web", "")
	n1.Write(t, "web.yaml", service.YAML(rig.AllReady(local)))
	n1.start(t, "--nodeport-addresses", "192.0.2.77/32", "--nodeport-addresses", "2001:db8::77/128")
	net.settle(t)
	client := net.outside(t)

	t.Run("--nodeport-addresses limits which addresses serve (R24)", func(t *testing.T) {
		for _, w := range ways {
			answeredBy(local).check(t, client, w, target{"NodePort", second, service.NodePort})
			outcome{err: rejected}.check(t, client, w, target{"NodePort", n1.addrs, service.NodePort}) // by the node itself
		}
	})

	t.Run("what comes from outside for loopback is not served (R24)", func(t *testing.T) {
		n1.Process.Kill()
		n1.start(t)
		net.settle(t)
		wire, pod := packet.NewTap(t, n1.NS, uplink), packet.NewTap(t, local.NS, "eth0")
		for _, family := range []rig.Way{{}, {V6: true}} {
			for _, protocol := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
				packet.SendOn(t, net.router, "n1", n1.NS.MAC(t, uplink), packet.Packet{
					Source: family.To(clientAddrs, strangersPort), Target: family.To(loopback, service.NodePort),
					Protocol: protocol, Flags: packet.SYN,
				})
			}
		}
		// Somebody who is served comes after them.
		answeredBy(local).check(t, client, ways[2], target{"NodePort", n1.addrs, service.NodePort})
		for _, p := range pod.Packets() {
			if p.Source.Port() == strangersPort {
				t.Errorf("to the pod came %s", p)
			}
		}
		for _, p := range wire.Packets() {
			if p.Outgoing && p.Target.Port() == strangersPort {
				t.Errorf("the answer was %s", p)
			}
		}
	})
}
