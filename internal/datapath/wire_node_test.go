// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net"
	"net/netip"
	"testing"

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
