// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/rig"
)

// The agent's end, however it comes, is no business of connections.
func TestAgentComesAndGoes(t *testing.T) {
	for _, s := range shapes {
		t.Run(string(s), func(t *testing.T) {
			t.Parallel()
			net := start(t, s, 2)
			n1 := net.nodes[0]
			var downloads []*download
			for _, n := range net.nodes {
				service, _ := net.streaming(t, n, "on-"+n.Name, "")
				for _, w := range ways[:2] {
					downloads = append(downloads, startDownload(t, net.client, w.To(n1.addrs, service.NodePort)))
				}
			}
			web := net.full("web", "")
			b := n1.backend(t, "web")
			net.serve(t, web.Service, rig.Ready(b))
			client := net.outside(t)
			served := func() {
				t.Helper()
				for _, w := range ways {
					for _, to := range web.targets(n1) {
						answeredBy(b).check(t, client, w, to)
					}
				}
			}

			goOn := func() {
				t.Helper()
				for _, d := range downloads {
					if err := d.broken(); err != nil {
						t.Errorf("the download from %s: %v", d.to, err)
					}
				}
			}

			for _, step := range []struct {
				name   string
				signal syscall.Signal
				flags  []string
			}{
				{"killed", syscall.SIGKILL, nil},
				{"asked to stop", syscall.SIGTERM, nil},
				{"started with other sizes", syscall.SIGKILL, []string{"--max-flows", "30000", "--max-frontends", "2000", "--max-backends", "5000"}},
				{"started with the former sizes", syscall.SIGKILL, nil},
			} {
				n1.Process.Signal(step.signal)
				<-n1.Process.Done()
				served()
				t.Logf("after the agent was %s", step.name)
				goOn()
				n1.start(t, step.flags...)
				n1.Settle(t)
				served()
				goOn()
			}
			for _, d := range downloads {
				t.Run("a download goes on, and is whole (R39): "+d.to.String(), d.end)
			}
		})
	}
}

// What changes does so while the agent is being killed.
func TestAgentKilledAmidUpdates(t *testing.T) {
	t.Parallel()
	net := start(t, routed, 2)
	n1, n2 := net.nodes[0], net.nodes[1]
	b := []*rig.Backend{n1.backend(t, "a"), n1.backend(t, "b"), n2.backend(t, "c")}
	web := net.full("web", "")
	net.serve(t, web.Service, rig.AllReady(b...)...)
	client := net.outside(t)
	net.client.Sysctl(t, "net.ipv4.tcp_tw_reuse", "1")

	for i := range 6 {
		n1.Write(t, "web.yaml", web.YAML(rig.AllReady(b[i%3:]...)))
		n1.Write(t, "new.yaml", net.full(fmt.Sprint("new-", i), "").YAML(rig.AllReady(b...)))
		n1.Process.Kill()
		for _, w := range ways {
			got := client.Many(w.Network, w.To(n1.addrs, web.NodePort).String(), 30)
			if len(got.Errors) > 0 {
				t.Errorf("%s in round %d without an agent: %v", w.Name, i, got)
			}
		}
		n1.start(t)
		net.settle(t)
		for _, w := range ways {
			answeredBy(b[i%3:]...).check(t, client, w, target{"NodePort", n1.addrs, web.NodePort})
		}
	}
}

// A device that goes and comes back, as a driver that is loaded again, and one
// that is new.
func TestDevicesComeAndGo(t *testing.T) {
	t.Parallel()
	net := start(t, routed, 2)
	n1, n2 := net.nodes[0], net.nodes[1]
	local, remote := n1.backend(t, "local"), n2.backend(t, "remote")
	web := net.full("web", "")
	net.serve(t, web.Service, rig.AllReady(local, remote)...)
	client := net.outside(t)
	served := func(t *testing.T) {
		t.Helper()
		for _, w := range ways {
			for _, to := range web.targets(n1) {
				answeredBy(local, remote).check(t, client, w, to)
			}
		}
	}

	for i := range 3 {
		t.Run(fmt.Sprint("a device that is deleted and made again is served again: ", i), func(t *testing.T) {
			n1.replug(t)
			rig.Eventually(t, func() error {
				for _, w := range ways {
					if reply := w.Ask(client, n1.addrs, web.NodePort); reply.Error != "" {
						return fmt.Errorf("%s: %s", w.Name, reply)
					}
				}
				return nil
			})
			served(t)
		})
	}

	t.Run("open connections outlive their device", func(t *testing.T) {
		conn, _ := client.Open(ways[0].Network, ways[0].To(n1.addrs, web.NodePort).String())
		defer conn.Close()
		holder := conn.Ask()
		n1.replug(t)
		rig.Eventually(t, func() error {
			if reply := ways[0].Ask(client, n1.addrs, web.NodePort); reply.Error != "" {
				return fmt.Errorf("a new one: %s", reply)
			}
			return nil
		})
		if reply := conn.Ask(); reply.Server != holder.Server {
			t.Errorf("what was open to %s: %s", holder.Server, reply)
		}
	})
}

// replug deletes the node's uplink and makes it again, with another hardware
// address, which the router learns when the node speaks.
func (n *node) replug(t *testing.T) {
	t.Helper()
	router := n.network.router
	n.NS.Delete(t, uplink)
	lab.Veth(t, n.uplink(), lab.End{NetNS: router, Link: n.Name})
	router.Plug(t, n.Name, "lan")
	n.defaultRoutes(t)
	for _, other := range n.network.nodes {
		if other != n {
			n.routesTo(t, other, other.addrs, uplink)
		}
	}
	n.NS.Do(func() {
		for _, addr := range routerAddrs.List() {
			conn, err := net.Dial("udp", netip.AddrPortFrom(addr, 9).String())
			if err != nil {
				t.Fatal(err)
			}
			conn.Write([]byte("here I am"))
			conn.Close()
		}
	})
}
