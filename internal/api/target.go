// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/fairlead-io/fairlead/internal/model"
)

// ParseTarget reads ADDR:PORT[/PROTO], an IPv6 address in brackets. Without a
// protocol it is TCP.
func ParseTarget(s string) (netip.AddrPort, model.Protocol, error) {
	dialled, name, named := strings.Cut(s, "/")
	if bare, err := netip.ParseAddr(dialled); err == nil {
		return netip.AddrPort{}, 0, fmt.Errorf("%q has no port: write ADDR:PORT[/PROTO], for example %s", s, HostPort(bare.WithZone("").String(), 80))
	}
	target, err := netip.ParseAddrPort(dialled)
	if err != nil || target.Port() == 0 || target.Addr().Zone() != "" {
		return netip.AddrPort{}, 0, fmt.Errorf("%q is no ADDR:PORT[/PROTO], for example 10.96.0.10:53/UDP or [fd00::10]:80", s)
	}
	if !named {
		name = model.TCP.String()
	}
	protocol, err := model.ParseProtocol(strings.ToUpper(name))
	if err != nil || name == "" {
		return netip.AddrPort{}, 0, fmt.Errorf("%q: after the slash stands one of TCP, UDP, SCTP", s)
	}
	return netip.AddrPortFrom(target.Addr().Unmap(), target.Port()), protocol, nil
}
