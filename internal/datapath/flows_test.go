// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/model"
)

// pairOf is a flow of a client to a backend, as the programs write it.
func pairOf(protocol model.Protocol, client uint16, state uint8, forwardUsed, replyUsed uint64) map[flowKey]flow {
	ip := func(s string) address { return addressOf(netip.MustParseAddr(s)) }
	there := flow{
		Source: ip("203.0.113.9"), Target: ip("10.0.1.7"), SourcePort: portOf(client), TargetPort: portOf(8080),
		State: state, Used: forwardUsed, At: atEgress,
	}
	back := flow{
		Source: ip("192.0.2.1"), Target: ip("203.0.113.9"), SourcePort: portOf(30080), TargetPort: portOf(client),
		State: state, Flags: flowReply, Used: replyUsed, At: atIngress,
	}
	key := flowKey{Source: back.Target, Target: back.Source, SourcePort: back.TargetPort, TargetPort: back.SourcePort, Protocol: uint8(protocol), At: atIngress}
	return map[flowKey]flow{key: there, key.other(&there): back}
}

func TestSweep(t *testing.T) {
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		in          string
		protocol    model.Protocol
		state       uint8
		there, back time.Duration // since a packet went there, or back
		swept       bool
	}{
		"an open TCP connection is kept for a day":                    {mapFlows, model.TCP, 0, day - time.Minute, day - time.Minute, false},
		"an open TCP connection goes after a day":                     {mapFlows, model.TCP, 0, day + time.Minute, day + time.Minute, true},
		"a TCP connection that one side has ended goes after an hour": {mapFlows, model.TCP, flowFinClient, time.Hour + time.Second, 2 * time.Hour, true},
		"a TCP connection that one side has ended is kept till then":  {mapFlows, model.TCP, flowFinServer, time.Hour - time.Minute, time.Hour - time.Minute, false},
		"a TCP connection that both have ended goes after a minute":   {mapFlows, model.TCP, flowEnded, 61 * time.Second, 61 * time.Second, true},
		"a TCP connection that was reset goes after a minute":         {mapFlows, model.TCP, flowReset, 61 * time.Second, 61 * time.Second, true},
		"a TCP connection in the making goes after a minute":          {mapEmbryos, model.TCP, 0, 61 * time.Second, 61 * time.Second, true},
		"a UDP flow goes after two minutes":                           {mapDatagrams, model.UDP, flowAnswered, 121 * time.Second, 121 * time.Second, true},
		"a UDP flow that is used in one direction is kept":            {mapDatagrams, model.UDP, flowAnswered, time.Second, 121 * time.Second, false},
		"a UDP flow that is used in the other direction is kept":      {mapDatagrams, model.UDP, flowAnswered, 121 * time.Second, time.Second, false},
		"a UDP flow without an answer goes after half a minute":       {mapEmbryos, model.UDP, 0, 31 * time.Second, 31 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, smallSizes())
			const now = uint64(3 * day)
			kept := pairOf(c.protocol, 1, 0, now, now)
			pair := pairOf(c.protocol, 2, c.state, now-uint64(c.there), now-uint64(c.back))
			for _, elements := range []map[flowKey]flow{kept, pair} {
				for k, f := range elements {
					if err := r.current.maps[c.in].Put(k, f); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := r.sweep(c.in, now); err != nil {
				t.Fatal(err)
			}
			left := 0
			if err := readFlows(r.current.maps[c.in], func(flowKey, flow) { left++ }); err != nil {
				t.Fatal(err)
			}
			want := len(kept) + len(pair)
			if c.swept {
				want = len(kept)
			}
			if left != want {
				t.Errorf("%d elements are left, want %d", left, want)
			}
		})
	}
}

// A sweep of many flows takes a while, and a client may come back to its port.
func TestAFlowThatIsOpenedAgainAmidASweepIsKept(t *testing.T) {
	r := newRig(t, smallSizes())
	m := r.current.maps[mapEmbryos]
	var seen []flowKey
	for k, f := range pairOf(model.TCP, 1, 0, 2, 2) {
		if f.Flags&flowReply == 0 {
			seen = append(seen, k, k.other(&f))
			if err := m.Put(k, f); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The new flow has another port at the backend.
	over := func(_ flowKey, f *flow) bool { return f.Used < 2 }
	if deleted, err := deleteFlows(m, seen, over); deleted != 0 || err != nil {
		t.Errorf("%d elements were deleted, %v", deleted, err)
	}
	var f flow
	if err := m.Lookup(seen[0], &f); err != nil {
		t.Errorf("the client's direction is gone: %v", err)
	}
}

func TestFlowsThatWereSweptWereNotEvicted(t *testing.T) {
	r := newRig(t, smallSizes())
	for k, f := range pairOf(model.TCP, 1, flowReset, 0, 0) {
		if err := r.current.maps[mapFlows].Put(k, f); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.addToCounter(counterFlowsCreated, 2); err != nil {
		t.Fatal(err)
	}
	if err := r.sweep(mapFlows, uint64(time.Hour)); err != nil {
		t.Fatal(err)
	}
	uses, err := r.Usage()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(uses, func(u api.MapUse) bool { return u.Name == mapFlows })
	if uses[i].Used != 0 || uses[i].Evictions != 0 {
		t.Errorf("%d flows and %d evictions, want none", uses[i].Used, uses[i].Evictions)
	}
}
