// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/test/lab/packet"
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

// Connections that are over keep their ports for a minute, so that a backend
// which waits for late segments meets no other client there, unless there are
// no other ports.
func TestConnectionsThatAreOverGiveTheirPortsAway(t *testing.T) {
	const ack, rst, fin = packet.ACK, packet.RST, packet.FIN
	n := twoPorts(t)
	for name, end := range map[string]func(k talk){
		"ended by both": func(k talk) { n.send(k, ack|fin, ""); n.reply(k, ack|fin, ""); n.send(k, ack, "") },
		"reset":         func(k talk) { n.send(k, rst, "") },
	} {
		for _, f := range families {
			n.run(t, f.name+" "+name, func(t *testing.T) {
				front := n.front(f)
				n.serve(front, &model.Set{Key: n.backendSet(model.RoleVIPInternal, model.TCP, f), Backends: withPort(8080, f.remote)})
				k := talkTo(f, model.TCP, front, netip.AddrPort{})
				over, open := n.open(k.from(1)), n.open(k.from(2))
				end(over)
				early := k.from(3).there(packet.SYN, "")
				n.in(n.eth0, early.Bytes()).answered(closed(early))
				n.age(4 * time.Second)
				if next := n.open(k.from(3)); next.source != over.source {
					t.Errorf("the new connection has the source %s, want %s", next.source, over.source)
				}
				n.expectFlows(0, 4)
				n.send(open, ack, "what is open keeps its port")
				n.age(4 * time.Second)
				late := k.from(4).there(packet.SYN, "")
				n.in(n.eth0, late.Bytes()).answered(closed(late))
			})
		}
	}
	n.run(t, "a port that nobody had is better", func(t *testing.T) {
		front := n.front(ipv4)
		n.serve(front, &model.Set{Key: n.backendSet(model.RoleVIPInternal, model.TCP, ipv4), Backends: withPort(8080, ipv4.remote)})
		k := talkTo(ipv4, model.TCP, front, netip.AddrPort{})
		for port := uint16(1); port < 100; port += 2 {
			n.forgetFlows()
			over := n.open(k.from(port))
			n.send(over, rst, "")
			n.age(4 * time.Second)
			if next := n.open(k.from(port + 1)); next.source == over.source {
				t.Errorf("the new connection has the source %s of one that is over", next.source)
			}
		}
	})
}
