// SPDX-License-Identifier: Apache-2.0

// Package cilium reads what Cilium's tools print of its load balancer: the
// agent's list of services, the dump of its eBPF maps, and the tables of the
// agent's shell.
//
// README.md says how people record them. What a Service should have is not
// known here.
package cilium

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"github.com/fairlead-io/fairlead/internal/adapter"
	"github.com/fairlead-io/fairlead/internal/model"
)

// Formats are the texts that this package reads.
func Formats() []adapter.Format {
	return []adapter.Format{
		{Source: serviceListSource, Begins: begins("ID", "Frontend", "Service Type", "Backend"), Parse: ParseServiceList},
		{Source: serviceListSource, Holds: holds(`"frontend-address"`), Parse: ParseServiceListJSON},
		{Source: lbListSource, Begins: begins("SERVICE ADDRESS", "BACKEND ADDRESS"), Parse: ParseLBList},
		{Source: lbListSource, Holds: lbListKey.Match, Parse: ParseLBListJSON},
		{Source: frontendsSource, Begins: begins("Address", "Type", "ServiceName"), Parse: ParseFrontends},
		{Source: backendsSource, Begins: begins("Address", "Instances"), Parse: ParseBackends},
		{Source: backendsSource, Begins: begins("Service", "Address", "Source"), Parse: ParseBackends},
		{Source: mapsSource, Begins: mapsLine.MatchString, Alike: true, Parse: ParseMaps},
		// It has no backends: known, so that a recording may hold it.
		{Source: "cilium db/show services", Begins: begins("Name", "Source", "PortNames")},
	}
}

const (
	serviceListSource = "cilium service list"
	lbListSource      = "cilium bpf lb list"
	frontendsSource   = "cilium db/show frontends"
	backendsSource    = "cilium db/show backends"
	mapsSource        = "cilium lb/maps-dump"
)

// lbListKey finds the first key of `bpf lb list -o json`. A map without any
// service is an empty object, which says nothing of where it comes from.
var lbListKey = regexp.MustCompile(`^\s*\{\s*"[0-9a-fA-F.:\[\]]+:\d+(/[A-Z]+)?(/i)?( \(\d+\))?"\s*:\s*\[`)

var mapsLine = regexp.MustCompile(`^(BE|REV|SVC|AFF|SRCRANGE|MAGLEV): ID=`)

// begins says of a line whether it is a header with these titles first.
func begins(titles ...string) func(string) bool {
	return func(line string) bool {
		for _, title := range titles {
			rest, found := strings.CutPrefix(strings.TrimLeft(line, " \t"), title)
			if !found {
				return false
			}
			line = rest
		}
		return true
	}
}

func holds(key string) func([]byte) bool {
	return func(json []byte) bool { return bytes.Contains(json, []byte(key)) }
}

// parseFrontend reads ADDRESS:PORT[/PROTOCOL][/i]. Internal is what "/i" says:
// it is for traffic from inside, and another entry is for that from outside.
func parseFrontend(text string) (adapter.Frontend, error) {
	text, internal := strings.CutSuffix(text, "/i")
	address, protocol, err := parseL4(text)
	if err != nil {
		return adapter.Frontend{}, err
	}
	fe := adapter.Frontend{Address: address, Protocol: protocol}
	if internal {
		fe.Scope = model.ScopeInternal
	}
	return fe, nil
}

// parseL4 reads ADDRESS:PORT[/PROTOCOL]. An address may carry the number of
// its cluster, as 10.0.0.1@2.
func parseL4(text string) (address netip.AddrPort, protocol model.Protocol, err error) {
	text, name, _ := strings.Cut(text, "/")
	if protocol, err = adapter.ParseProtocol(name); err != nil {
		return address, 0, err
	}
	address, err = adapter.ParseAddress(text)
	return address, protocol, err
}

// withScopes gives the entries for traffic from outside their scope: those
// that have a twin for traffic from inside.
func withScopes(frontends []adapter.Frontend) []adapter.Frontend {
	type spot struct {
		address  netip.AddrPort
		protocol model.Protocol
	}
	twins := map[spot]bool{}
	for _, fe := range frontends {
		if fe.Scope == model.ScopeInternal {
			twins[spot{fe.Address, fe.Protocol}] = true
		}
	}
	for i, fe := range frontends {
		if fe.Scope == model.ScopeAll && twins[spot{fe.Address, fe.Protocol}] {
			frontends[i].Scope = model.ScopeExternal
		}
	}
	return frontends
}

// isWildcard says that an entry only stands for the ports of an address that
// no Service has.
func isWildcard(fe adapter.Frontend) bool { return fe.Address.Port() == 0 }

// parseState reads a backend's state as Cilium names it.
func parseState(text string) (adapter.State, error) {
	switch text {
	case "":
		return adapter.Unknown, nil
	case "active":
		return adapter.Active, nil
	case "terminating":
		return adapter.Terminating, nil
	case "quarantined", "maintenance", "unhealthy", "terminating-not-serving":
		return adapter.Unusable, nil
	}
	return adapter.Unknown, fmt.Errorf("a backend's state is %q", text)
}

// flags takes words like "LoadBalancer, Local, two-scopes" apart. The first is
// the frontend's type.
func flags(text, separator string) (kind string, rest []string) {
	words := strings.Split(text, separator)
	for _, word := range words[1:] {
		if word = strings.TrimSpace(word); word != "" {
			rest = append(rest, word)
		}
	}
	return strings.TrimSpace(words[0]), rest
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}

// compareFrontends orders what comes out of a map in no order.
func compareFrontends(a, b adapter.Frontend) int {
	return cmp.Or(model.CompareAddrPort(a.Address, b.Address), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Scope, b.Scope))
}
