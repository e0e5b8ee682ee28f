// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/internal/adapter"
	"github.com/fairlead-io/fairlead/internal/model"
)

func isTypeError(err error) bool {
	var wrong *json.UnmarshalTypeError
	return errors.As(err, &wrong)
}

func joinAddress(addr string, port uint16) (netip.AddrPort, error) {
	a, err := netip.ParseAddr(addr)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q is no address", addr)
	}
	return netip.AddrPortFrom(a, port), nil
}

// frontends follows the maps in which packets find their Service.
func (t *table) frontends(d *adapter.Dump) []adapter.Frontend {
	var out []adapter.Frontend
	for _, name := range []string{"service-ips", "service-nodeports"} {
		for _, v := range t.maps[name] {
			out = append(out, t.frontend(d, v)...)
		}
	}
	for _, name := range []string{"no-endpoint-services", "no-endpoint-nodeports"} {
		for _, v := range t.maps[name] {
			out = t.refuse(out, v)
		}
	}
	return out
}

func (t *table) begin(v verdict) adapter.Frontend {
	fe := adapter.Frontend{Address: netip.AddrPortFrom(v.address, v.port), Protocol: v.protocol, Line: 1}
	if !v.address.IsValid() {
		fe.Address, fe.Type = netip.AddrPortFrom(t.family.Unspecified(), v.port), "NodePort"
	}
	return fe
}

// frontend is what a verdict leads to: one frontend for all traffic, or one for
// each scope where a chain leads traffic from inside elsewhere.
func (t *table) frontend(d *adapter.Dump, v verdict) []adapter.Frontend {
	fe := t.begin(v)
	fe.Service, fe.PortName = serviceOf(v.target.chain)
	if !strings.HasPrefix(v.target.chain, "external-") {
		fe.Backends = t.backends(d, v.target.chain)
		return []adapter.Frontend{fe}
	}
	inside, outside := t.ways(v.target.chain)
	fe.Backends = t.backends(d, outside)
	if inside == "" {
		return []adapter.Frontend{fe}
	}
	internal := fe
	internal.Scope, fe.Scope = model.ScopeInternal, model.ScopeExternal
	internal.Backends = t.backends(d, inside)
	return []adapter.Frontend{internal, fe}
}

// ways are the chains to which a chain for external addresses leads: where some
// packets go, those of pods and of the node, and where the rest goes.
func (t *table) ways(name string) (inside, outside string) {
	for _, r := range t.chains[name] {
		for _, target := range r.targets {
			switch {
			case !isChainOfEndpoints(target):
			case r.matches:
				inside = target
			default:
				outside = target
			}
		}
	}
	return inside, outside
}

func isChainOfEndpoints(name string) bool {
	return strings.HasPrefix(name, "service-") || strings.HasPrefix(name, "local-")
}

// backends are those of the chains of endpoints that a chain leads to. With
// session affinity it leads to each twice.
func (t *table) backends(d *adapter.Dump, name string) []adapter.Backend {
	var out []adapter.Backend
	seen := map[string]bool{}
	for _, r := range t.chains[name] {
		for _, target := range r.targets {
			if !strings.HasPrefix(target, "endpoint-") || seen[target] {
				continue
			}
			seen[target] = true
			i := slices.IndexFunc(t.chains[target], func(r rule) bool { return r.destination.IsValid() })
			if i < 0 {
				d.Oddf(1, "%s leads to %s, which leads nowhere", name, target)
				continue
			}
			out = append(out, adapter.Backend{Address: t.chains[target][i].destination, State: adapter.Active})
		}
	}
	slices.SortFunc(out, func(a, b adapter.Backend) int { return model.CompareAddrPort(a.Address, b.Address) })
	return out
}

// refuse notes an entry for an address without endpoints, which the other maps
// may not have.
func (t *table) refuse(out []adapter.Frontend, v verdict) []adapter.Frontend {
	fe := t.begin(v)
	fe.Action = adapter.Reject
	if v.target.drop {
		fe.Action = adapter.Drop
	}
	fe.Service, fe.PortName, _ = adapter.ParseServicePort(v.comment)
	known := false
	for i := range out {
		if out[i].Address == fe.Address && out[i].Protocol == fe.Protocol {
			known = true
			if len(out[i].Backends) == 0 {
				out[i].Action = fe.Action
			}
		}
	}
	if known {
		return out
	}
	return append(out, fe)
}

// serviceOf takes the name of a chain apart: KIND-HASH-NAMESPACE/NAME/PROTOCOL/PORT.
// A name that was too long for the kernel names no Service.
func serviceOf(chain string) (name model.Name, port string) {
	parts := strings.SplitN(chain, "-", 3)
	if len(parts) < 3 || strings.HasSuffix(chain, "...") {
		return name, ""
	}
	words := strings.Split(parts[2], "/")
	if len(words) != 4 {
		return name, ""
	}
	return model.Name{Namespace: words[0], Name: words[1]}, words[3]
}
