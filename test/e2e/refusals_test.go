// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/lab/traffic"
	"github.com/fairlead-io/fairlead/test/rig"
)

func TestRefusals(t *testing.T) {
	const (
		port       = 30080
		outOfRange = "the source address is in none of loadBalancerSourceRanges"
	)
	n := startNode(t)
	remote := n.remote(t, "remote")
	vip := n.externalAddress()
	empty := rig.Service{Name: "empty", VIP: n.vip(), NodePort: port, Spec: "type: NodePort"}
	far := rig.Service{Name: "far", VIP: n.vip(), Spec: "internalTrafficPolicy: Local"}
	guarded := rig.Service{Name: "guarded", VIP: n.vip(), Ingress: rig.Ingress(vip, ""), Spec: `type: LoadBalancer, loadBalancerSourceRanges: ["10.9.0.0/16", "fd00:9::/64"]`}
	n.Serve(t, empty)
	n.Serve(t, far, rig.Ready(remote))
	n.Serve(t, guarded, rig.Ready(remote))
	monitor := n.Place().Start(t, rig.Program(), "monitor", "-o", "json", "--socket", n.Socket)
	place, _ := n.pod(t, "client")

	for _, c := range []struct {
		name      string
		place     lab.Place
		host      bool
		to        rig.Pair
		port      uint16
		want      api.Refusal
		wantError string
	}{
		{"a pod at a Service without endpoints (R13)", place, false, empty.VIP, rig.ServicePort,
			api.Refusal{Service: "default/empty", Action: "reject", Reason: "no endpoint is usable"}, rejected},
		{"the node at a NodePort without endpoints (R13)", n.Place(), true, nodeAddrs, port,
			api.Refusal{Service: "default/empty", Action: "reject", Reason: "no endpoint is usable"}, rejected},
		{"a pod at a Service without local endpoints (R10)", place, false, far.VIP, rig.ServicePort,
			api.Refusal{Service: "default/far", Action: "drop", Reason: "the traffic policy is Local and no endpoint on this node is usable"}, dropped},
		{"the node at an address with source ranges (R22)", n.Place(), true, vip, rig.ServicePort,
			api.Refusal{Service: "default/guarded", Action: "drop", Reason: outOfRange}, dropped},
	} {
		for _, w := range ways {
			t.Run(c.name+" is told: "+w.Name, func(t *testing.T) {
				client := traffic.StartClient(t, c.place)
				before := n.refused(t, c.want.Service, c.want.Reason, w, c.to, c.port)
				want := c.want
				want.SchemaVersion, want.PID, want.Host = api.SchemaVersion, uint32(client.PID()), c.host
				want.Address, want.Port, want.PortName, want.Protocol = w.Of(c.to).String(), c.port, "tcp", "TCP"
				if w.UDP() {
					want.PortName, want.Protocol = "udp", "UDP"
				}
				want.NetNS, want.Path = c.place.NetNS.Cookie(t), "socket"
				want.Command = commandOf(t, client.PID())
				asked := uint64(0)
				rig.Eventually(t, func() error {
					rig.ExpectError(t, client, w, c.to, c.port, c.wantError)
					asked++
					return hasRefusal(monitor.Stdout(), want)
				})
				if after := n.refused(t, c.want.Service, c.want.Reason, w, c.to, c.port); after != before+asked {
					t.Errorf("status counts %d, then %d after %d refusals", before, after, asked)
				}
			})
		}
	}

	t.Run("a pod's packet at an address with source ranges is told (R22)", func(t *testing.T) {
		for _, w := range ways {
			client := traffic.StartClient(t, place)
			before := n.refused(t, "default/guarded", outOfRange, w, vip, rig.ServicePort)
			expectAnyError(t, client, w, vip, rig.ServicePort, silence(w))
			want := api.Refusal{
				SchemaVersion: api.SchemaVersion, PID: uint32(client.PID()), NetNS: place.NetNS.Cookie(t), Command: commandOf(t, client.PID()),
				Address: w.Of(vip).String(), Port: rig.ServicePort, Protocol: "TCP", Service: "default/guarded", PortName: "tcp",
				Path: "socket", Action: "drop", Reason: outOfRange,
			}
			if w.UDP() {
				want.PortName, want.Protocol = "udp", "UDP"
			}
			rig.Eventually(t, func() error { return hasRefusal(monitor.Stdout(), want) })
			if after := n.refused(t, "default/guarded", outOfRange, w, vip, rig.ServicePort); after <= before {
				t.Errorf("%s: status counts %d, then %d", w.Name, before, after)
			}
		}
	})

	t.Run("status prints them", func(t *testing.T) {
		out := n.Run(t, 0, "status")
		for _, words := range []string{"default/empty", "no endpoint is usable", "default/far", "default/guarded"} {
			if !strings.Contains(out, words) {
				t.Errorf("%q is missing in\n%s", words, out)
			}
		}
	})
}

// refused is the counter in `status` for one address and reason.
func (n *node) refused(t *testing.T, service, reason string, w rig.Way, to rig.Pair, port uint16) uint64 {
	t.Helper()
	protocol := "TCP"
	if w.UDP() {
		protocol = "UDP"
	}
	for _, r := range n.Status(t).Refusals {
		if r.Address == w.Of(to).String() && r.Port == port && r.Protocol == protocol && r.Reason == reason {
			if r.Service != service {
				t.Errorf("the counter of %s:%d names Service %q, want %q", r.Address, r.Port, r.Service, service)
			}
			return r.Count
		}
	}
	return 0
}

func commandOf(t *testing.T, pid int) string {
	t.Helper()
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(name))
}

// hasRefusal looks for a refusal in what monitor printed; its time is its own.
func hasRefusal(printed string, want api.Refusal) error {
	var last api.Refusal
	for line := range strings.Lines(printed) {
		var r api.Refusal
		if !strings.HasSuffix(line, "\n") || json.Unmarshal([]byte(line), &r) != nil {
			continue
		}
		r.Time = want.Time
		if r == want {
			return nil
		}
		if r.PID == want.PID {
			last = r
		}
	}
	return fmt.Errorf("monitor shows %+v last of this client, want %+v", last, want)
}
