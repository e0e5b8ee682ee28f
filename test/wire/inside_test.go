// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"slices"
	"testing"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/lab/traffic"
	"github.com/fairlead-io/fairlead/test/rig"
)

// sandbox makes a pod whose sockets no program of the node's sees, as those of
// a virtual machine, and starts a client in it.
func (n *node) sandbox(t *testing.T, name string) (*traffic.Client, *lab.NetNS, rig.Pair) {
	t.Helper()
	ns, addrs := n.pod(t, name)
	n.served(t, n.links[ns], "inside")
	return traffic.StartClient(t, lab.Place{NetNS: ns}), ns, addrs
}

// served waits until a device is served.
func (n *node) served(t *testing.T, link, side string) {
	t.Helper()
	rig.Eventually(t, func() error {
		devices := n.Status(t).Devices
		if !slices.ContainsFunc(devices, func(d api.Device) bool {
			return d.Name == link && d.Side == side && d.Attached != "" && d.Problem == ""
		}) {
			return fmt.Errorf("%s is not served %s among %+v", link, side, devices)
		}
		return nil
	})
}

// podDevices is the flag that names the devices of pods, be they routed or
// ports of a bridge.
var podDevices = []string{"--pod-devices", "pod-*"}

func TestFromSandboxes(t *testing.T) {
	for _, s := range shapes {
		t.Run(string(s), func(t *testing.T) {
			t.Parallel()
			net := start(t, s, 2, podDevices...)
			n1, n2 := net.nodes[0], net.nodes[1]
			local, remote := n1.backend(t, "local"), n2.backend(t, "remote")
			homeless := *remote
			homeless.Node = ""
			pod, podNS, podAddrs := n1.sandbox(t, "sandbox")
			wire := watch(t, podNS, "eth0", fromBridge)
			kept := func(backends ...*rig.Backend) outcome {
				o := answeredBy(backends...)
				o.peer = podAddrs
				return o
			}

			for _, c := range []struct {
				name, policies      string
				endpoints           []rig.Endpoint
				external, clusterIP outcome
			}{
				{"every endpoint serves, and sees the pod's address (R37)", "",
					rig.AllReady(local, remote), kept(local, remote), kept(local, remote)},
				{"internalTrafficPolicy Local holds for the ClusterIP alone (R10, R14)", "internalTrafficPolicy: Local",
					rig.AllReady(local, remote), kept(local, remote), kept(local)},
				{"internalTrafficPolicy Local without a local endpoint drops (R10)", "internalTrafficPolicy: Local",
					rig.AllReady(remote), kept(remote), outcome{err: silence}},
				{"an endpoint without a nodeName is not local (R42)", "internalTrafficPolicy: Local",
					rig.AllReady(&homeless), kept(remote), outcome{err: silence}},
				{"externalTrafficPolicy Local does not hold for this node's pods (R12)", "externalTrafficPolicy: Local",
					rig.AllReady(local, remote), kept(local, remote), kept(local, remote)},
				{"externalTrafficPolicy Local without a local endpoint does not drop them either (R12)", "externalTrafficPolicy: Local",
					rig.AllReady(remote), kept(remote), kept(remote)},
				{"no endpoint at all rejects (R13)", "",
					nil, outcome{err: rejected}, outcome{err: rejected}},
			} {
				t.Run(c.name, func(t *testing.T) {
					service := net.full("web", c.policies)
					net.serve(t, service.Service, c.endpoints...)
					for _, w := range ways {
						for _, to := range service.external(n1) {
							c.external.check(t, pod, w, to)
							wire.expect(t, to)
						}
						to := target{"ClusterIP", service.VIP, rig.ServicePort}
						c.clusterIP.check(t, pod, w, to)
						wire.expect(t, to)
					}
				})
			}

			t.Run("an unknown port of a ClusterIP is refused (R38)", func(t *testing.T) {
				service := net.full("web", "")
				net.serve(t, service.Service, rig.Ready(local))
				for _, w := range ways {
					outcome{err: rejected}.check(t, pod, w, target{"ClusterIP", service.VIP, rig.ServicePort + 1})
				}
			})

			t.Run("a pod meets itself, and is told it was the node (R37)", func(t *testing.T) {
				self := rig.NewBackend(t, podNS, "self", n1.Name, podAddrs)
				service := net.full("self", "")
				net.serve(t, service.Service, rig.Ready(self))
				for _, w := range ways {
					for _, to := range service.targets(n1) {
						o := answeredBy(self)
						o.peer = n1.addrs
						o.check(t, pod, w, to)
					}
				}
			})

			t.Run("what is no Service's address is left alone", func(t *testing.T) {
				plain, _, plainAddrs := n1.sandbox(t, "plain")
				for _, w := range ways {
					for _, b := range []*rig.Backend{local, remote} {
						o := answeredBy(b)
						o.peer = plainAddrs
						o.check(t, plain, w, target{"pod", b.Addrs, rig.BackendPort})
					}
				}
			})
		})
	}
}

// R22 holds for pods too.
func TestSourceRangesOfSandboxes(t *testing.T) {
	t.Parallel()
	net := start(t, routed, 1, podDevices...)
	n1 := net.nodes[0]
	local := n1.backend(t, "local")
	welcome, _, welcomeAddrs := n1.sandbox(t, "welcome")
	stranger, _, _ := n1.sandbox(t, "strange")
	service := net.full("web", fmt.Sprintf(`loadBalancerSourceRanges: ["%s/32", "%s/128"]`, welcomeAddrs.V4, welcomeAddrs.V6))
	net.serve(t, service.Service, rig.Ready(local))
	t.Run("a pod out of range is dropped, at the VIP alone (R22)", func(t *testing.T) {
		for _, w := range ways {
			for _, to := range service.targets(n1) {
				answeredBy(local).check(t, welcome, w, to)
				want := answeredBy(local)
				if to.kind == "VIP" {
					want = outcome{err: silence}
				}
				want.check(t, stranger, w, to)
			}
		}
	})
}
