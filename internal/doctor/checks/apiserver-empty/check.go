// SPDX-License-Identifier: Apache-2.0

// Package apiserverempty looks for an API server that has no endpoint in the
// API, now or at times.
package apiserverempty

import (
	_ "embed"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/doctor/services"
)

//go:embed README.md
var page string

const (
	id = "apiserver-empty"
	// kubernetes is the Service that API servers keep for themselves.
	kubernetes = "default/kubernetes"
	// legal is for how long an API server that is replaced may leave nobody behind.
	legal = time.Minute
)

// Check looks at default/kubernetes and what else leads to its endpoints.
func Check() doctor.Check {
	return doctor.Check{ID: id, Title: "default/kubernetes without endpoints", Rank: doctor.RankAPI, Page: page, Case: check}
}

func check(c *facts.Case) []doctor.Finding {
	last := c.Last()
	if last == nil {
		return nil
	}
	var out []doctor.Finding
	for _, s := range services.All(last.Objects) {
		if len(s.Ready()) == 0 && leads(c, s) {
			out = append(out, empty(c, s))
		}
	}
	return append(out, changes(c)...)
}

// leads says that a Service stands for the API server: it is the API server's
// own, or it had the same endpoints once and selects no pods.
func leads(c *facts.Case, s services.Service) bool {
	if s.String() == kubernetes {
		return true
	}
	if len(s.Spec.Selector) > 0 || !s.Served() {
		return false
	}
	own, its := had(c, "default", "kubernetes"), had(c, s.Namespace, s.Name)
	return slices.ContainsFunc(its, func(a netip.AddrPort) bool { return slices.Contains(own, a) })
}

// had are the addresses that a Service has or had.
func had(c *facts.Case, namespace, name string) []netip.AddrPort {
	var out []netip.AddrPort
	for _, s := range c.Samples {
		if then, known := services.Find(services.All(s.Objects), namespace+"/"+name); known {
			out = append(out, then.Ready()...)
		}
	}
	for _, then := range services.Past(c.Events, namespace, name) {
		out = append(out, then.Ready()...)
	}
	return out
}

// empty is a Service of the API server without endpoints. An API server that
// stops may leave nobody behind for a moment, so it counts once it lasts.
func empty(c *facts.Case, s services.Service) doctor.Finding {
	last := c.Last()
	since, writer := written(s)
	lasted := last.Objects.Time.Add(last.Objects.Skew()).Sub(since)
	if since.IsZero() {
		since = firstSeen(c, s)
		lasted = last.Objects.Time.Sub(since)
	}
	f := doctor.Finding{
		Check: id, Severity: doctor.Info, Certainty: doctor.Suspected, Layer: doctor.LayerAPI, Subject: s.String(), Since: since,
		Title:    fmt.Sprintf("%s has %s", s, nobody(s)),
		Evidence: services.ShownSlices(last.Objects, s),
		Breaks:   []string{doctor.Backends(s.String(), "")},
		RestsOn:  []string{doctor.Advertised()},
		Remedy:   []doctor.Remedy{remedy(s)},
	}
	if writer != "" {
		f.Detail = append(f.Detail, fmt.Sprintf("%s wrote it so at %s.", writer, since.UTC().Format(time.RFC3339)))
	}
	if lasted < legal {
		f.Detail = append(f.Detail, "That is legal for a moment while the last API server is replaced: it takes its own address out as it stops. Data planes pass it on, so whoever dials the Service meanwhile is refused.")
		return f
	}
	f.Severity, f.Certainty = doctor.Critical, doctor.Confirmed
	f.Detail = append(f.Detail, fmt.Sprintf("It has been so for %s. Whoever dials the Service is refused, on every node; so are agents that reach the API server by it, and they cannot hear when it has an endpoint again.", lasted.Round(time.Second)))
	return f
}

// nobody is what a Service has in place of a ready endpoint.
func nobody(s services.Service) string {
	switch endpoints := s.Endpoints(); {
	case len(s.Slices) == 0:
		return "no EndpointSlice"
	case len(endpoints) > 0:
		return fmt.Sprintf("%d endpoints, and none is ready", len(endpoints))
	}
	return "no endpoints in the API"
}

// written says when the slices were written last, and by whom.
func written(s services.Service) (at time.Time, manager string) {
	for _, slice := range s.Slices {
		for _, m := range slice.ManagedFields {
			if m.Time != nil && m.Time.After(at) {
				at, manager = m.Time.Time, m.Manager
			}
		}
	}
	return at, manager
}

// firstSeen is the time of the first sample from which on all show it empty.
func firstSeen(c *facts.Case, s services.Service) time.Time {
	first := c.Last().Objects.Time
	for _, sample := range slices.Backward(c.Samples) {
		then, known := services.Find(services.All(sample.Objects), s.String())
		if known && len(then.Ready()) > 0 {
			break
		}
		if known {
			first = sample.Objects.Time
		}
	}
	return first
}

func remedy(s services.Service) doctor.Remedy {
	if s.String() != kubernetes {
		return doctor.Remedy{
			Text:     "Nothing fills this Service but whoever wrote its EndpointSlice; give it back the addresses of the API servers.",
			Commands: []string{doctor.Kubectl(s.Namespace, "get", "endpointslices", "--selector", "kubernetes.io/service-name="+s.Name, "--output", "yaml", "--show-managed-fields")},
		}
	}
	return doctor.Remedy{
		Text: "Each API server writes its own address there when it starts, and every ten seconds again. If none does, see what they log of it, and with which --advertise-address and --endpoint-reconciler-type they run.",
		Commands: []string{
			"kubectl --namespace default get endpointslices kubernetes --output yaml --show-managed-fields",
			"kubectl --namespace kube-system get leases --selector apiserver.kubernetes.io/identity=kube-apiserver",
		},
	}
}
