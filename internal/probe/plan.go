// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"cmp"
	"net/netip"
)

// Target is an address to try.
type Target struct {
	Purpose  Purpose
	Service  string         // NAMESPACE/NAME; "" if it is none's
	Address  netip.AddrPort // of a gateway only the port counts: each place has its own
	Protocol string         // TCP | UDP
	Name     string         // for which a DNS server is asked
}

// String is the target as results name it.
func (t Target) String() string { return t.Address.String() + "/" + t.Protocol }

// Service is one port of a Service with those behind it, in plain addresses.
type Service struct {
	Name      string // NAMESPACE/NAME
	Protocol  string // TCP | UDP
	Addresses []netip.AddrPort
	Backends  []netip.AddrPort // ready ones
}

// Wanted is what a caller wants to have tried of a node.
type Wanted struct {
	API      []Service        // those that lead to the API server
	DNS      []Service        // those that lead to DNS servers, over UDP
	DNSLocal []netip.AddrPort // caches on the node
	Others   []Service        // of TCP; those without backends are left out
	Peers    []netip.AddrPort // pods of other nodes, over TCP
	Domain   string           // of the cluster; "" = cluster.local
}

// Any says whether there is anything to dial that belongs to the cluster.
func (w *Wanted) Any() bool {
	return len(w.API)+len(w.DNS)+len(w.DNSLocal)+len(w.Others)+len(w.Peers) > 0
}

// What is tried at most of one Service, and in all.
const (
	maxAddresses = 3
	maxBackends  = 5
	maxPeers     = 4
	maxOthers    = 8
)

// gatewayPort is the kubelet's: a node says something there even where it
// drops what it does not know. Any answer will do.
const gatewayPort = 10250

// Plan chooses what to try, so that what answers can be told by differences,
// and no more.
func Plan(w Wanted) []Target {
	name := "kubernetes.default.svc." + cmp.Or(w.Domain, "cluster.local")
	targets := []Target{{Purpose: Gateway, Address: netip.AddrPortFrom(netip.IPv4Unspecified(), gatewayPort), Protocol: "TCP"}}
	for _, s := range w.API {
		targets = append(targets, s.targets(APIService, "")...)
	}
	for _, s := range w.DNS {
		targets = append(targets, s.targets(DNSService, name)...)
	}
	for _, a := range w.DNSLocal[:min(len(w.DNSLocal), maxAddresses)] {
		targets = append(targets, Target{Purpose: DNSLocal, Address: a, Protocol: "UDP", Name: name})
	}
	others := 0
	for _, s := range w.Others {
		if len(s.Backends) == 0 || s.Protocol != "TCP" || others == maxOthers {
			continue
		}
		others++
		targets = append(targets, s.targets(Frontend, "")...)
	}
	for _, a := range w.Peers[:min(len(w.Peers), maxPeers)] {
		targets = append(targets, Target{Purpose: Peer, Address: a, Protocol: "TCP"})
	}
	return targets
}

// BackendCounts is how many backends each Service has in all: that those which
// were tried are well says nothing of others.
func (w Wanted) BackendCounts() map[string]int {
	counts := map[string]int{}
	for _, list := range [][]Service{w.API, w.DNS, w.Others} {
		for _, s := range list {
			counts[s.Name] += len(s.Backends)
		}
	}
	return counts
}

func (s Service) targets(purpose Purpose, name string) []Target {
	var targets []Target
	for _, a := range s.Addresses[:min(len(s.Addresses), maxAddresses)] {
		targets = append(targets, Target{Purpose: purpose, Service: s.Name, Address: a, Protocol: s.Protocol, Name: name})
	}
	for _, b := range s.Backends[:min(len(s.Backends), maxBackends)] {
		targets = append(targets, Target{Purpose: purpose.Direct(), Service: s.Name, Address: b, Protocol: s.Protocol, Name: name})
	}
	return targets
}
