// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/model"
)

// The kernel may give a socket a port that is a NodePort, where the ranges of
// both meet.
func TestAnswersToTheNodesOwnDatagramsAreNotForANodePort(t *testing.T) {
	n := newNode(t)
	for _, f := range families {
		n.run(t, f.name, func(t *testing.T) {
			everywhere := netip.AddrPortFrom(f.unspecified(), 30080)
			n.serve(everywhere, &model.Set{Key: n.backendSet(model.RoleInternal, model.UDP, f), Backends: withPort(8080, f.pod)})
			server, own := netip.AddrPortFrom(f.client, 53), netip.AddrPortFrom(f.node, 30080)
			var socket net.Conn
			n.do(func() (err error) {
				socket, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(own), net.UDPAddrFromAddrPort(server))
				return err
			})
			defer socket.Close()
			answer := say(model.UDP, server, own, 0, "the answer")
			n.in(n.eth0, answer.Bytes()).untouched()
			n.expectFlows(0, 0)
			n.open(talkTo(f, model.UDP, own, netip.AddrPortFrom(f.pod, 8080)))
		})
	}
}

func TestASocketThatListensDoesNotTakeANodePort(t *testing.T) {
	n := newNode(t)
	n.kinds(t, func(t *testing.T, f family, protocol model.Protocol) {
		everywhere := netip.AddrPortFrom(f.unspecified(), 30080)
		n.serve(everywhere, &model.Set{Key: n.backendSet(model.RoleInternal, protocol, f), Backends: withPort(8080, f.pod)})
		defer n.listen(t, protocol, netip.AddrPortFrom(f.node, 30080))()
		n.open(talkTo(f, protocol, netip.AddrPortFrom(f.node, 30080), netip.AddrPortFrom(f.pod, 8080)))
	})
}

// A hostNetwork pod has the node's address; a VIP may be an address of lo.
func TestTheNodeServesAndHoldsTheVIP(t *testing.T) {
	n := newNode(t)
	own := []netip.Addr{ipv4.node, ipv6.node, ipv4.second, ipv6.second, ipv4.vip, ipv6.vip}
	if err := n.SetNodeAddresses(own, []netip.Addr{ipv4.node, ipv6.node}); err != nil {
		t.Fatal(err)
	}
	n.ns.Addr(t, "lo", netip.PrefixFrom(ipv4.vip, 32).String())
	n.ns.Addr(t, "lo", netip.PrefixFrom(ipv6.vip, 128).String())
	n.kinds(t, func(t *testing.T, f family, protocol model.Protocol) {
		for _, back := range []netip.Addr{f.node, f.second, f.pod, f.remote} {
			front := n.front(f)
			id := n.serve(front, &model.Set{Key: n.backendSet(model.RoleVIPInternal, protocol, f), Backends: withPort(8080, back)})
			k := n.open(talkTo(f, protocol, front, netip.AddrPortFrom(back, 8080)))
			n.send(k, amid[protocol], "a question")
			n.reply(k, amid[protocol], "an answer")
			n.withdraw(front, id)
		}
	})
}

// A tunnel that is made again has programs a moment later than its routes. What
// a client says in between goes to the backend with the client's own address,
// and its answers never come by here.
func TestFlowsWithoutAnAnswerTakeTheWayOutOnceThereIsOne(t *testing.T) {
	n := newNode(t)
	eth1 := n.devices()[1]
	n.kinds(t, func(t *testing.T, f family, protocol model.Protocol) {
		if err := n.current.maps[mapDevices].Delete(n.eth1.index); err != nil {
			t.Fatal(err)
		}
		front := n.front(f)
		n.serve(front, &model.Set{Key: n.backendSet(model.RoleVIPInternal, protocol, f), Backends: withPort(8080, f.remote)})
		k := talkTo(f, protocol, front, netip.AddrPort{})
		if early := n.begin(k); !early.isLocal() || early.source != early.client {
			t.Fatalf("the flow is %+v, want it to go by the stack", early)
		}
		if _, err := n.putSource(eth1); err != nil {
			t.Fatal(err)
		}
		n.age(2 * time.Second)
		if late := n.open(k); late.isLocal() || late.source.Addr() != f.second {
			t.Errorf("the flow is %+v, want it to leave with the address of eth1", late)
		}
		n.expectFlows(0, 2)
	})
}
