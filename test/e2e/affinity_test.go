// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/test/lab/traffic"
)

const affinity = "sessionAffinity: ClientIP"

// one asks some times, must get all answers from one server, and returns it.
func one(t *testing.T, c *traffic.Client, w way, to pair) string {
	t.Helper()
	got := c.Many(w.network, w.to(to, servicePort).String(), 20)
	if len(got.Errors) > 0 || len(got.Servers) != 1 {
		t.Fatalf("%s: %v, want one server", w.name, got)
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
	web := service{name: "web", vip: n.vip(), spec: affinity}
	n.serve(t, web, allReady(b...)...)

	t.Run("all connections from one namespace go to one backend (R18)", func(t *testing.T) {
		for _, w := range ways {
			first := one(t, client, w, web.vip)
			if second := one(t, sibling, w, web.vip); second != first {
				t.Errorf("%s: another process goes to %s, the first went to %s", w.name, second, first)
			}
		}
	})

	t.Run("other namespaces choose for themselves (R18)", func(t *testing.T) {
		w, chosen := ways[0], map[string]bool{}
		// Twelve agree by chance once in four million runs.
		for i := range 12 {
			other, _ := n.client(t, fmt.Sprint("other-", i))
			chosen[one(t, other, w, web.vip)] = true
		}
		if len(chosen) == 1 {
			t.Errorf("twelve pods all went to %v", chosen)
		}
	})

	t.Run("a client moves when its backend takes no more connections, and stays there (R19)", func(t *testing.T) {
		for _, w := range ways {
			for name, replace := range map[string]func(*backend) []endpoint{
				"gone":        func(*backend) []endpoint { return nil },
				"not ready":   func(b *backend) []endpoint { return []endpoint{notReady(b)} },
				"terminating": func(b *backend) []endpoint { return []endpoint{terminating(b)} },
			} {
				n.serve(t, web, allReady(b...)...)
				first := one(t, client, w, web.vip)
				i := slices.IndexFunc(b, func(b *backend) bool { return b.name == first })
				rest := slices.Delete(slices.Clone(b), i, i+1)
				n.serve(t, web, append(allReady(rest...), replace(b[i])...)...)
				second := one(t, client, w, web.vip)
				if second == first {
					t.Errorf("%s: goes on to %s, which is %s", w.name, first, name)
				}
				n.serve(t, web, allReady(b...)...)
				if third := one(t, client, w, web.vip); third != second {
					t.Errorf("%s: went from %s to %s when %s came back", w.name, second, third, first)
				}
			}
		}
	})

	t.Run("affinity comes and goes at once (R19)", func(t *testing.T) {
		for _, w := range ways {
			for range 2 {
				web.spec = ""
				n.serve(t, web, allReady(b...)...)
				expect(t, client, w, web.vip, servicePort, names(b...)...)
				web.spec = affinity
				n.serve(t, web, allReady(b...)...)
				one(t, client, w, web.vip)
			}
		}
	})
}

func TestAffinityTimeout(t *testing.T) {
	const timeout = 2 * time.Second
	n := startNode(t)
	b := n.backends(t, "a", "b", "c", "d")
	client, _ := n.client(t, "client")
	busy := service{name: "busy", vip: n.vip(), spec: fmt.Sprintf("%s, sessionAffinityConfig: {clientIP: {timeoutSeconds: %d}}", affinity, timeout/time.Second)}
	n.serve(t, busy, allReady(b...)...)
	// Each way of its own protocol and family chooses for itself.
	choosers := []way{ways[0], ways[1], ways[5], ways[6]}
	idle := make([]service, 4)
	first := map[string]string{}
	for i := range idle {
		idle[i] = service{name: fmt.Sprint("idle-", i), vip: n.vip(), spec: busy.spec}
		n.write(t, idle[i].name+".yaml", idle[i].yaml(allReady(b...)))
	}
	n.settle(t)
	for _, s := range idle {
		for _, w := range choosers {
			first[s.name+w.name] = one(t, client, w, s.vip)
		}
	}

	t.Run("a client that goes on stays with its backend past the timeout (R18)", func(t *testing.T) {
		w := choosers[0]
		stay := one(t, client, w, busy.vip)
		for end := time.Now().Add(timeout + timeout/2); time.Now().Before(end); {
			if now := one(t, client, w, busy.vip); now != stay {
				t.Fatalf("it went from %s to %s", stay, now)
			}
		}
	})

	t.Run("a client that stayed away for longer chooses anew (R18)", func(t *testing.T) {
		same := 0
		for _, s := range idle {
			for _, w := range choosers {
				if one(t, client, w, s.vip) == first[s.name+w.name] {
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
		if w.network != traffic.UDPUnconnected {
			continue
		}
		web := service{name: "web", vip: n.vip()}
		n.serve(t, web, allReady(b...)...)
		conn, _ := client.Open(w.network, w.to(web.vip, servicePort).String())
		first := conn.Ask().Server
		i := slices.IndexFunc(b, func(b *backend) bool { return b.name == first })
		if i < 0 {
			t.Fatalf("%s: %q answers", w.name, first)
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

		t.Run(w.name+" stays with its backend while others come and go", func(t *testing.T) {
			for j := range 2 * len(others) {
				set := slices.Delete(slices.Clone(others), j%len(others), j%len(others)+1)
				n.serve(t, web, append(allReady(set...), ready(mine))...)
				stays(t)
			}
		})

		t.Run(w.name+" stays with a terminating backend until it leaves its slice, then moves (R9, R35)", func(t *testing.T) {
			n.serve(t, web, append(allReady(others...), terminating(mine))...)
			stays(t)
			expect(t, client, w, web.vip, servicePort, names(others...)...)
			n.serve(t, web, allReady(others...)...)
			reply := conn.Ask()
			if !slices.Contains(names(others...), reply.Server) || reply.From != w.to(web.vip, servicePort) {
				t.Errorf("%s from %s, want one of %v from the Service", reply, reply.From, names(others...))
			}
		})
		conn.Close()
	}
}
