// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// The tests speak of one small world: Service default/web with ClusterIP
// 10.96.0.1 and one unnamed port 80/TCP, whose endpoints listen on 8080; this
// node is n1 in zone a, with the address 192.168.0.1.

var thisNode = Node{Name: "n1", Zone: "a", Addresses: addrs("192.168.0.1")}

func addrs(texts ...string) []netip.Addr {
	list := make([]netip.Addr, len(texts))
	for i, s := range texts {
		list[i] = netip.MustParseAddr(s)
	}
	return list
}

func prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, s := range texts {
		list[i] = netip.MustParsePrefix(s)
	}
	return list
}

func vips(texts ...string) []LoadBalancerIngress {
	var list []LoadBalancerIngress
	for _, a := range addrs(texts...) {
		list = append(list, LoadBalancerIngress{Address: a})
	}
	return list
}

func service(changes ...func(*Service)) *Service {
	s := &Service{
		Name:       Name{"default", "web"},
		ClusterIPs: addrs("10.96.0.1"),
		Ports:      []ServicePort{{Protocol: TCP, Port: 80}},
	}
	for _, change := range changes {
		change(s)
	}
	return s
}

func slice(name string, endpoints ...Endpoint) *EndpointSlice {
	return &EndpointSlice{
		Name:      Name{"default", name},
		Service:   "web",
		Family:    IPv4,
		Endpoints: endpoints,
		Ports:     []EndpointPort{{Protocol: TCP, Port: 8080}},
	}
}

// with changes a copy of a slice.
func with(s *EndpointSlice, change func(*EndpointSlice)) *EndpointSlice {
	changed := *s
	change(&changed)
	return &changed
}

// endpointAt returns an endpoint on a node, "" for none; its conditions and
// hints are words: ready, serving, terminating, zone=a, node=n1.
func endpointAt(address, node string, words ...string) Endpoint {
	e := Endpoint{Addresses: addrs(address), NodeName: node}
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "ready":
			e.Ready = true
		case "serving":
			e.Serving = true
		case "terminating":
			e.Terminating = true
		case "zone":
			e.ZoneHints = append(e.ZoneHints, value)
		case "node":
			e.NodeHints = append(e.NodeHints, value)
		default:
			panic("no such condition: " + word)
		}
	}
	return e
}

func ready(address, node string, hints ...string) Endpoint {
	return endpointAt(address, node, append(hints, "ready", "serving")...)
}

// describe writes one line for each claim: key, scope and type, then the
// action and all that the set says.
func describe(c *Compiled) []string {
	var lines []string
	for _, claim := range c.Claims {
		lines = append(lines, describeRow(Row{Claim: claim, Set: c.Sets[claim.Set]}))
	}
	return lines
}

func describeRow(r Row) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s", r.Claim.Key, r.Claim.Key.Scope, r.Claim.Type)
	if r.Claim.Shadowed != "" {
		fmt.Fprintf(&b, " shadowed by %s", r.Claim.Shadowed)
		return b.String()
	}
	fmt.Fprintf(&b, " %s", r.Set.Action)
	for _, e := range r.Set.Backends {
		fmt.Fprintf(&b, " %s", e.AddrPort)
		if e.State != StateActive {
			fmt.Fprintf(&b, "=%s", e.State)
		}
	}
	if len(r.Set.Draining) > 0 {
		b.WriteString(" draining")
	}
	for _, e := range r.Set.Draining {
		fmt.Fprintf(&b, " %s", e.AddrPort)
	}
	if len(r.Set.SourceRanges) > 0 {
		fmt.Fprintf(&b, " from %v", r.Set.SourceRanges)
	}
	if r.Set.AffinitySeconds > 0 {
		fmt.Fprintf(&b, " affinity %d", r.Set.AffinitySeconds)
	}
	if r.Set.Reason != "" {
		fmt.Fprintf(&b, ": %s", r.Set.Reason)
	}
	return b.String()
}

// compileCase is one line of the rule book: a Service, its slices and what
// this node makes of them.
type compileCase struct {
	name   string
	svc    *Service
	slices []*EndpointSlice
	node   *Node // nil is thisNode
	opts   Options
	want   []string
}

func runCases(t *testing.T, cases []compileCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			node := c.node
			if node == nil {
				node = &thisNode
			}
			compiled := Compile(c.svc, c.slices, node, &c.opts)
			if got := describe(&compiled); strings.Join(got, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("got:\n\t%s\nwant:\n\t%s", strings.Join(got, "\n\t"), strings.Join(c.want, "\n\t"))
			}
			checkShape(t, &compiled)
		})
	}
}
