// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/adapter"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/replay"
)

// faithful is the dump of a proxy that serves what the objects ask for.
func faithful(candidates []model.Candidate) adapter.Dump {
	d := adapter.Dump{Source: "test"}
	for _, c := range candidates {
		for _, claim := range c.Compiled.Claims {
			if claim.Shadowed != "" {
				continue
			}
			fe := adapter.Frontend{
				Address: netip.AddrPortFrom(claim.Key.Address, claim.Key.Port), Protocol: claim.Key.Protocol,
				Scope: claim.Key.Scope, Type: claim.Type.String(), Line: 1,
			}
			for _, b := range c.Compiled.Sets[claim.Set].Backends {
				fe.Backends = append(fe.Backends, adapter.Backend{Address: b.AddrPort, State: adapter.Active})
			}
			d.Frontends = append(d.Frontends, fe)
		}
	}
	return d
}

// drawStory draws a few Services with their policies, and changes of their
// endpoints, ten seconds apart.
func drawStory(t *rapid.T) story {
	var s story
	endpoints := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"10.244.1.1", "10.244.1.2", "10.244.1.3", "far 10.244.2.1", "far 10.244.2.2"}), 0, 4, rapid.ID[string])
	names := []string{"api", "db", "web"}
	for i, name := range names {
		policy := rapid.SampledFrom([]string{"Cluster", "Local"})
		s.service(0, name, fmt.Sprintf("10.96.0.%d", i+1), fields{
			"type": "NodePort", "externalIPs": []string{fmt.Sprintf("198.51.100.%d", i+1)},
			"internalTrafficPolicy": policy.Draw(t, "internal policy"), "externalTrafficPolicy": policy.Draw(t, "external policy"),
			"ports": []fields{{"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30080 + i}},
		})
	}
	for _, name := range names {
		s.slice(0, name, endpoints.Draw(t, "endpoints")...)
	}
	for i := range rapid.IntRange(0, 4).Draw(t, "changes") {
		s.slice(float64(10*(i+1)), rapid.SampledFrom(names).Draw(t, "service"), endpoints.Draw(t, "endpoints")...)
	}
	return s
}

// compared replays a story and compares what a dump makes of its end, that many
// seconds after it.
func compared(t *rapid.T, s story, seconds float64, change func(adapter.Dump) adapter.Dump) []replay.Finding {
	var engine *replay.Engine
	c := New(Options{Lag: 5 * time.Second, Moments: []Moment{{
		Time: s[len(s)-1].Time.Add(time.Duration(seconds * float64(time.Second))),
		Read: func() adapter.Dump { return change(faithful(engine.Candidates())) },
	}}})
	engine, err := replay.New(replay.Options{Node: model.Node{Name: "n1"}, Observe: c.Step})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	for _, e := range s {
		engine.Apply(e)
	}
	engine.Flush()
	return c.Finish()
}

// TestAFaithfulProxyNeverDiffers holds for any history, and whoever takes one
// backend or one frontend from it differs.
func TestAFaithfulProxyNeverDiffers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawStory(t)
		wait := rapid.Float64Range(0, 20).Draw(t, "seconds after the last event")
		if found := compared(t, s, wait, func(d adapter.Dump) adapter.Dump { return d }); len(found) > 0 {
			t.Fatalf("a faithful proxy differs: %+v", found)
		}
		robbed := false
		found := compared(t, s, 6, func(d adapter.Dump) adapter.Dump {
			full := slices.DeleteFunc(slices.Clone(d.Frontends), func(fe adapter.Frontend) bool { return len(fe.Backends) == 0 })
			if len(full) == 0 {
				return d
			}
			robbed = true
			victim := rapid.SampledFrom(full).Draw(t, "frontend")
			for i := range d.Frontends {
				fe := &d.Frontends[i]
				if fe.Address == victim.Address && fe.Scope == victim.Scope {
					at := rapid.IntRange(0, len(fe.Backends)-1).Draw(t, "backend")
					fe.Backends = slices.Delete(fe.Backends, at, at+1)
				}
			}
			return d
		})
		if robbed != (len(found) == 1) {
			t.Fatalf("robbed: %v, found: %+v", robbed, found)
		}
	})
}
