// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"net/netip"
	"slices"
)

// endpoint is one address and port behind one Service port, as this node sees
// it. After gather an address and port stands once, however many slices and
// copies hold it (R4).
type endpoint struct {
	*Endpoint
	addrPort netip.AddrPort
	slices   []Name // every slice that holds it, sorted
	rank     uint8  // of its conditions; the copy of highest rank speaks for all
	local    bool   // on this node, by nodeName (R42)
	near     bool   // topology hints let this node use it (R15)
}

// fallback says that the endpoint may serve while nothing is ready (R7).
func (e *endpoint) fallback() bool { return !e.Ready && e.Serving && e.Terminating }

// rankOf orders the conditions in which copies of one endpoint may stand: a
// ready copy speaks before a serving one, that before a terminating one.
func rankOf(e *Endpoint) uint8 {
	switch {
	case e.Ready:
		return 4
	case e.Serving && e.Terminating:
		return 3
	case e.Serving:
		return 2
	case e.Terminating:
		return 1
	}
	return 0
}

// sliceNames returns the name of each slice. A backend that stands in one
// slice only, as nearly all do, shares its place in this list.
func sliceNames(all []*EndpointSlice) []Name {
	names := make([]Name, len(all))
	for i, s := range all {
		names[i] = s.Name
	}
	return names
}

// gather appends to buf the endpoints of one Service port in one family,
// sorted by address and port, without repeats. The order in which slices,
// their ports and their endpoints are listed does not matter.
func (c *compiler) gather(buf []endpoint, portName string, protocol Protocol, family Family) []endpoint {
	for i, s := range c.slices {
		if s.Family != family || s.Namespace != c.svc.Namespace || s.Service != c.svc.Name.Name {
			continue
		}
		for _, p := range s.Ports {
			if p.Name == portName && p.Protocol == protocol {
				buf = c.appendEndpoints(buf, s, p.Port, c.names[i:i+1:i+1])
			}
		}
	}
	slices.SortFunc(buf, compareCopies)
	return markNear(mergeCopies(buf), c.node)
}

// appendEndpoints uses the first address of an endpoint only: the API calls
// them fungible, and kube-proxy reads no other.
func (c *compiler) appendEndpoints(buf []endpoint, s *EndpointSlice, port uint16, name []Name) []endpoint {
	buf = slices.Grow(buf, len(s.Endpoints))
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if len(e.Addresses) == 0 || FamilyOf(e.Addresses[0]) != s.Family {
			continue
		}
		buf = append(buf, endpoint{
			Endpoint: e,
			addrPort: netip.AddrPortFrom(e.Addresses[0], port),
			slices:   name,
			rank:     rankOf(e),
			local:    e.NodeName != "" && e.NodeName == c.node.Name,
		})
	}
	return buf
}

// compareCopies orders by address and port, and copies of one endpoint so that
// the one which speaks for all comes first. What follows the slice's name
// matters only where one slice repeats an endpoint; it makes the order total.
func compareCopies(a, b endpoint) int {
	if d := CompareAddrPort(a.addrPort, b.addrPort); d != 0 {
		return d
	}
	if d := cmp.Or(cmp.Compare(b.rank, a.rank), falseLast(a.local, b.local)); d != 0 {
		return d
	}
	return cmp.Or(
		a.slices[0].Compare(b.slices[0]),
		falseLast(a.Terminating, b.Terminating),
		cmp.Compare(a.NodeName, b.NodeName),
		slices.Compare(a.NodeHints, b.NodeHints),
		slices.Compare(a.ZoneHints, b.ZoneHints))
}

func falseLast(a, b bool) int {
	if a == b {
		return 0
	}
	if a {
		return -1
	}
	return 1
}

// mergeCopies keeps the first copy of each endpoint and lets it name the
// slices of all. It works in place.
func mergeCopies(sorted []endpoint) []endpoint {
	n := 0
	for i := 0; i < len(sorted); n++ {
		end := i + 1
		for end < len(sorted) && sorted[end].addrPort == sorted[i].addrPort {
			end++
		}
		merged := sorted[i]
		if end-i > 1 {
			merged.slices = holders(sorted[i:end])
		}
		sorted[n] = merged
		i = end
	}
	return sorted[:n]
}

// holders lists the slices of all copies of one endpoint, sorted.
func holders(copies []endpoint) []Name {
	names := make([]Name, len(copies))
	for i := range copies {
		names[i] = copies[i].slices[0]
	}
	slices.SortFunc(names, Name.Compare)
	return slices.Compact(names)
}

// markNear marks the ready endpoints that topology hints let this node use
// (R15): same node, if all ready endpoints have node hints and one names this
// node; else same zone likewise; else all. At least one is marked if any is
// ready. Endpoints that are not ready have no say, and are never filtered.
func markNear(all []endpoint, node *Node) []endpoint {
	byNode := func(e *Endpoint) []string { return e.NodeHints }
	byZone := func(e *Endpoint) []string { return e.ZoneHints }
	switch {
	case hintsHold(all, byNode, node.Name):
		markHinted(all, byNode, node.Name)
	case hintsHold(all, byZone, node.Zone):
		markHinted(all, byZone, node.Zone)
	default:
		for i := range all {
			all[i].near = true
		}
	}
	return all
}

// hintsHold says that every ready endpoint has hints, and one names here.
func hintsHold(all []endpoint, hints func(*Endpoint) []string, here string) bool {
	named := false
	for i := range all {
		if !all[i].Ready {
			continue
		}
		h := hints(all[i].Endpoint)
		if len(h) == 0 {
			return false
		}
		named = named || slices.Contains(h, here)
	}
	return named
}

func markHinted(all []endpoint, hints func(*Endpoint) []string, here string) {
	for i := range all {
		all[i].near = slices.Contains(hints(all[i].Endpoint), here)
	}
}
