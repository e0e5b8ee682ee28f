// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/test/rig"
)

func answeredBy(backends ...*rig.Backend) outcome { return outcome{servers: rig.Names(backends...)} }

func TestPolicies(t *testing.T) {
	t.Parallel()
	net := start(t, routed, 2)
	n1, n2 := net.nodes[0], net.nodes[1]
	local, ending, remote := n1.backend(t, "local"), n1.backend(t, "ending"), n2.backend(t, "remote")
	homeless := *remote
	homeless.Node = ""
	client, wire := net.outside(t), watch(t, net.client, "eth0", fromNode)

	for _, c := range []struct {
		name, policies      string
		endpoints           []rig.Endpoint
		external, clusterIP outcome
	}{
		{"without policies every endpoint serves", "",
			rig.AllReady(local, remote), answeredBy(local, remote), answeredBy(local, remote)},
		{"externalTrafficPolicy Local chooses among this node's endpoints, and holds for no ClusterIP (R11, R14)", "externalTrafficPolicy: Local",
			rig.AllReady(local, remote), answeredBy(local), answeredBy(local, remote)},
		{"internalTrafficPolicy Local holds for the ClusterIP alone (R10, R14)", "internalTrafficPolicy: Local",
			rig.AllReady(local, remote), answeredBy(local, remote), answeredBy(local)},
		{"internalTrafficPolicy Local without a local endpoint drops (R10)", "internalTrafficPolicy: Local",
			rig.AllReady(remote), answeredBy(remote), outcome{err: silence}},
		{"an endpoint without a nodeName is not local (R42)", "externalTrafficPolicy: Local",
			rig.AllReady(&homeless), outcome{err: silence}, answeredBy(remote)},
		{"no endpoint at all rejects, in the Service's name (R13)", "",
			nil, outcome{err: rejected}, outcome{err: rejected}},
		{"no endpoint at all rejects, whatever the policies (R13)", "internalTrafficPolicy: Local, externalTrafficPolicy: Local",
			nil, outcome{err: rejected}, outcome{err: rejected}},
		{"endpoints that are not ready do not count (R7)", "",
			[]rig.Endpoint{rig.NotReady(local), rig.NotReady(remote)}, outcome{err: rejected}, outcome{err: rejected}},
		{"terminating endpoints serve only when nothing is ready (R7)", "",
			[]rig.Endpoint{rig.NotReady(local), rig.Terminating(ending)}, answeredBy(ending), answeredBy(ending)},
		{"the fallback to terminating endpoints is the policy's own (R7)", "externalTrafficPolicy: Local",
			[]rig.Endpoint{rig.Ready(remote), rig.Terminating(ending)}, answeredBy(ending), answeredBy(remote)},
	} {
		t.Run(c.name, func(t *testing.T) {
			service := net.full("web", c.policies)
			net.serve(t, service.Service, c.endpoints...)
			for _, w := range ways {
				for _, to := range service.external(n1) {
					c.external.check(t, client, w, to)
					wire.expect(t, to)
				}
				to := target{"ClusterIP", service.VIP, rig.ServicePort}
				c.clusterIP.check(t, client, w, to)
				wire.expect(t, to)
			}
		})
	}
}

// zoned is a Node object in a zone.
func zoned(n *node, zone string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Node
metadata: {name: %s, labels: {topology.kubernetes.io/zone: %s}}
status: {addresses: [{type: InternalIP, address: %s}, {type: InternalIP, address: %q}]}
`, n.Name, zone, n.addrs.V4, n.addrs.V6)
}

func hinted(b *rig.Backend, hints string) rig.Endpoint {
	e := rig.Ready(b)
	e.Hints = ", hints: {" + hints + "}"
	return e
}

func TestTopology(t *testing.T) {
	t.Parallel()
	net := newNetwork(t, routed, 2)
	n1, n2 := net.nodes[0], net.nodes[1]
	n1.Write(t, "node.yaml", zoned(n1, "north"))
	n1.start(t)
	local, remote := n1.backend(t, "local"), n2.backend(t, "remote")
	client := net.outside(t)
	north, south := "forZones: [{name: north}]", "forZones: [{name: south}]"

	for _, c := range []struct {
		name, zone, spec string
		endpoints        []rig.Endpoint
		want             outcome
	}{
		{"endpoints for this zone serve alone (R15)", "north", "trafficDistribution: PreferClose",
			[]rig.Endpoint{hinted(local, south), hinted(remote, north)}, answeredBy(remote)},
		{"a node that moves to another zone takes that one's (R17)", "south", "trafficDistribution: PreferSameZone",
			[]rig.Endpoint{hinted(local, south), hinted(remote, north)}, answeredBy(local)},
		{"no endpoint for this zone: all serve (R15)", "west", "trafficDistribution: PreferClose",
			[]rig.Endpoint{hinted(local, south), hinted(remote, north)}, answeredBy(local, remote)},
		{"an endpoint without a hint: all serve (R15)", "north", "trafficDistribution: PreferClose",
			[]rig.Endpoint{rig.Ready(local), hinted(remote, north)}, answeredBy(local, remote)},
		{"endpoints for this node serve alone, whatever the zone (R15, R16)", "north", "trafficDistribution: PreferSameNode",
			[]rig.Endpoint{hinted(local, south+", forNodes: [{name: n1}]"), hinted(remote, north+", forNodes: [{name: n2}]")}, answeredBy(local)},
	} {
		t.Run(c.name, func(t *testing.T) {
			n1.Write(t, "node.yaml", zoned(n1, c.zone))
			rig.Eventually(t, func() error {
				if zone := n1.Status(t).Zone; zone != c.zone {
					return fmt.Errorf("the agent is in zone %q, want %q", zone, c.zone)
				}
				return nil
			})
			service := net.full("web", c.spec)
			net.serve(t, service.Service, c.endpoints...)
			for _, w := range ways {
				for _, to := range service.targets(n1) {
					c.want.check(t, client, w, to)
				}
			}
		})
	}
}

func TestOneFamilyAtATime(t *testing.T) {
	t.Parallel()
	net := start(t, routed, 1)
	n1 := net.nodes[0]
	local := n1.backend(t, "local")
	client := net.outside(t)

	t.Run("a family without endpoints does not stop the other (R26)", func(t *testing.T) {
		service := net.full("web", "")
		text := service.YAML(rig.AllReady(local))
		n1.Write(t, "web.yaml", strings.Replace(text, "kubernetes.io/service-name: web}}\naddressType: IPv6", "kubernetes.io/service-name: nobody}}\naddressType: IPv6", 1))
		net.settle(t)
		for _, w := range ways {
			for _, to := range service.targets(n1) {
				want := answeredBy(local)
				if w.V6 {
					want = outcome{err: rejected}
				}
				want.check(t, client, w, to)
			}
		}
	})

	t.Run("a node that has no way out for a family goes on with the other (R26)", func(t *testing.T) {
		service := net.full("web", "")
		net.serve(t, service.Service, rig.Ready(local))
		n1.NS.Sysctl(t, "net.ipv6.conf.all.disable_ipv6", "1")
		for _, w := range ways {
			if w.V6 {
				continue
			}
			for _, to := range service.targets(n1) {
				answeredBy(local).check(t, client, w, to)
			}
		}
	})
}

func TestSourceRanges(t *testing.T) {
	t.Parallel()
	net := start(t, routed, 2)
	n1 := net.nodes[0]
	local := n1.backend(t, "local")
	service := net.full("web", fmt.Sprintf(`loadBalancerSourceRanges: [" %s/32 ", "%s/128"]`, clientAddrs.V4, clientAddrs.V6))
	net.serve(t, service.Service, rig.Ready(local))
	client := net.outside(t)

	for _, c := range []struct {
		name string
		from rig.Pair
		vip  outcome
	}{
		{"a source in range is let through (R22)", clientAddrs, answeredBy(local)},
		{"a source out of range is dropped, at the VIP alone (R22)", otherAddrs, outcome{err: silence}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, w := range ways {
				client.From = w.To(c.from, 0)
				for _, to := range service.targets(n1) {
					want := answeredBy(local)
					if to.kind == "VIP" {
						want = c.vip
					}
					want.check(t, client, w, to)
				}
			}
		})
	}

	t.Run("drops are counted (R22)", func(t *testing.T) {
		client.From = ways[0].To(otherAddrs, 0)
		before := n1.refused(t, service.vip.V4)
		outcome{err: silence}.check(t, client, ways[0], target{"VIP", service.vip, rig.ServicePort})
		if after := n1.refused(t, service.vip.V4); after <= before {
			t.Errorf("status counts %d refusals, and %d after another", before, after)
		}
	})
}
