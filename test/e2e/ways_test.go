// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/test/lab/traffic"
	"github.com/fairlead-io/fairlead/test/rig"
)

var ways = []rig.Way{
	{Name: "TCP", Network: traffic.TCP},
	{Name: "TCP over IPv6", Network: traffic.TCP, V6: true},
	{Name: "TCP to a mapped address", Network: traffic.TCP, Mapped: true},
	{Name: "MPTCP", Network: traffic.MPTCP},
	{Name: "MPTCP over IPv6", Network: traffic.MPTCP, V6: true},
	{Name: "connected UDP", Network: traffic.UDP},
	{Name: "connected UDP over IPv6", Network: traffic.UDP, V6: true},
	{Name: "connected UDP to a mapped address", Network: traffic.UDP, Mapped: true},
	{Name: "unconnected UDP", Network: traffic.UDPUnconnected},
	{Name: "unconnected UDP over IPv6", Network: traffic.UDPUnconnected, V6: true},
	{Name: "unconnected UDP to a mapped address", Network: traffic.UDPUnconnected, Mapped: true},
}

// shortly is long enough for an answer within the lab, for clients that expect
// none.
const shortly = 200 * time.Millisecond

// expectUntouched asks once at an address that no route leads to. Where it is
// not translated the kernel says so, or nobody does: a router tells whom it
// likes, and not every kind of socket listens.
func expectUntouched(t *testing.T, c *traffic.Client, w rig.Way, to rig.Pair, port uint16) {
	t.Helper()
	expectAnyError(t, c, w, to, port, "ENETUNREACH", "ETIMEDOUT")
}

// expectClosed asks once at an address of a machine that does not listen on
// the port. It refuses TCP; a datagram's sender may be told, or may not.
func expectClosed(t *testing.T, c *traffic.Client, w rig.Way, to rig.Pair, port uint16) {
	t.Helper()
	if !w.UDP() {
		rig.ExpectError(t, c, w, to, port, "ECONNREFUSED")
		return
	}
	expectAnyError(t, c, w, to, port, "ECONNREFUSED", "ETIMEDOUT")
}

// expectAnyError does not wait long for an answer, since none should come.
func expectAnyError(t *testing.T, c *traffic.Client, w rig.Way, to rig.Pair, port uint16, errors ...string) {
	t.Helper()
	before := c.Timeout
	defer func() { c.Timeout = before }()
	c.Timeout = shortly
	rig.ExpectError(t, c, w, to, port, errors...)
}
