// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"testing"

	"github.com/fairlead-io/fairlead/internal/model"
)

func TestFlowsAreTranslatedBothWays(t *testing.T) {
	n := newNode(t)
	n.either(t, func(t *testing.T, k talk, id SetID) {
		want := k
		k = n.begin(k)
		if k.back != want.back || k.ttl != want.ttl || k.source.Addr() != want.source.Addr() {
			t.Errorf("the flow is %+v, want %+v", k, want)
		}
		if ports := n.cfg.Wire.SNATPorts; k.isLocal() && k.source != k.client || !k.isLocal() && (k.source.Port() < ports.First || k.source.Port() > ports.Last) {
			t.Errorf("the backend sees %s, the node's ports are %s", k.source, ports)
		}
		n.expectFlows(2, 0)
		n.forgetFlows()
		k = n.begin(k)
		// All of it byte for byte.
		n.send(k, opening[k.protocol], "")
		n.reply(k, answer[k.protocol], "")
		n.send(k, amid[k.protocol], "")
		n.expectFlows(0, 2)
		n.send(k, amid[k.protocol], "a question")
		n.reply(k, amid[k.protocol], "an answer, which is longer")
		n.expectFlows(0, 2)
		for key, f := range n.confirmed() {
			if f.Set != uint32(id) || f.Owner != n.shadows[id].owner {
				t.Errorf("the element %+v is %+v, want set %d of owner %d", key, f, id, n.shadows[id].owner)
			}
		}
	})
}

func TestFlowsGoOnWhateverChanges(t *testing.T) {
	n := newNode(t)
	n.either(t, func(t *testing.T, k talk, id SetID) {
		k = n.open(k)
		others := withPort(9, k.back.Addr())
		s := &model.Set{Key: n.current.names[id].mustKey(t), Backends: others, Draining: []model.Backend{{AddrPort: k.back}}}
		n.publish(id, s)
		n.send(k, amid[k.protocol], "a flow to a draining backend goes on (R9)")
		n.reply(k, amid[k.protocol], "and so do its answers")
		s.Draining = nil
		n.publish(id, s)
		before := n.counter(counterReleased)
		if k.protocol == model.TCP {
			n.send(k, amid[k.protocol], "a connection goes on whatever became of its endpoint")
			n.reply(k, amid[k.protocol], "and so do its answers")
			return
		}
		o := n.in(n.eth0, k.there(0, "a datagram for a backend that is gone moves on (R35)").Bytes())
		if o.packet().Target != others[0].AddrPort {
			t.Errorf("the datagram went to %s, want %s", o.packet().Target, others[0].AddrPort)
		}
		if released := n.counter(counterReleased) - before; released != 1 {
			t.Errorf("%d flows were released, want 1", released)
		}
	})
}

func (n *name) mustKey(t *testing.T) model.SetKey {
	t.Helper()
	k, ok := n.key()
	if !ok {
		t.Fatal("the set has no name")
	}
	return k
}
