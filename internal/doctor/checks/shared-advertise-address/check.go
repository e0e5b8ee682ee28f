// SPDX-License-Identifier: Apache-2.0

// Package sharedadvertiseaddress looks for API servers that say the same address
// is theirs.
package sharedadvertiseaddress

import (
	"cmp"
	_ "embed"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/doctor/services"
)

//go:embed README.md
var page string

const (
	id         = "shared-advertise-address"
	kubernetes = "default/kubernetes"
	// fresh is how long ago a server that runs renewed its Lease; it does so every
	// ten seconds.
	fresh = time.Minute
)

// Check compares the API servers that run with the addresses that they have.
func Check() doctor.Check {
	return doctor.Check{ID: id, Title: "API servers that share one advertised address", Rank: doctor.RankConfig, Page: page, Sample: check}
}

func check(s *facts.Sample) []doctor.Finding {
	service, known := services.Find(services.All(s.Objects), kubernetes)
	addresses := own(service)
	if !known || len(addresses) == 0 {
		return nil
	}
	all := leasesOf(s.Objects)
	servers := running(all)
	switch {
	case len(servers) > len(addresses):
		return []doctor.Finding{shared(s.Objects, service, servers, addresses)}
	case len(all) == 0 && slices.ContainsFunc(addresses, netip.Addr.IsLinkLocalUnicast):
		return []doctor.Finding{linkLocal(s.Objects, service, addresses)}
	}
	return nil
}

// own are the addresses in the Service's slices, of the family that has more.
func own(s services.Service) []netip.Addr {
	families := map[bool][]netip.Addr{}
	if s.Service == nil {
		return nil
	}
	for _, e := range s.Endpoints() {
		a := e.Address.Addr()
		if !slices.Contains(families[a.Is4()], a) {
			families[a.Is4()] = append(families[a.Is4()], a)
		}
	}
	if len(families[true]) >= len(families[false]) {
		return families[true]
	}
	return families[false]
}

// leasesOf are the Leases of API servers; some are enough to tell that they are
// more than their addresses.
func leasesOf(o *facts.Objects) []*coordinationv1.Lease {
	var out []*coordinationv1.Lease
	for _, l := range o.Leases {
		if l.Namespace == "kube-system" && l.Labels["apiserver.kubernetes.io/identity"] == "kube-apiserver" && l.Spec.RenewTime != nil {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b *coordinationv1.Lease) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// running are those that were renewed lately. The newest of them says what time
// it is, for the clock of who looks may be another.
func running(all []*coordinationv1.Lease) []*coordinationv1.Lease {
	var newest time.Time
	for _, l := range all {
		if l.Spec.RenewTime.After(newest) {
			newest = l.Spec.RenewTime.Time
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(l *coordinationv1.Lease) bool { return newest.Sub(l.Spec.RenewTime.Time) >= fresh })
}

func shared(o *facts.Objects, service services.Service, servers []*coordinationv1.Lease, addresses []netip.Addr) doctor.Finding {
	lines := make([]string, len(servers))
	for i, l := range servers {
		lines[i] = fmt.Sprintf("%s/%s  %s  renewed %s", l.Namespace, l.Name, l.Labels["kubernetes.io/hostname"], l.Spec.RenewTime.UTC().Format(time.RFC3339))
	}
	return doctor.Finding{
		Check: id, Severity: doctor.Warning, Layer: doctor.LayerAPI, Subject: kubernetes,
		Key:   "shared",
		Title: fmt.Sprintf("%d API servers run, and %s has only %s", len(servers), kubernetes, list(addresses)),
		Detail: []string{
			"Several of them say that this address is theirs (--advertise-address). Each one that stops takes it out of default/kubernetes, for all of them, until another one puts it back within seconds.",
			why(addresses),
		},
		Evidence: append(services.ShownSlices(o, service), doctor.Excerpt(o.Record(servers[0]), lines...)),
		Breaks:   []string{doctor.Advertised()},
		Remedy:   remedies(),
	}
}

// linkLocal is a note: the Leases would tell, and nobody has seen them.
func linkLocal(o *facts.Objects, service services.Service, addresses []netip.Addr) doctor.Finding {
	return doctor.Finding{
		Check: id, Severity: doctor.Info, Layer: doctor.LayerAPI, Subject: kubernetes,
		Title: fmt.Sprintf("%s has the link-local %s, which several API servers may share", kubernetes, list(addresses)),
		Detail: []string{
			"Such an address is no machine's own beyond its link: something on or near each node leads it to an API server. If there are several, all of them advertise it, and each one that stops takes it out of default/kubernetes for all of them.",
			why(addresses),
		},
		Evidence: services.ShownSlices(o, service),
		Breaks:   []string{doctor.Advertised()},
		Remedy:   remedies(),
	}
}

func why(addresses []netip.Addr) string {
	if len(addresses) == 1 {
		return "While it is gone, default/kubernetes has no endpoints, and data planes refuse what dials it."
	}
	return "While it is gone, the load of all is on the addresses that are left."
}

func remedies() []doctor.Remedy {
	return []doctor.Remedy{
		{Text: "Give each kube-apiserver an --advertise-address of its own. Where the control plane is somebody else's, that is for them to do."},
		{Text: "Until then let no agent that every pod depends on reach the API server through a Service (see api-through-service)."},
	}
}

func list(addresses []netip.Addr) string {
	if len(addresses) == 1 {
		return "address " + addresses[0].String()
	}
	texts := make([]string, len(addresses))
	for i, a := range addresses {
		texts[i] = a.String()
	}
	return "addresses " + strings.Join(texts, ", ")
}
