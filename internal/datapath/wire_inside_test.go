// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net/netip"
	"testing"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/test/lab/packet"
)

// podTalk is a flow of the node's own pod, whose device has the programs.
func podTalk(f family, protocol model.Protocol, front, back netip.AddrPort) talk {
	k := talk{protocol: protocol, client: netip.AddrPortFrom(f.pod, 40000), front: front, back: back, ttl: sentTTL}
	k.source = k.client
	return k
}

func TestAPodReachesServices(t *testing.T) {
	n := newNode(t)
	n.kinds(t, func(t *testing.T, f family, protocol model.Protocol) {
		front := netip.AddrPortFrom(f.clusterIP, 80)
		back := netip.AddrPortFrom(f.remote, 8080)
		inner := n.backendSet(model.RoleInternal, protocol, f)
		n.serveIn(model.ScopeInternal, front, &model.Set{Key: inner, Backends: withPort(8080, f.remote)})
		outer := inner
		outer.Role = model.RoleExternal
		n.serveIn(model.ScopeExternal, front, &model.Set{Key: outer, Action: model.ActionDrop})
		k := podTalk(f, protocol, front, back)
		there := func(flags uint8) {
			p := k.there(flags, "the pod's address is kept (R37)")
			n.in(n.pod, p.Bytes()).becomes(k.translated(p))
		}
		again := func(flags uint8) {
			p := k.again(flags, "and its answers come through its device")
			n.outBy(n.pod, p.Bytes()).becomes(k.translated(p))
		}
		first := k.there(opening[protocol], "")
		k.source = n.in(n.pod, first.Bytes()).packet().Source
		if ports := n.cfg.Wire.SNATPorts; k.source.Addr() != f.pod || k.source.Port() < ports.First || k.source.Port() > ports.Last {
			t.Errorf("the backend sees %s, want the pod's address and a port of %s", k.source, ports)
		}
		there(opening[protocol])
		n.expectFlows(2, 0)
		again(answer[protocol])
		there(amid[protocol])
		n.expectFlows(0, 2)
		again(amid[protocol])
		n.part(t, "a frame for the bridge of the pod's is for a Service, too", func(t *testing.T) {
			p := k.there(amid[protocol], "")
			frame := n.pod.frame(routerMAC, p.Bytes())
			n.pass(meeting{program: "fairlead_ingress", device: n.pod}, frame).becomes(k.translated(p))
		})
	})
}

func TestAPodMeetsItself(t *testing.T) {
	n := newNode(t)
	n.kinds(t, func(t *testing.T, f family, protocol model.Protocol) {
		front := netip.AddrPortFrom(f.clusterIP, 80)
		n.serve(front, &model.Set{Key: n.backendSet(model.RoleClusterIP, protocol, f), Backends: withPort(8080, f.pod)})
		k := podTalk(f, protocol, front, netip.AddrPortFrom(f.pod, 8080))
		p := k.there(opening[protocol], "")
		k.source, k.ttl = n.in(n.pod, p.Bytes()).packet().Source, sentTTL-1
		if k.source.Addr() != f.node || k.source.Port() < n.cfg.Wire.SNATPorts.First {
			t.Errorf("the pod is met by %s, want the node's primary address and a port of %s (R37)", k.source, n.cfg.Wire.SNATPorts)
		}
		for _, step := range []packet.Packet{
			k.there(opening[protocol], ""), k.again(answer[protocol], ""),
			k.there(amid[protocol], "hello, me"), k.again(amid[protocol], "hello, me, too"),
		} {
			n.in(n.pod, step.Bytes()).leaves(k.translated(step))
		}
		n.expectFlows(0, 2)
	})
}

func TestWhatAPodSendsElsewhereIsUntouched(t *testing.T) {
	n := newNode(t)
	n.kinds(t, func(t *testing.T, f family, protocol model.Protocol) {
		n.serve(netip.AddrPortFrom(f.clusterIP, 80), &model.Set{Key: n.backendSet(model.RoleClusterIP, protocol, f), Backends: withPort(8080, f.remote)})
		for _, to := range []netip.Addr{f.client, f.remote, f.node, f.gateway} {
			p := podTalk(f, protocol, netip.AddrPortFrom(to, 80), netip.AddrPort{}).there(opening[protocol], "")
			n.in(n.pod, p.Bytes()).untouched()
		}
	})
}

// Nodes that know the same backends send a client to the same one, whichever of
// them it comes to, in however many Services of theirs the set is.
func TestMaglevChoosesAlikeOnEveryNode(t *testing.T) {
	one, other := newNode(t), newNode(t)
	other.sets = 7
	chosen := map[netip.AddrPort]int{}
	for _, n := range []*node{one, other} {
		for _, f := range families {
			for _, protocol := range []model.Protocol{model.TCP, model.UDP} {
				key := n.backendSet(model.RoleVIPInternal, protocol, f)
				n.serve(netip.AddrPortFrom(f.vip, 80), &model.Set{
					Key: key, Backends: withPort(8080, several(f.pod, 7)...), Selection: model.SelectionMaglev,
				})
			}
		}
	}
	one.kinds(t, func(t *testing.T, f family, protocol model.Protocol) {
		front := netip.AddrPortFrom(f.vip, 80)
		for port := uint16(1); port <= 100; port++ {
			k := talkTo(f, protocol, front, netip.AddrPort{}).from(port)
			a, b := one.begin(k).back, other.begin(k).back
			if a != b {
				t.Errorf("one node sends %s to %s, the other one to %s", k.client, a, b)
			}
			chosen[a]++
		}
	})
	for back, n := range chosen {
		// 200 clients of each family and protocol, and seven backends.
		if n < 7 || n > 200/7*3 {
			t.Errorf("%d of 200 clients go to %s", n, back)
		}
	}
	if len(chosen) != 14 {
		t.Errorf("%d backends are chosen, want all 14", len(chosen))
	}
}

// several are addresses in a row.
func several(first netip.Addr, n int) []netip.Addr {
	var all []netip.Addr
	for range n {
		all = append(all, first)
		first = first.Next()
	}
	return all
}
