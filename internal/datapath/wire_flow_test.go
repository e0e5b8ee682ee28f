// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/test/lab/packet"
)

func TestOnlyWhoSawTheAnswerConfirms(t *testing.T) {
	const syn, ack, rst, fin = packet.SYN, packet.ACK, packet.RST, packet.FIN
	n, front := newNode(t), netip.AddrPortFrom(ipv4.vip, 80)
	n.serve(front, &model.Set{Key: n.backendSet(model.RoleVIPInternal, model.TCP, ipv4), Backends: withPort(8080, ipv4.remote)})
	for name, c := range map[string]struct {
		answered bool
		flags    uint8
		beyond   uint32 // the backend's sequence number
		confirms bool
	}{
		"the acknowledgement of the backend's SYN":         {true, ack, 1, true},
		"one that ends the connection at once":             {true, ack | fin, 1, true},
		"one of bytes that came besides":                   {true, ack, 1 << 20, true},
		"one before there was an answer does not":          {false, ack, 1, false},
		"one of less than the SYN does not":                {true, ack, 0, false},
		"one of bytes that cannot have come does not":      {true, ack, 1<<20 + 1, false},
		"one of half of all numbers ahead does not":        {true, ack, 1 << 31, false},
		"a repeated SYN does not":                          {true, syn, 1, false},
		"a reset does not, whatever it acknowledges":       {true, ack | rst, 1, false},
		"an answer in the other direction's place doesn't": {true, ack | syn, 1, false},
	} {
		n.run(t, name, func(t *testing.T) {
			k := n.begin(talkTo(ipv4, model.TCP, front, netip.AddrPort{}))
			if c.answered {
				n.reply(k, syn|ack, "")
			}
			p := k.there(c.flags, "")
			p.Ack = backendSequence + c.beyond
			n.in(n.eth0, p.Bytes()).leaves(k.translated(p))
			if c.confirms {
				n.expectFlows(0, 2)
				return
			}
			n.expectFlows(2, 0)
		})
	}
}

func TestADatagramAfterTheAnswerConfirms(t *testing.T) {
	n := newNode(t)
	n.either(t, func(t *testing.T, k talk, _ SetID) {
		k = n.begin(k)
		n.send(k, 0, "a second question before the answer")
		n.expectFlows(2, 0)
		n.reply(k, 0, "the answer")
		n.reply(k, 0, "and more of it")
		n.expectFlows(2, 0)
		n.send(k, 0, "thanks")
		n.expectFlows(0, 2)
	}, model.UDP)
}

// goesOn says whether the next first packet of the client goes on in the flow
// rather than opening a new one: its backend is draining, and another one is
// there for new flows.
func (n *node) goesOn(t *testing.T, k talk, id SetID) bool {
	t.Helper()
	fresh := withPort(9, k.back.Addr())
	n.publish(id, &model.Set{
		Key: n.current.names[id].mustKey(t), Backends: fresh, Draining: []model.Backend{{AddrPort: k.back}},
	})
	o := n.in(n.eth0, k.there(opening[k.protocol], "").Bytes())
	switch o.packet().Target {
	case k.back:
		return true
	case fresh[0].AddrPort:
		return false
	}
	t.Fatalf("the packet became %s", show(o.frame))
	return false
}

func TestEndedConnectionsGiveWayToNewOnes(t *testing.T) {
	n := newNode(t)
	const ack, rst, fin = packet.ACK, packet.RST, packet.FIN
	type step struct {
		back  bool
		flags uint8
	}
	for name, c := range map[string]struct {
		steps  []step
		goesOn bool
	}{
		"an open one goes on":                                    {nil, true},
		"one that the client has ended goes on":                  {[]step{{false, fin | ack}}, true},
		"one that the backend has ended goes on":                 {[]step{{true, fin | ack}}, true},
		"one that the client has ended twice goes on":            {[]step{{false, fin | ack}, {false, fin | ack}}, true},
		"one that both have ended is over":                       {[]step{{false, fin | ack}, {true, fin | ack}, {false, ack}}, false},
		"one that the client has reset is over":                  {[]step{{false, rst}}, false},
		"one that the backend has reset is over":                 {[]step{{true, rst | ack}}, false},
		"one whose reset was not believed by the client (R36)":   {[]step{{true, rst}, {false, ack}}, true},
		"one whose reset was not believed by the backend (R36)":  {[]step{{false, rst}, {true, ack}}, true},
		"one that was reset again is over":                       {[]step{{true, rst}, {false, ack}, {true, rst}}, false},
		"one whose reset was answered by the end is half closed": {[]step{{true, rst}, {false, fin | ack}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			n.either(t, func(t *testing.T, k talk, id SetID) {
				k = n.open(k)
				for _, s := range c.steps {
					if s.back {
						n.reply(k, s.flags, "")
						continue
					}
					n.send(k, s.flags, "")
				}
				if got := n.goesOn(t, k, id); got != c.goesOn {
					t.Errorf("the connection goes on: %v, want %v", got, c.goesOn)
				}
			}, model.TCP)
		})
	}
}

func TestConnectionsThatEndAsTheyAreConfirmed(t *testing.T) {
	n := newNode(t)
	n.either(t, func(t *testing.T, k talk, id SetID) {
		k = n.begin(k)
		n.reply(k, packet.SYN|packet.ACK, "")
		n.send(k, packet.ACK|packet.FIN, "")
		n.expectFlows(0, 2)
		n.reply(k, packet.ACK|packet.FIN, "")
		for key, f := range n.flowsIn(mapFlows) {
			if f.State&flowEnded != flowEnded {
				t.Errorf("the element %+v has state %#x, want both ends", key, f.State)
			}
		}
		if n.goesOn(t, k, id) {
			t.Errorf("the connection goes on")
		}
	}, model.TCP)
}

func TestFlowsTimeOut(t *testing.T) {
	n := newNode(t)
	const ack, rst, fin = packet.ACK, packet.RST, packet.FIN
	for name, c := range map[string]struct {
		protocol model.Protocol
		embryo   bool
		there    uint8 // the last packet of the client
		back     uint8 // and of the backend; TCP only
		after    time.Duration
	}{
		"an open connection":        {model.TCP, false, ack, ack, 24 * time.Hour},
		"one that one side ended":   {model.TCP, false, fin | ack, ack, time.Hour},
		"an attempt":                {model.TCP, true, 0, 0, time.Minute},
		"datagrams with answers":    {model.UDP, false, 0, 0, 2 * time.Minute},
		"datagrams without answers": {model.UDP, true, 0, 0, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			n.either(t, func(t *testing.T, k talk, id SetID) {
				make := func() talk {
					if c.embryo {
						return n.begin(k)
					}
					k := n.open(k)
					n.send(k, c.there, "")
					n.reply(k, c.back, "")
					return k
				}
				made := make()
				n.age(c.after - time.Second)
				if !n.goesOn(t, made, id) {
					t.Errorf("it is over after %s less a second", c.after)
				}
				n.forgetFlows()
				k.back = netip.AddrPortFrom(k.back.Addr(), 9)
				made = make()
				n.age(c.after + time.Second)
				n.publish(id, &model.Set{Key: n.current.names[id].mustKey(t), Backends: withPort(10, k.back.Addr())})
				o := n.in(n.eth0, made.there(opening[k.protocol], "").Bytes())
				if o.packet().Target.Port() != 10 {
					t.Errorf("it goes on after %s and a second: %s", c.after, show(o.frame))
				}
				n.expectFlows(2, 0)
			}, c.protocol)
		})
	}
}

func TestUseKeepsFlows(t *testing.T) {
	n := newNode(t)
	n.either(t, func(t *testing.T, k talk, _ SetID) {
		k = n.open(k)
		n.age(time.Minute)
		n.send(k, amid[k.protocol], "")
		n.reply(k, amid[k.protocol], "")
		now, err := monotonic()
		if err != nil {
			t.Fatal(err)
		}
		for key, f := range n.confirmed() {
			if f.Used+uint64(5*time.Second) < now {
				t.Errorf("the element %+v was used %s ago", key, time.Duration(now-f.Used))
			}
		}
	})
}

func TestAttemptsAtABackendThatIsGoneMoveOn(t *testing.T) {
	n := newNode(t)
	n.either(t, func(t *testing.T, k talk, id SetID) {
		k = n.begin(k)
		n.send(k, opening[k.protocol], "")
		next := withPort(9, k.back.Addr())
		n.publish(id, &model.Set{Key: n.current.names[id].mustKey(t), Backends: next})
		o := n.in(n.eth0, k.there(opening[k.protocol], "").Bytes())
		if o.packet().Target != next[0].AddrPort {
			t.Errorf("the repeated attempt went to %s, want %s", o.packet().Target, next[0].AddrPort)
		}
		n.expectFlows(2, 0)
	})
}

// Extents are used again, so a set's word comes back with other backends.
func TestDatagramsLeaveABackendThatIsGoneWhateverTheWord(t *testing.T) {
	n := newNode(t)
	key, front := n.backendSet(model.RoleVIPInternal, model.UDP, ipv4), n.front(ipv4)
	set := func(port uint16, backends ...netip.Addr) *model.Set {
		return &model.Set{Key: key, Backends: withPort(port, backends...)}
	}
	id := n.serve(front, set(8, ipv4.pod))
	word := n.current.sets[id].Word
	k := n.open(talkTo(ipv4, model.UDP, front, netip.AddrPortFrom(ipv4.pod, 8)))
	n.send(k, 0, "the backend is known to be in the set")
	n.publish(id, set(9, ipv4.pod, ipv4.remote))
	n.reclaimAll(uint64(n.cfg.Sizes.Backends-1-3), int(n.cfg.Sizes.Sets)-1)
	last := set(10, ipv4.pod)
	n.publish(id, last)
	if now := n.current.sets[id].Word; now != word {
		t.Fatalf("the word is %#x, want %#x again", now, word)
	}
	if o := n.in(n.eth0, k.there(0, "").Bytes()); o.packet().Target != last.Backends[0].AddrPort {
		t.Errorf("the datagram went to %s, want %s, the only one there is (R35)", o.packet().Target, last.Backends[0].AddrPort)
	}
}
