// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"net/netip"
	"testing"

	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/lab/packet"
	"github.com/fairlead-io/fairlead/test/rig"
)

// usualTTL is that of what kernels send.
const usualTTL = 64

// watcher looks at what comes to a client.
type watcher struct {
	*packet.Tap
	hops  uint8 // that answers have made at least
	asked map[netip.AddrPort]bool
	seen  int
}

// The hops to a client outside: a node and the router. Of a pod, a bridge may
// be all there is between.
const (
	fromNode   = 2
	fromBridge = 0
)

func watch(t *testing.T, ns *lab.NetNS, link string, hops uint8) *watcher {
	t.Helper()
	return &watcher{Tap: packet.NewTap(t, ns, link), hops: hops, asked: map[netip.AddrPort]bool{}}
}

// expect expects that all that came since the last time was undamaged, and
// from an address that the client has asked; the last one is given.
func (w *watcher) expect(t *testing.T, to target) {
	t.Helper()
	for _, way := range []rig.Way{{}, {V6: true}} {
		w.asked[way.To(to.at, to.port)] = true
		w.asked[way.To(to.at, 0)] = true // of errors
	}
	seen := w.Packets()
	for _, p := range seen[w.seen:] {
		if p.Outgoing {
			continue
		}
		if !w.asked[p.Source] {
			t.Errorf("from an address that nobody asked came %s", p)
		}
		if p.Checksum == packet.Wrong {
			t.Errorf("damaged came %s", p)
		}
		if p.Inner != nil && (!w.asked[p.Inner.Target] || p.Inner.Source.Addr() != p.Target.Addr()) {
			t.Errorf("an error about something that nobody sent came: %s", p)
		}
		if p.Inner == nil && len(p.Payload) > 0 && p.TTL > usualTTL-w.hops {
			t.Errorf("as if no node were between came %s", p)
		}
	}
	w.seen = len(seen)
}
