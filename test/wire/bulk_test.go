// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"testing"

	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/lab/packet"
	"github.com/fairlead-io/fairlead/test/rig"
)

// streaming is a Service with one endpoint, which serves streams.
func (net *network) streaming(t *testing.T, n *node, name, spec string) (fullService, *rig.Backend) {
	t.Helper()
	b := n.silent(t, name)
	serveStreams(t, b.NS, b.Addrs, rig.BackendPort)
	service := net.full(name, spec)
	net.serve(t, service.Service, rig.Ready(b))
	return service, b
}

// Much in both directions, with devices that leave checksums and segments to
// others, and with devices that do not.
func TestBulk(t *testing.T) {
	all := lab.Offloads{Checksums: true, Segments: true, Merging: true}
	for _, s := range shapes {
		t.Run(string(s), func(t *testing.T) {
			t.Parallel()
			net := start(t, s, 2)
			n1, n2 := net.nodes[0], net.nodes[1]
			services := map[string]fullService{}
			services["local"], _ = net.streaming(t, n1, "local", "")
			services["remote"], _ = net.streaming(t, n2, "remote", "")
			tap := packet.NewTap(t, net.client, "eth0")

			for _, c := range []struct {
				name     string
				offloads lab.Offloads
				length   int64
			}{
				{"segments cut and merged by devices", all, 64 << 20},
				{"segments cut by devices", lab.Offloads{Checksums: true, Segments: true}, 16 << 20},
				{"nothing left to devices", lab.Offloads{}, 4 << 20},
			} {
				net.offload(t, c.offloads)
				for where, service := range services {
					for _, w := range []rig.Way{{}, {V6: true}} {
						to := w.To(n1.addrs, service.NodePort)
						t.Run(fmt.Sprintf("%s endpoint, %s: %s", where, c.name, to.Addr()), func(t *testing.T) {
							tap.Forget()
							if err := exchange(net.client, to, c.length/4, c.length); err != nil {
								t.Error(err)
							}
							if c.offloads != (lab.Offloads{}) {
								return
							}
							for _, p := range tap.Packets() {
								if p.Checksum != packet.Right {
									t.Fatalf("on the wire was %s", p)
								}
							}
						})
					}
				}
			}
		})
	}
}

// offload sets the offloads of every cable.
func (net *network) offload(t *testing.T, o lab.Offloads) {
	t.Helper()
	net.client.Offload(t, "eth0", o)
	net.router.Offload(t, "client", o)
	for _, n := range net.nodes {
		net.router.Offload(t, n.Name, o)
		n.NS.Offload(t, uplink, o)
		for pod, link := range n.links {
			n.NS.Offload(t, link, o)
			pod.Offload(t, "eth0", o)
		}
	}
}
