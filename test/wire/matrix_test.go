// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"testing"

	"github.com/fairlead-io/fairlead/test/rig"
)

// Every kind of address, family and protocol, with a backend here or there.
func TestFromOutside(t *testing.T) {
	for _, s := range shapes {
		t.Run(string(s), func(t *testing.T) {
			t.Parallel()
			net := start(t, s, 2)
			n1, n2 := net.nodes[0], net.nodes[1]
			local, remote := n1.backend(t, "local"), n2.backend(t, "remote")
			client, wire := net.outside(t), watch(t, net.client, "eth0", fromNode)

			for _, c := range []struct {
				name, policy        string
				backend             *rig.Backend
				external, clusterIP outcome
			}{
				{"a local endpoint sees the client's address (R41)", "Cluster", local,
					outcome{servers: []string{"local"}, peer: clientAddrs}, outcome{servers: []string{"local"}, peer: clientAddrs}},
				{"a remote endpoint sees the node's address (R41)", "Cluster", remote,
					outcome{servers: []string{"remote"}, peer: n1.facing()}, outcome{servers: []string{"remote"}, peer: n1.facing()}},
				{"under externalTrafficPolicy Local the client's address is kept (R11)", "Local", local,
					outcome{servers: []string{"local"}, peer: clientAddrs}, outcome{servers: []string{"local"}, peer: clientAddrs}},
				{"under externalTrafficPolicy Local no other node is asked, and nobody told (R11)", "Local", remote,
					outcome{err: silence}, outcome{servers: []string{"remote"}, peer: n1.facing()}},
			} {
				service := net.full("web", "externalTrafficPolicy: "+c.policy)
				net.serve(t, service.Service, rig.Ready(c.backend))
				for _, w := range ways {
					t.Run(fmt.Sprintf("%s: %s", c.name, w.Name), func(t *testing.T) {
						for _, to := range service.external(n1) {
							c.external.check(t, client, w, to)
							wire.expect(t, to)
						}
						to := target{"ClusterIP", service.VIP, rig.ServicePort}
						c.clusterIP.check(t, client, w, to)
						wire.expect(t, to)
					})
				}
			}
		})
	}
}
