// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bytes"
	"context"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/test/lab/packet"
)

// without serves a Service that has no endpoint.
func (n *node) without(action model.Action, protocol model.Protocol, f family) netip.AddrPort {
	n.t.Helper()
	key, front := n.backendSet(model.RoleVIPInternal, protocol, f), n.front(f)
	n.serve(front, &model.Set{Key: key, Action: action})
	return front
}

func TestRejectedConnectionsAreReset(t *testing.T) {
	const syn, ack, rst, fin = packet.SYN, packet.ACK, packet.RST, packet.FIN
	n := newNode(t)
	for _, f := range families {
		for name, c := range map[string]struct {
			flags   uint8
			payload int
			silent  bool
		}{
			"a SYN (R13)":                       {syn, 0, false},
			"a SYN with data":                   {syn, 5, false},
			"a SYN with much data":              {syn, 1400, false},
			"a SYN that ends at once":           {syn | fin, 3, false},
			"an end without acknowledgement":    {fin, 0, false},
			"data":                              {ack, 7, false},
			"an answer that nobody asked for":   {syn | ack, 0, false},
			"no flags at all":                   {0, 1, false},
			"a reset is never answered":         {rst, 0, true},
			"nor one that acknowledges":         {rst | ack, 0, true},
			"nor one that would open a flow":    {rst | syn, 0, true},
			"nor one of all flags":              {0x3f, 4, true},
			"urgent, pushed and acknowledged":   {ack | 0x28, 4, false},
			"flags of congestion are no matter": {syn | 0xc0, 0, false},
		} {
			n.run(t, f.name+" "+name, func(t *testing.T) {
				k := talkTo(f, model.TCP, n.without(model.ActionReject, model.TCP, f), netip.AddrPort{})
				p := k.there(c.flags, string(make([]byte, c.payload)))
				o := n.in(n.eth0, p.Bytes())
				if c.silent {
					o.dropped()
					return
				}
				o.answered(reset(p))
				n.expectRefused(k.front, model.TCP, 1)
				n.expectFlows(0, 0)
			})
		}
	}
}

func TestRejectedDatagramsAreUnreachable(t *testing.T) {
	n := newNode(t)
	for _, f := range families {
		for _, size := range []int{0, 1, 2, 3, 4, 60, 67, 68, 69, 1400} {
			n.run(t, f.name, func(t *testing.T) {
				k := talkTo(f, model.UDP, n.without(model.ActionReject, model.UDP, f), netip.AddrPort{})
				p := k.there(0, string(bytes.Repeat([]byte{0xa5}, size)))
				n.in(n.eth0, p.Bytes()).answered(unreachable(p, p.Bytes()))
				n.expectRefused(k.front, model.UDP, 1)
			})
		}
	}
}

func TestPacketsWithOptionsAreAnswered(t *testing.T) {
	n := newNode(t)
	n.kinds(t, func(t *testing.T, f family, protocol model.Protocol) {
		for _, length := range []int{1, 5, 10} {
			k := talkTo(f, protocol, n.without(model.ActionReject, protocol, f), netip.AddrPort{})
			p := k.there(opening[protocol], "payload")
			b := withOptions(p.Bytes(), length)
			o := n.in(n.eth0, b)
			if protocol == model.TCP {
				o.answered(reset(p))
				continue
			}
			o.answered(unreachable(p, b))
		}
	})
}

// withOptions puts so many words of options into an IPv4 packet, or as many
// double words and one more into the extension headers of an IPv6 one.
func withOptions(b []byte, length int) []byte {
	if b[0]>>4 == 4 {
		return packet.WithOptions(b, bytes.Repeat([]byte{1}, 4*length))
	}
	b = packet.WithExtension(b, unix.IPPROTO_DSTOPTS, make([]byte, 8*length-2))
	return packet.WithExtension(b, unix.IPPROTO_HOPOPTS, make([]byte, 6))
}

// expectSilence expects that the packet is dropped, and counted and told for a
// reason of select.h.
func (n *node) expectSilence(t *testing.T, p packet.Packet, reason uint8) {
	t.Helper()
	n.in(n.eth0, p.Bytes()).dropped()
	n.expectRefused(p.Target, model.Protocol(p.Protocol), reason)
	n.expectFlows(0, 0)
}

func TestLocalPolicyWithoutALocalEndpointDropsSilently(t *testing.T) {
	n := newNode(t)
	n.kinds(t, func(t *testing.T, f family, protocol model.Protocol) {
		front := n.front(f)
		inner := n.backendSet(model.RoleVIPInternal, protocol, f)
		n.serveIn(model.ScopeInternal, front, &model.Set{Key: inner, Backends: withPort(8080, f.remote)})
		outer := inner
		outer.Role = model.RoleVIPExternal
		n.serveIn(model.ScopeExternal, front, &model.Set{Key: outer, Action: model.ActionDrop})
		p := talkTo(f, protocol, front, netip.AddrPort{}).there(opening[protocol], "")
		n.expectSilence(t, p, 2)
		event := n.event(t)
		want := api.Refusal{
			SchemaVersion: event.SchemaVersion, Time: event.Time, Path: "packet", Device: event.Device,
			Address: front.Addr().String(), Port: front.Port(), Protocol: protocol.String(), From: p.Source.String(),
			Service: event.Service, PortName: event.PortName, Action: "drop", Reason: reasonText(2),
		}
		if event != want || event.Service != outer.Service.String() {
			t.Errorf("the event (R11) is\n%+v, want\n%+v", event, want)
		}
	})
}

// event is the one refusal that was told and not read.
func (n *node) event(t *testing.T) api.Refusal {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var events []api.Refusal
	err := n.ReadRefusals(ctx, func(r api.Refusal) {
		events = append(events, r)
		cancel()
	})
	if err != nil || len(events) != 1 {
		t.Fatalf("the events are %+v, %v; want one", events, err)
	}
	return events[0]
}

func TestExternalScopeComesBeforeAll(t *testing.T) {
	n := newNode(t)
	n.kinds(t, func(t *testing.T, f family, protocol model.Protocol) {
		front := n.front(f)
		inner := n.backendSet(model.RoleVIPInternal, protocol, f)
		n.serveIn(model.ScopeInternal, front, &model.Set{Key: inner, Backends: withPort(8080, f.remote)})
		outer := inner
		outer.Role = model.RoleVIPExternal
		n.serveIn(model.ScopeExternal, front, &model.Set{Key: outer, Backends: withPort(8080, f.pod)})
		n.open(talkTo(f, protocol, front, netip.AddrPortFrom(f.pod, 8080)))
	})
}

func TestSourceRangesHoldForPackets(t *testing.T) {
	n := newNode(t)
	n.kinds(t, func(t *testing.T, f family, protocol model.Protocol) {
		inside := netip.PrefixFrom(f.client, f.client.BitLen()-8).Masked()
		front, key := n.front(f), n.backendSet(model.RoleVIPInternal, protocol, f)
		set := &model.Set{Key: key, Backends: withPort(8080, f.pod), SourceRanges: []netip.Prefix{inside}}
		id := n.serve(front, set)
		k := talkTo(f, protocol, front, set.Backends[0].AddrPort)
		n.open(k)
		n.forgetFlows()

		stranger := k
		stranger.client = netip.AddrPortFrom(f.gateway, 40000)
		n.expectSilence(t, stranger.there(opening[protocol], ""), 3)
		n.in(n.eth0, stranger.there(amid[protocol], "no reset either").Bytes()).dropped()
		set.SourceRanges = []netip.Prefix{netip.PrefixFrom(f.gateway, f.gateway.BitLen())}
		n.publish(id, set)
		stranger.source = stranger.client
		n.open(stranger)
		n.in(n.eth0, k.there(opening[protocol], "").Bytes()).dropped()
	})
}

func TestNodePorts(t *testing.T) {
	n := newNode(t)
	n.kinds(t, func(t *testing.T, f family, protocol model.Protocol) {
		key := n.backendSet(model.RoleInternal, protocol, f)
		everywhere := netip.AddrPortFrom(f.unspecified(), 30080)
		n.serve(everywhere, &model.Set{Key: key, Backends: withPort(8080, f.pod)})
		back := netip.AddrPortFrom(f.pod, 8080)
		n.open(talkTo(f, protocol, netip.AddrPortFrom(f.node, 30080), back))
		for name, to := range map[string]netip.AddrPort{
			"an address of the node that serves none (R24)": netip.AddrPortFrom(f.second, 30080),
			"another node's address":                        netip.AddrPortFrom(f.router, 30080),
			"a pod's address":                               netip.AddrPortFrom(f.pod, 30080),
			"the loopback address (R24)":                    netip.AddrPortFrom(loopbackOf(f), 30080),
			"the unspecified address":                       everywhere,
			"another port of the node":                      netip.AddrPortFrom(f.node, 30081),
		} {
			p := talkTo(f, protocol, to, back).there(opening[protocol], name)
			n.in(n.eth0, p.Bytes()).untouched()
		}
		n.run(t, "an exact address is before them", func(t *testing.T) {
			other := n.backendSet(model.RoleVIPInternal, protocol, f)
			exact := netip.AddrPortFrom(f.node, 30080)
			n.serve(exact, &model.Set{Key: other, Backends: withPort(9090, f.pod)})
			n.open(talkTo(f, protocol, exact, netip.AddrPortFrom(f.pod, 9090)))
		})
		n.run(t, "amid a connection that is not known the node's own stack answers", func(t *testing.T) {
			if protocol == model.TCP {
				k := talkTo(f, protocol, netip.AddrPortFrom(f.node, 30080), back)
				n.in(n.eth0, k.there(packet.ACK, "").Bytes()).untouched()
			}
		})
	})
}

func loopbackOf(f family) netip.Addr {
	if f.client.Is4() {
		return netip.MustParseAddr("127.0.0.1")
	}
	return netip.IPv6Loopback()
}

func TestClusterIPsFromOutside(t *testing.T) {
	cidrs := []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")}
	n := newNodeWith(t, Config{ServiceCIDRs: cidrs})
	n.kinds(t, func(t *testing.T, f family, protocol model.Protocol) {
		front := netip.AddrPortFrom(f.clusterIP, 80)
		key := n.backendSet(model.RoleClusterIP, protocol, f)
		n.serve(front, &model.Set{Key: key, Backends: withPort(8080, f.remote)})
		n.open(talkTo(f, protocol, front, netip.AddrPortFrom(f.remote, 8080))) // R41
		n.forgetFlows()

		unknown := talkTo(f, protocol, netip.AddrPortFrom(f.clusterIP, 81), netip.AddrPort{}).there(opening[protocol], "")
		n.in(n.eth0, unknown.Bytes()).answered(closed(unknown)) // R38
		n.expectRefused(unknown.Target, protocol, 6)
		unallocated := netip.AddrPortFrom(f.clusterIP.Next(), 80)
		n.expectSilence(t, talkTo(f, protocol, unallocated, netip.AddrPort{}).there(opening[protocol], ""), 7) // R38
	})
}

func TestUnknownPortsOfOtherAddressesAreNotOurs(t *testing.T) {
	n := newNode(t)
	n.kinds(t, func(t *testing.T, f family, protocol model.Protocol) {
		key := n.backendSet(model.RoleVIPInternal, protocol, f)
		n.serve(n.front(f), &model.Set{Key: key, Backends: withPort(8080, f.pod)})
		for _, to := range []netip.Addr{f.vip, f.clusterIP, f.client, f.pod, f.node} {
			p := talkTo(f, protocol, netip.AddrPortFrom(to, 999), netip.AddrPort{}).there(opening[protocol], "")
			n.in(n.eth0, p.Bytes()).untouched()
		}
	})
}
