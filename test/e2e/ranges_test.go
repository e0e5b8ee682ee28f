// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/lab/traffic"
	"github.com/fairlead-io/fairlead/test/rig"
)

// silence is what a socket hears of packets that are dropped on their way out.
func silence(w rig.Way) string {
	if w.UDP() {
		return "EPERM"
	}
	return "ETIMEDOUT"
}

func TestSourceRanges(t *testing.T) {
	const port = 30080
	n := startNode(t, "--cluster-cidr", "10.0.1.0/24")
	b := n.backend(t, "web")
	place, addrs := n.pod(t, "client")
	vip := n.externalAddress()
	web := rig.Service{Name: "web", VIP: n.vip(), NodePort: port, Ingress: rig.Ingress(vip, "")}

	for _, c := range []struct {
		name      string
		ranges    string
		pod, node bool // in range
	}{
		{"a pod in range is let through, and nobody else (R22)", `" 10.0.1.0/24 ", "fd00:1::/64"`, true, false},
		{"this node in range is let through, and nobody else (R22)", `"192.0.2.1/32", "2001:db8::1/128"`, false, true},
		{"both are dropped out of range (R22)", `"10.9.0.0/16", "fd00:9::/64"`, false, false},
		{"a range of all addresses is open (R22)", `"0.0.0.0/0", "::/0"`, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			web := web
			web.Spec = "type: LoadBalancer, loadBalancerSourceRanges: [" + c.ranges + "]"
			n.Serve(t, web, rig.Ready(b))
			pod, host := traffic.StartClient(t, place), n.host(t)
			for _, w := range ways {
				bound := netip.AddrPortFrom(w.To(addrs, 0).Addr(), 0)
				for _, from := range []netip.AddrPort{{}, bound} {
					pod.From = from
					switch {
					case c.pod:
						rig.Expect(t, pod, w, vip, rig.ServicePort, "web")
					case from.IsValid():
						rig.ExpectError(t, pod, w, vip, rig.ServicePort, dropped)
					default:
						expectAnyError(t, pod, w, vip, rig.ServicePort, silence(w))
					}
					// Neither ClusterIP nor NodePort knows ranges.
					rig.Expect(t, pod, w, web.VIP, rig.ServicePort, "web")
					rig.Expect(t, pod, w, nodeAddrs, port, "web")
				}
				if c.node {
					rig.Expect(t, host, w, vip, rig.ServicePort, "web")
				} else {
					rig.ExpectError(t, host, w, vip, rig.ServicePort, dropped)
				}
			}
			expectTrace(t, n, c.pod, "--from", addrs.V4.String(), vip.V4, rig.ServicePort)
			expectTrace(t, n, c.node, "--from", nodeAddrs.V6.String(), vip.V6, rig.ServicePort)
		})
	}
}

// expectTrace asks the agent what would happen, which must be what happens.
func expectTrace(t *testing.T, n *node, forwarded bool, flag, from string, to netip.Addr, port uint16) {
	t.Helper()
	verdict := "drop"
	if forwarded {
		verdict = "forward"
	}
	out := n.Run(t, 0, "trace", flag, from, "--to", netip.AddrPortFrom(to, port).String(), "-o", "json")
	if !strings.Contains(out, fmt.Sprintf(`"verdict": %q`, verdict)) {
		t.Errorf("trace from %s to %s, want %s:\n%s", from, to, verdict, out)
	}
}

// The program that sees every packet is there only for those who need it.
func TestClustersWithoutSourceRangesPayNothing(t *testing.T) {
	const hook = "skb_egress"
	n := newNode(t)
	b := n.backend(t, "web")
	vip := n.externalAddress()
	place, _ := n.pod(t, "client")
	open := rig.Service{Name: "web", VIP: n.vip(), Ingress: rig.Ingress(vip, ""), Spec: "type: LoadBalancer"}
	guarded := open
	guarded.Spec += `, loadBalancerSourceRanges: ["10.9.0.0/16", "fd00:9::/64"]`
	flags := []string{"--compare-interval", "100ms", "--cluster-cidr", "10.0.1.0/24"}
	attached := func() bool {
		for _, a := range n.Status(t).Attachments {
			if a.Hook == hook && a.Ours {
				return true
			}
		}
		return false
	}
	closed := func(when string) {
		t.Helper()
		client := traffic.StartClient(t, place)
		for _, w := range ways {
			t.Log(when, w.Name)
			expectAnyError(t, client, w, vip, rig.ServicePort, silence(w))
		}
	}
	n.Start(t, flags...)
	n.Serve(t, open, rig.Ready(b))
	if attached() {
		t.Error("attached without source ranges")
	}
	n.Serve(t, guarded, rig.Ready(b))
	if !attached() {
		t.Error("not attached with source ranges")
	}
	closed("guarded")
	n.Process.Kill()
	closed("the agent is dead (R39)")
	n.Start(t, flags...)
	n.Settle(t)
	closed("the agent is back")
	if s := n.Status(t); !attached() || !s.Healthy {
		t.Errorf("status %+v", s)
	}
	n.Serve(t, open, rig.Ready(b))
	rig.Eventually(t, func() error {
		if attached() {
			return fmt.Errorf("the program is still attached")
		}
		return nil
	})
	client := traffic.StartClient(t, place)
	for _, w := range ways {
		rig.Expect(t, client, w, vip, rig.ServicePort, "web")
	}
}

// unknownTo asks at a port where no frontend is, from a pod and from the node.
func unknownTo(t *testing.T, clients []*traffic.Client, to rig.Pair, port uint16, want ...string) {
	t.Helper()
	for _, w := range ways {
		for _, c := range clients {
			expectAnyError(t, c, w, to, port, want...)
		}
	}
}

func TestUnknownPortsAndUnallocatedClusterIPs(t *testing.T) {
	const unknown = rig.ServicePort + 1
	n := newNode(t)
	b := n.backend(t, "web")
	place, _ := n.pod(t, "client")
	clients := []*traffic.Client{traffic.StartClient(t, place), n.host(t)}
	external, free, beyond := n.externalAddress(), n.vip(), rig.ParsePair("10.97.0.1", "fd00:97::1")
	web := rig.Service{Name: "web", VIP: n.vip(), Spec: "externalIPs: [" + external.Items() + "]"}
	n.Start(t, "--service-cidr", "10.96.0.0/16", "--service-cidr", "fd00:96::/64")
	n.Serve(t, web, rig.Ready(b))
	untouched := []string{"ENETUNREACH", "ETIMEDOUT"}

	t.Run("an unknown port of a ClusterIP is rejected (R38)", func(t *testing.T) { unknownTo(t, clients, web.VIP, unknown, rejected) })
	t.Run("an unallocated ClusterIP is dropped (R38)", func(t *testing.T) { unknownTo(t, clients, free, rig.ServicePort, dropped) })
	t.Run("an unknown port of an externalIP is untouched (R38)", func(t *testing.T) { unknownTo(t, clients, external, unknown, untouched...) })
	t.Run("addresses beyond the ranges are untouched (R38)", func(t *testing.T) { unknownTo(t, clients, beyond, rig.ServicePort, untouched...) })
	t.Run("the known port is served", func(t *testing.T) {
		for _, w := range ways {
			for _, c := range clients {
				rig.Expect(t, c, w, web.VIP, rig.ServicePort, "web")
			}
		}
	})
	t.Run("trace and explain say so (R38)", func(t *testing.T) {
		for _, c := range []struct {
			to                      netip.Addr
			port                    uint16
			verdict, trace, explain string
		}{
			{web.VIP.V4, unknown, "reject", "which has no port 81/TCP (Service default/web)", "is the ClusterIP of default/web, which has no such port but 80/TCP, 80/UDP"},
			{free.V6, rig.ServicePort, "drop", "(--service-cidr fd00:96::/64)", "lies in --service-cidr fd00:96::/64 and no Service has it"},
			{beyond.V4, rig.ServicePort, "pass", "no Service has", "are not translated"},
		} {
			at := netip.AddrPortFrom(c.to, c.port).String()
			if out := n.Run(t, 0, "trace", "--from", nodeAddrs.V4.String(), "--to", at); !strings.Contains(out, c.verdict+"\n") || !strings.Contains(out, c.trace) {
				t.Errorf("trace to %s, want %s and %q:\n%s", at, c.verdict, c.trace, out)
			}
			process := n.Place().Start(t, rig.Program(), "explain", at, "--socket", n.Socket)
			process.Wait()
			if !strings.Contains(process.Stderr(), c.explain) {
				t.Errorf("explain %s, want %q:\n%s", at, c.explain, process.Stderr())
			}
		}
	})
	t.Run("a ClusterIP whose Service is deleted is unallocated (R38)", func(t *testing.T) {
		n.Remove(t, "web")
		unknownTo(t, clients, web.VIP, rig.ServicePort, dropped)
	})
	t.Run("without the flag it passes (R38)", func(t *testing.T) {
		n.Restart(t)
		unknownTo(t, clients, free, rig.ServicePort, untouched...)
		unknownTo(t, clients, web.VIP, rig.ServicePort, untouched...)
	})
}

func TestServiceCIDRsAreRead(t *testing.T) {
	n := newNode(t)
	for value, want := range map[string]string{
		"0.0.0.0/0": "holds every address", "10.96.0.1": "is no CIDR", "": "is no CIDR",
	} {
		process := lab.Place{NetNS: n.NS}.Start(t, rig.Program(), "agent", "--node-name", "n1", "--service-cidr", value)
		err := process.Wait()
		lines := slices.Collect(strings.Lines(process.Stderr()))
		if err == nil || len(lines) != 1 || !strings.Contains(lines[0], want) || !strings.Contains(lines[0], "--service-cidr") {
			t.Errorf("--service-cidr %q: %v, %q; want one line that says %q", value, err, lines, want)
		}
	}
}
