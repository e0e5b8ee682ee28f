// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/test/lab/traffic"
	"github.com/fairlead-io/fairlead/test/rig"
)

const affinity = "sessionAffinity: ClientIP"

// one asks some times, must get all answers from one server, and returns it.
func one(t *testing.T, c *traffic.Client, w rig.Way, to rig.Pair) string {
	t.Helper()
	got := c.Many(w.Network, w.To(to, rig.ServicePort).String(), 20)
	if len(got.Errors) > 0 || len(got.Servers) != 1 {
		t.Fatalf("%s: %v, want one server", w.Name, got)
	}
	for name := range got.Servers {
		return name
	}
	return ""
}

func TestAffinity(t *testing.T) {
	n := startNode(t)
	b := n.backends(t, "a", "b", "c", "d")
	place, _ := n.pod(t, "client")
	client, sibling := traffic.StartClient(t, place), traffic.StartClient(t, place)
	web := rig.Service{Name: "web", VIP: n.vip(), Spec: affinity}
	n.Serve(t, web, rig.AllReady(b...)...)

	t.Run("all connections from one namespace go to one backend (R18)", func(t *testing.T) {
		for _, w := range ways {
			first := one(t, client, w, web.VIP)
			if second := one(t, sibling, w, web.VIP); second != first {
				t.Errorf("%s: another process goes to %s, the first went to %s", w.Name, second, first)
			}
		}
	})

	t.Run("other namespaces choose for themselves (R18)", func(t *testing.T) {
		w, chosen := ways[0], map[string]bool{}
		// Twelve agree by chance once in four million runs.
		for i := range 12 {
			other, _ := n.client(t, fmt.Sprint("other-", i))
			chosen[one(t, other, w, web.VIP)] = true
		}
		if len(chosen) == 1 {
			t.Errorf("twelve pods all went to %v", chosen)
		}
	})

	t.Run("a client moves when its backend takes no more connections, and stays there (R19)", func(t *testing.T) {
		for _, w := range ways {
			for name, replace := range map[string]func(*rig.Backend) []rig.Endpoint{
				"gone":        func(*rig.Backend) []rig.Endpoint { return nil },
				"not ready":   func(b *rig.Backend) []rig.Endpoint { return []rig.Endpoint{rig.NotReady(b)} },
				"terminating": func(b *rig.Backend) []rig.Endpoint { return []rig.Endpoint{rig.Terminating(b)} },
			} {
				n.Serve(t, web, rig.AllReady(b...)...)
				first := one(t, client, w, web.VIP)
				i := slices.IndexFunc(b, func(b *rig.Backend) bool { return b.Name == first })
				rest := slices.Delete(slices.Clone(b), i, i+1)
				n.Serve(t, web, append(rig.AllReady(rest...), replace(b[i])...)...)
				second := one(t, client, w, web.VIP)
				if second == first {
					t.Errorf("%s: goes on to %s, which is %s", w.Name, first, name)
				}
				n.Serve(t, web, rig.AllReady(b...)...)
				if third := one(t, client, w, web.VIP); third != second {
					t.Errorf("%s: went from %s to %s when %s came back", w.Name, second, third, first)
				}
			}
		}
	})

	t.Run("affinity comes and goes at once (R19)", func(t *testing.T) {
		for _, w := range ways {
			for range 2 {
				web.Spec = ""
				n.Serve(t, web, rig.AllReady(b...)...)
				rig.Expect(t, client, w, web.VIP, rig.ServicePort, rig.Names(b...)...)
				web.Spec = affinity
				n.Serve(t, web, rig.AllReady(b...)...)
				one(t, client, w, web.VIP)
			}
		}
	})
}

func TestAffinityTimeout(t *testing.T) {
	const timeout = 2 * time.Second
	n := startNode(t)
	b := n.backends(t, "a", "b", "c", "d")
	client, _ := n.client(t, "client")
	busy := rig.Service{Name: "busy", VIP: n.vip(), Spec: fmt.Sprintf("%s, sessionAffinityConfig: {clientIP: {timeoutSeconds: %d}}", affinity, timeout/time.Second)}
	n.Serve(t, busy, rig.AllReady(b...)...)
	// Each way of its own protocol and family chooses for itself.
	choosers := []rig.Way{ways[0], ways[1], ways[5], ways[6]}
	idle := make([]rig.Service, 4)
	first := map[string]string{}
	for i := range idle {
		idle[i] = rig.Service{Name: fmt.Sprint("idle-", i), VIP: n.vip(), Spec: busy.Spec}
		n.Write(t, idle[i].Name+".yaml", idle[i].YAML(rig.AllReady(b...)))
	}
	n.Settle(t)
	for _, s := range idle {
		for _, w := range choosers {
			first[s.Name+w.Name] = one(t, client, w, s.VIP)
		}
	}

	t.Run("a client that goes on stays with its backend past the timeout (R18)", func(t *testing.T) {
		w := choosers[0]
		stay := one(t, client, w, busy.VIP)
		for end := time.Now().Add(timeout + timeout/2); time.Now().Before(end); {
			if now := one(t, client, w, busy.VIP); now != stay {
				t.Fatalf("it went from %s to %s", stay, now)
			}
		}
	})

	t.Run("a client that stayed away for longer chooses anew (R18)", func(t *testing.T) {
		same := 0
		for _, s := range idle {
			for _, w := range choosers {
				if one(t, client, w, s.VIP) == first[s.Name+w.Name] {
					same++
				}
			}
		}
		// All sixteen choose the same by chance once in four thousand million runs.
		if all := len(idle) * len(choosers); same == all {
			t.Errorf("all %d choices are as before", all)
		}
	})
}

func TestStickyDatagrams(t *testing.T) {
	n := startNode(t)
	b := n.backends(t, "a", "b", "c", "d")
	client, _ := n.client(t, "client")

	for _, w := range ways {
		if w.Network != traffic.UDPUnconnected {
			continue
		}
		web := rig.Service{Name: "web", VIP: n.vip()}
		n.Serve(t, web, rig.AllReady(b...)...)
		conn, _ := client.Open(w.Network, w.To(web.VIP, rig.ServicePort).String())
		first := conn.Ask().Server
		i := slices.IndexFunc(b, func(b *rig.Backend) bool { return b.Name == first })
		if i < 0 {
			t.Fatalf("%s: %q answers", w.Name, first)
		}
		mine, others := b[i], slices.Delete(slices.Clone(b), i, i+1)
		stays := func(t *testing.T) {
			t.Helper()
			for range 10 {
				if reply := conn.Ask(); reply.Server != first {
					t.Fatalf("%s answers, %s did before", reply, first)
				}
			}
		}

		t.Run(w.Name+" stays with its backend while others come and go", func(t *testing.T) {
			for j := range 2 * len(others) {
				set := slices.Delete(slices.Clone(others), j%len(others), j%len(others)+1)
				n.Serve(t, web, append(rig.AllReady(set...), rig.Ready(mine))...)
				stays(t)
			}
		})

		t.Run(w.Name+" stays with a terminating backend until it leaves its slice, then moves (R9, R35)", func(t *testing.T) {
			n.Serve(t, web, append(rig.AllReady(others...), rig.Terminating(mine))...)
			stays(t)
			rig.Expect(t, client, w, web.VIP, rig.ServicePort, rig.Names(others...)...)
			n.Serve(t, web, rig.AllReady(others...)...)
			reply := conn.Ask()
			if !slices.Contains(rig.Names(others...), reply.Server) || reply.From != w.To(web.VIP, rig.ServicePort) {
				t.Errorf("%s from %s, want one of %v from the Service", reply, reply.From, rig.Names(others...))
			}
		})
		conn.Close()
	}
}
