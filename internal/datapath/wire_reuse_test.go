// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/model"
)

// A client, or the NAT in front of many, comes back to a port whose connection
// nobody ended: its backend went with it.
func TestAConnectionToABackendThatIsGoneGivesWayToANewOne(t *testing.T) {
	n := newNode(t)
	n.either(t, func(t *testing.T, k talk, id SetID) {
		k = n.open(k)
		next := withPort(9, k.back.Addr())
		n.publish(id, &model.Set{Key: n.current.names[id].mustKey(t), Backends: next})
		n.send(k, amid[k.protocol], "what is open goes on (R9)")
		o := n.in(n.eth0, k.there(opening[k.protocol], "").Bytes())
		if o.packet().Target != next[0].AddrPort {
			t.Errorf("the new connection went to %s, want %s", o.packet().Target, next[0].AddrPort)
		}
		n.expectFlows(2, 0)
	}, model.TCP)
}

// A client may listen for long and say nothing.
func TestAnswersKeepDatagramsInTheirFlow(t *testing.T) {
	n := newNode(t)
	n.either(t, func(t *testing.T, k talk, id SetID) {
		for name, begin := range map[string]func(talk) talk{"confirmed": n.open, "unconfirmed": n.begin} {
			n.run(t, name, func(t *testing.T) {
				n.publish(id, &model.Set{Key: n.current.names[id].mustKey(t), Backends: withPort(8080, k.back.Addr())})
				k := begin(k)
				n.age(5 * time.Minute)
				n.reply(k, 0, "and there is more")
				if !n.goesOn(t, k, id) {
					t.Errorf("the client's next datagram opens another flow")
				}
			})
		}
	}, model.UDP)
}
