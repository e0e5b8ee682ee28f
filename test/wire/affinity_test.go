// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/test/lab/traffic"
	"github.com/fairlead-io/fairlead/test/rig"
)

const affinity = "sessionAffinity: ClientIP"

// one asks some times, must get all answers from one server, and returns it.
func (net *network) one(t *testing.T, c *traffic.Client, w rig.Way, to target) string {
	t.Helper()
	got := traffic.Tally{Servers: map[string]int{}, Errors: map[string]int{}}
	if w.UDP() {
		net.askAnew(c, w, to, &got)
	} else {
		got = c.Many(w.Network, w.To(to.at, to.port).String(), questions)
	}
	if len(got.Errors) > 0 || len(got.Servers) != 1 {
		t.Fatalf("%s to the %s: %v, want one server", w.Name, to.kind, got)
	}
	for name := range got.Servers {
		return name
	}
	return ""
}

const (
	questions   = 12
	firstSource = 10000
)

// askAnew asks from ports that were not used before: a datagram from one that
// was goes on in its flow, wherever that leads.
func (net *network) askAnew(c *traffic.Client, w rig.Way, to target, got *traffic.Tally) {
	defer func(before netip.AddrPort) { c.From = before }(c.From)
	addr := w.Of(clientAddrs)
	if c.From.IsValid() {
		addr = c.From.Addr()
	}
	for range questions {
		net.sources++
		c.From = netip.AddrPortFrom(addr, firstSource+net.sources)
		reply := w.Ask(c, to.at, to.port)
		if reply.Error != "" {
			got.Errors[reply.Error]++
			continue
		}
		got.Servers[reply.Server]++
	}
}

func TestAffinity(t *testing.T) {
	t.Parallel()
	net := start(t, routed, 2)
	n1, n2 := net.nodes[0], net.nodes[1]
	b := []*rig.Backend{n1.backend(t, "a"), n1.backend(t, "b"), n2.backend(t, "c"), n2.backend(t, "d")}
	client := net.outside(t)
	service := net.full("web", affinity)
	plain := service.Spec
	net.serve(t, service.Service, rig.AllReady(b...)...)

	t.Run("all connections from one address go to one endpoint, by whichever of the Service's addresses (R18)", func(t *testing.T) {
		for _, w := range ways {
			first := net.one(t, client, w, service.targets(n1)[0])
			for _, to := range service.targets(n1) {
				if now := net.one(t, client, w, to); now != first {
					t.Errorf("%s to the %s goes to %s, before to %s", w.Name, to.kind, now, first)
				}
			}
		}
	})

	t.Run("another address chooses for itself (R18)", func(t *testing.T) {
		w := ways[0]
		chosen := map[string]bool{}
		// Twelve agree by chance once in four million runs.
		for i := range 12 {
			addr := rig.ParsePair(fmt.Sprintf("203.0.113.%d", 100+i), fmt.Sprintf("2001:db8:c::%x", 0x100+i))
			net.client.Addr(t, "eth0", addr.V4.String()+"/24")
			client.From = w.To(addr, 0)
			chosen[net.one(t, client, w, service.targets(n1)[0])] = true
		}
		client.From = w.To(clientAddrs, 0)
		if len(chosen) == 1 {
			t.Errorf("twelve addresses all went to %v", chosen)
		}
	})
	client = net.outside(t)

	t.Run("a client moves when its endpoint takes no more connections, and stays there (R19)", func(t *testing.T) {
		to := service.targets(n1)[0]
		for _, w := range ways {
			for name, replace := range map[string]func(*rig.Backend) []rig.Endpoint{
				"gone":        func(*rig.Backend) []rig.Endpoint { return nil },
				"terminating": func(b *rig.Backend) []rig.Endpoint { return []rig.Endpoint{rig.Terminating(b)} },
			} {
				net.serve(t, service.Service, rig.AllReady(b...)...)
				first := net.one(t, client, w, to)
				i := slices.IndexFunc(b, func(b *rig.Backend) bool { return b.Name == first })
				rest := slices.Delete(slices.Clone(b), i, i+1)
				net.serve(t, service.Service, append(rig.AllReady(rest...), replace(b[i])...)...)
				second := net.one(t, client, w, to)
				if second == first {
					t.Errorf("%s: goes on to %s, which is %s", w.Name, first, name)
				}
				net.serve(t, service.Service, rig.AllReady(b...)...)
				if third := net.one(t, client, w, to); third != second {
					t.Errorf("%s: went from %s to %s when %s came back", w.Name, second, third, first)
				}
			}
		}
	})

	t.Run("affinity comes and goes at once, and does not move a flow of datagrams (R19, R20)", func(t *testing.T) {
		to := service.targets(n1)[0]
		for _, w := range ways {
			held, _ := client.Open(w.Network, w.To(to.at, to.port).String())
			first := held.Ask()
			service.Spec = plain[:len(plain)-len(affinity)]
			net.serve(t, service.Service, rig.AllReady(b...)...)
			answeredBy(b...).check(t, client, w, to)
			if now := held.Ask(); now.Server != first.Server || now.Error != "" {
				t.Errorf("%s: what was open to %s: %s", w.Name, first.Server, now)
			}
			service.Spec = plain
			net.serve(t, service.Service, rig.AllReady(b...)...)
			net.one(t, client, w, to)
			if now := held.Ask(); now.Server != first.Server || now.Error != "" {
				t.Errorf("%s: what was open to %s: %s", w.Name, first.Server, now)
			}
			held.Close()
		}
	})
}

func TestAffinityTimeout(t *testing.T) {
	t.Parallel()
	const timeout = 2 * time.Second
	net := start(t, routed, 1)
	n1 := net.nodes[0]
	b := []*rig.Backend{n1.backend(t, "a"), n1.backend(t, "b"), n1.backend(t, "c"), n1.backend(t, "d")}
	client := net.outside(t)
	spec := fmt.Sprintf("%s, sessionAffinityConfig: {clientIP: {timeoutSeconds: %d}}", affinity, timeout/time.Second)
	busy := net.full("busy", spec)
	net.serve(t, busy.Service, rig.AllReady(b...)...)
	var idle []fullService
	for i := range 3 {
		idle = append(idle, net.full(fmt.Sprint("idle-", i), spec))
		net.serve(t, idle[i].Service, rig.AllReady(b...)...)
	}
	began, first := time.Now(), map[string]string{}
	for _, s := range idle {
		for _, w := range ways {
			first[s.Name+w.Name] = net.one(t, client, w, s.targets(n1)[0])
		}
	}

	t.Run("a client that goes on stays with its endpoint past the timeout (R18)", func(t *testing.T) {
		w, to := ways[0], busy.targets(n1)[0]
		stay := net.one(t, client, w, to)
		for end := time.Now().Add(timeout + timeout/2); time.Now().Before(end); {
			if now := net.one(t, client, w, to); now != stay {
				t.Fatalf("it went from %s to %s", stay, now)
			}
		}
	})

	t.Run("a client that stayed away for longer chooses anew (R18)", func(t *testing.T) {
		time.Sleep(time.Until(began.Add(2 * timeout)))
		same := 0
		for _, s := range idle {
			for _, w := range ways {
				if net.one(t, client, w, s.targets(n1)[0]) == first[s.Name+w.Name] {
					same++
				}
			}
		}
		// All twelve choose the same by chance once in seventeen million runs.
		if all := len(idle) * len(ways); same == all {
			t.Errorf("all %d choices are as before", all)
		}
	})
}
