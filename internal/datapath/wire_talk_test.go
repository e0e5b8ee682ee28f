// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/test/lab/packet"
)

// talk is a flow as both of its ends know it.
type talk struct {
	protocol      model.Protocol
	client, front netip.AddrPort // as the client has them
	source, back  netip.AddrPort // as the backend has them
	ttl           uint8          // how far a packet has come behind the node
}

const (
	clientSequence  = 1000
	backendSequence = 5_000_000
	sentTTL         = 64
)

// say is a packet of the flow in the words that its sender uses.
func say(protocol model.Protocol, from, to netip.AddrPort, flags uint8, payload string) packet.Packet {
	return packet.Packet{
		Source: from, Target: to, Protocol: uint8(protocol), TTL: sentTTL, Flags: flags, Payload: []byte(payload),
	}
}

// there is a packet of the client, as it sends it.
func (k talk) there(flags uint8, payload string) packet.Packet {
	p := say(k.protocol, k.client, k.front, flags, payload)
	p.Seq = clientSequence
	if flags&packet.SYN == 0 {
		p.Seq++
	}
	if flags&packet.ACK != 0 {
		p.Ack = backendSequence + 1
	}
	return p
}

// again is a packet of the backend, as it sends it.
func (k talk) again(flags uint8, payload string) packet.Packet {
	p := say(k.protocol, k.back, k.source, flags, payload)
	p.Seq = backendSequence
	if flags&packet.SYN == 0 {
		p.Seq++
	}
	if flags&packet.ACK != 0 {
		p.Ack = clientSequence + 1
	}
	return p
}

// translated is a packet of one end as the other one is to see it.
func (k talk) translated(p packet.Packet) []byte {
	if p.Source == k.client {
		p.Source, p.Target = k.source, k.back
	} else {
		p.Source, p.Target = k.front, k.client
	}
	p.TTL = k.ttl
	return p.Bytes()
}

// opening is what a client says first, and what is said then.
var (
	opening = map[model.Protocol]uint8{model.TCP: packet.SYN}
	answer  = map[model.Protocol]uint8{model.TCP: packet.SYN | packet.ACK}
	amid    = map[model.Protocol]uint8{model.TCP: packet.ACK}
)

// isLocal says that the flow's packets go on through the stack.
func (k talk) isLocal() bool { return k.ttl == sentTTL }

// talkTo is a flow that the node has not seen yet. Where it is sent to the
// backend from the node's own address, the port is not known.
func talkTo(f family, protocol model.Protocol, front, back netip.AddrPort) talk {
	k := talk{protocol: protocol, client: netip.AddrPortFrom(f.client, 40000), front: front, back: back, ttl: sentTTL}
	k.source = k.client
	if back.Addr() == f.remote {
		k.source, k.ttl = netip.AddrPortFrom(f.second, 0), sentTTL-1
	}
	return k
}

// send lets the client's packet in; it goes where the flow leads.
func (n *node) send(k talk, flags uint8, payload string) {
	n.t.Helper()
	p := k.there(flags, payload)
	o := n.in(n.eth0, p.Bytes())
	if k.isLocal() {
		o.becomes(k.translated(p))
		return
	}
	o.leaves(k.translated(p))
}

// reply lets the backend's packet through; it goes to the client.
func (n *node) reply(k talk, flags uint8, payload string) {
	n.t.Helper()
	p := k.again(flags, payload)
	if k.isLocal() {
		n.out(p.Bytes()).becomes(k.translated(p))
		return
	}
	n.in(n.eth1, p.Bytes()).leaves(k.translated(p))
}

// begin sends the client's first packet, and learns which source and which
// of the backends the node chose.
func (n *node) begin(k talk) talk {
	n.t.Helper()
	o := n.in(n.eth0, k.there(opening[k.protocol], "").Bytes())
	if o.verdict != verdictNext && o.verdict != verdictRedirect || o.isAnswer() || o.packet().Target == k.front {
		n.t.Fatalf("the first packet has verdict %d: %s", o.verdict, show(o.frame))
	}
	k.source, k.back = o.packet().Source, o.packet().Target
	k.ttl = o.packet().TTL
	return k
}

// open begins a flow and goes on until it is confirmed.
func (n *node) open(k talk) talk {
	n.t.Helper()
	k = n.begin(k)
	n.reply(k, answer[k.protocol], "")
	n.send(k, amid[k.protocol], "")
	return k
}

// part is a part of a test, on a node as the parts before left it.
func (n *node) part(t *testing.T, name string, test func(t *testing.T)) {
	whole := n.t
	t.Run(name, func(t *testing.T) {
		n.t = t
		defer func() { n.t = whole }()
		test(t)
	})
}

// run is a part of a test on a node that knows no flows.
func (n *node) run(t *testing.T, name string, test func(t *testing.T)) {
	n.part(t, name, func(t *testing.T) {
		n.forgetFlows()
		test(t)
	})
}

// kinds runs a test for each family and protocol.
func (n *node) kinds(t *testing.T, test func(t *testing.T, f family, protocol model.Protocol)) {
	for _, f := range families {
		for _, protocol := range []model.Protocol{model.TCP, model.UDP} {
			n.run(t, f.name+" "+protocol.String(), func(t *testing.T) { test(t, f, protocol) })
		}
	}
}

// either runs a test for each of them with a backend on this node and one on
// another.
func (n *node) either(t *testing.T, test func(t *testing.T, k talk, id SetID), protocols ...model.Protocol) {
	n.kinds(t, func(t *testing.T, f family, protocol model.Protocol) {
		if len(protocols) > 0 && !slices.Contains(protocols, protocol) {
			return
		}
		for name, backend := range map[string]netip.Addr{"here": f.pod, "elsewhere": f.remote} {
			n.run(t, name, func(t *testing.T) {
				key := n.backendSet(model.RoleVIPInternal, protocol, f)
				front := n.front(f)
				id := n.serve(front, &model.Set{Key: key, Backends: withPort(8080, backend)})
				test(t, talkTo(f, protocol, front, netip.AddrPortFrom(backend, 8080)), id)
				n.withdraw(front, id)
			})
		}
	})
}

// front is a port of a VIP that no other set has.
func (n *node) front(f family) netip.AddrPort { return netip.AddrPortFrom(f.vip, uint16(1000+n.sets)) }

// withdraw takes back what serve did.
func (n *node) withdraw(front netip.AddrPort, id SetID) {
	n.t.Helper()
	for k := range n.installed {
		if k.Address == addressOf(front.Addr()) && k.Port == portOf(front.Port()) && n.installed[k].set == id {
			n.delete(Frontend{Key: k.model(), Set: id})
		}
	}
	n.release(id)
}

// model is the key of a frontend that has no external scope.
func (k frontendKey) model() model.FrontendKey {
	return model.FrontendKey{Address: k.Address.addr(), Port: k.Port.uint16(), Protocol: model.Protocol(k.Protocol)}
}

func (k talk) family() family {
	if k.client.Addr().Is4() {
		return ipv4
	}
	return ipv6
}
