// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead-io/fairlead/internal/api"
)

// Flows reads the flows of the packet path, those that nobody has confirmed
// included, sorted by protocol, frontend and client.
func (r *Reader) Flows() (api.Flows, error) {
	now, err := monotonic()
	if err != nil {
		return api.Flows{}, err
	}
	all := api.Flows{SchemaVersion: api.SchemaVersion, Flows: []api.Flow{}}
	for _, name := range []string{mapFlows, mapDatagrams, mapEmbryos} {
		elements := map[flowKey]flow{}
		err := readFlows(r.maps.maps[name], func(k flowKey, f flow) { elements[k] = f })
		if err != nil {
			return api.Flows{}, fmt.Errorf("read the flows of %s: %w", name, err)
		}
		for k, f := range elements {
			if f.Flags&flowReply != 0 {
				continue
			}
			reply := elements[k.other(&f)]
			all.Flows = append(all.Flows, r.flow(k, &f, &reply, name != mapEmbryos, now))
		}
	}
	slices.SortFunc(all.Flows, func(a, b api.Flow) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Frontend, b.Frontend), cmp.Compare(a.Client, b.Client))
	})
	return all, nil
}

// flow describes a flow by the element of the client's direction; that of the
// other direction may be missing, all zero.
func (r *Reader) flow(k flowKey, f, reply *flow, confirmed bool, now uint64) api.Flow {
	out := api.Flow{
		Protocol: protocolName(k.Protocol),
		Client:   endpointText(k.Source, k.SourcePort), Frontend: endpointText(k.Target, k.TargetPort),
		Backend: endpointText(f.Target, f.TargetPort), Source: endpointText(f.Source, f.SourcePort),
		Path: "stack", State: stateText(f.State | reply.State), Confirmed: confirmed,
	}
	if f.Flags&flowRedirect != 0 {
		out.Path = "redirect"
	}
	if used := max(f.Used, reply.Used); used < now {
		out.IdleSeconds = uint64(time.Duration(now-used) / time.Second)
	}
	if int(f.Set) < len(r.maps.names) {
		n := r.maps.names[f.Set]
		if set, ok := n.key(); ok && n.Owner == f.Owner {
			out.Service, out.PortName = set.Service.String(), set.PortName
		}
	}
	return out
}

func endpointText(a address, p port) string {
	return netip.AddrPortFrom(a.addr(), p.uint16()).String()
}

func stateText(state uint8) string {
	switch {
	case state&flowReset != 0:
		return "reset"
	case state&flowEnded == flowEnded:
		return "closed"
	case state&flowEnded != 0:
		return "half-closed"
	case state&flowAnswered != 0:
		return "open"
	}
	return "new"
}
