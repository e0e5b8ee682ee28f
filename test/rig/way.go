// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/fairlead-io/fairlead/test/lab/traffic"
)

// Way is a kind of socket and how it writes an address.
type Way struct {
	Name    string
	Network traffic.Network
	V6      bool
	Mapped  bool // an IPv6 socket to an IPv4 address
}

// Of picks the address of the way's family.
func (w Way) Of(p Pair) netip.Addr {
	if w.V6 {
		return p.V6
	}
	return p.V4
}

// To writes the address as the way's client gives it to its socket.
func (w Way) To(p Pair, port uint16) netip.AddrPort {
	addr := w.Of(p)
	if w.Mapped {
		addr = netip.AddrFrom16(addr.As16())
	}
	return netip.AddrPortFrom(addr, port)
}

// UDP tells datagrams from connections.
func (w Way) UDP() bool { return w.Network == traffic.UDP || w.Network == traffic.UDPUnconnected }

// Ask asks once by this way.
func (w Way) Ask(c *traffic.Client, to Pair, port uint16) traffic.Reply {
	return c.Ask(w.Network, w.To(to, port).String())
}

// Expect asks often enough that every one of the servers answers, and no other
// one does.
func Expect(t testing.TB, c *traffic.Client, w Way, to Pair, port uint16, servers ...string) {
	t.Helper()
	// One of n servers is missed 16n times in a row about once in 10⁷ runs.
	got := c.Many(w.Network, w.To(to, port).String(), 16*len(servers))
	if len(got.Errors) > 0 {
		t.Errorf("%s to %s: errors %v", w.Name, w.To(to, port), got.Errors)
	}
	answered := make([]string, 0, len(got.Servers))
	for name := range got.Servers {
		answered = append(answered, name)
	}
	slices.Sort(answered)
	if servers = slices.Sorted(slices.Values(servers)); !slices.Equal(answered, servers) {
		t.Errorf("%s to %s is answered by %v, want %v", w.Name, w.To(to, port), got.Servers, servers)
	}
}

// ExpectError asks once and must fail in one of these ways; "" stands for an
// answer.
func ExpectError(t testing.TB, c *traffic.Client, w Way, to Pair, port uint16, errors ...string) {
	t.Helper()
	if got := w.Ask(c, to, port); !slices.Contains(errors, got.Error) {
		t.Errorf("%s to %s: %s, want %q", w.Name, w.To(to, port), got, errors)
	}
}
