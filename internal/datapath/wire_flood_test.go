// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net/netip"
	"testing"

	"github.com/fairlead-io/fairlead/internal/model"
)

// Who cannot see the answer can still send a second datagram: that it comes
// proves nothing, and a flood of such pairs pushes out no connection.
func TestDatagramsPushOutNoConnection(t *testing.T) {
	n := newNode(t)
	serve := func(protocol model.Protocol) talk {
		front := n.front(ipv4)
		n.serve(front, &model.Set{Key: n.backendSet(model.RoleVIPInternal, protocol, ipv4), Backends: withPort(8080, ipv4.pod)})
		return talkTo(ipv4, protocol, front, netip.AddrPortFrom(ipv4.pod, 8080))
	}
	tcp, udp := serve(model.TCP), serve(model.UDP)
	const connections = 100
	for port := uint16(1); port <= connections; port++ {
		n.open(tcp.from(port))
	}
	for port := uint16(1); port <= 20_000; port++ {
		n.open(udp.from(port))
	}
	for port := uint16(1); port <= connections; port++ {
		n.send(tcp.from(port), amid[model.TCP], "still here")
	}
}
