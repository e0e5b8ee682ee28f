// SPDX-License-Identifier: Apache-2.0

package nameprefix

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead-io/fairlead/internal/adapter"
	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/bugs"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/doctor/services"
)

// loss is that an agent has not what the API has of the longer name.
type loss struct {
	agent
	gone    []netip.AddrPort
	samples int  // in how many it is so
	all     bool // no backend is left
	shown   doctor.Evidence
	// served is that the kernel still has some of them.
	served bool
}

// losses are those of a pair. They count as the defect's work if the short name
// has the address, or had it, and if no sample shows that the agent has it.
func (h *history) losses(p pair, agents []agent) []loss {
	last := h.c.Last()
	want := p.long.Ready()
	var out []loss
	for _, a := range agents {
		has, dump := h.table(last.Node(a.node), p.long)
		if dump == nil || len(missing(want, has)) == 0 {
			continue
		}
		l := loss{agent: a, gone: missing(h.could(p), has), all: len(has) == 0, shown: shown(dump, p.long)}
		for i := range h.c.Samples {
			h.confirm(&l, i, p.long)
		}
		if len(l.gone) > 0 {
			l.served = served(last.Node(a.node), p.long)
			out = append(out, l)
		}
	}
	return out
}

// could are the addresses that the defect can have taken from the longer name:
// those that the short name has or had, or any if it has none now.
func (h *history) could(p pair) []netip.AddrPort {
	if len(p.short.Endpoints()) == 0 {
		return p.long.Ready()
	}
	var had []netip.AddrPort
	for _, all := range h.services {
		if then, known := services.Find(all, p.short.String()); known {
			had = append(had, then.Ready()...)
		}
	}
	for _, then := range services.Past(h.c.Events, p.short.Namespace, p.short.Name) {
		had = append(had, then.Ready()...)
	}
	return common(p.long.Ready(), had)
}

// confirm takes away what a sample shows that the agent has, and what the API
// did not have then.
func (h *history) confirm(l *loss, sample int, long services.Service) {
	has, dump := h.table(h.c.Samples[sample].Node(l.node), long)
	if dump == nil {
		return
	}
	l.samples++
	l.gone = missing(l.gone, has)
	if then, known := services.Find(h.services[sample], long.String()); known {
		l.gone = common(l.gone, then.Ready())
	}
}

func missing(want, have []netip.AddrPort) []netip.AddrPort {
	return slices.DeleteFunc(slices.Clone(want), func(a netip.AddrPort) bool { return slices.Contains(have, a) })
}

func served(n *facts.Node, s services.Service) bool {
	return slices.ContainsFunc(n.Dumps, func(d facts.Dump) bool {
		if d.Layer != facts.Kernel || d.DataPlane != facts.PlaneCilium {
			return false
		}
		return slices.ContainsFunc(d.Frontends, func(f adapter.Frontend) bool {
			return len(f.Backends)+f.More > 0 && slices.Contains(s.Addresses(), f.Address)
		})
	})
}

func shown(d *facts.Dump, s services.Service) doctor.Evidence {
	if d.Layer == facts.Backends {
		has := newTable(d).pools[s.String()]
		if len(has) == 0 {
			return doctor.Excerpt(d.Record, fmt.Sprintf("(no line has %s)", s))
		}
		return doctor.Excerpt(d.Record, fmt.Sprintf("%s has %s", s, addresses(has)))
	}
	var lines []string
	for _, f := range d.Frontends {
		if !slices.Contains(s.Addresses(), f.Address) {
			continue
		}
		backends := "(no backend)"
		if len(f.Backends) > 0 {
			backends = "(other backends)"
		}
		lines = append(lines, fmt.Sprintf("%s  %s  %s", f.Address, f.Type, backends))
	}
	return doctor.Excerpt(d.Record, lines...)
}

func (l *loss) finding(s *facts.Sample, p pair) doctor.Finding {
	f := doctor.Finding{
		Check: id, Severity: doctor.Critical, Layer: doctor.LayerAgent, Subject: p.long.String(), Nodes: l.nodes(),
		Title: fmt.Sprintf("Cilium %s took %s away from %s together with those of %s (%s)", l.version, l.what(), p.long, p.short, upstream),
		Detail: []string{
			fmt.Sprintf("The API has %s for %s; the agent's table has not. As the name %s is the beginning of %s, what the agent released for the one, it released for both.",
				addresses(l.gone), p.long, p.short.Name, p.long.Name),
		},
		Evidence: slices.Concat(l.agent.shown, []doctor.Evidence{l.shown}, services.ShownSlices(s.Objects, p.short, p.long)),
		Breaks:   []string{doctor.Kept(p.long.String(), l.node)},
		Remedy:   heal(p, l.version),
	}
	f.Certainty = certainty(l.samples)
	if l.version == "" {
		f.Certainty = doctor.Suspected
		f.Title = fmt.Sprintf("Cilium seems to have taken %s away from %s together with those of %s (%s)", l.what(), p.long, p.short, upstream)
		f.Detail = append(f.Detail, "Its version is not known; 1.18.0 to 1.18.6 do this.")
	}
	if l.served {
		f.Detail = append(f.Detail, fmt.Sprintf("The kernel still serves %s, until the agent touches that Service the next time: any change of it will do, if only of an annotation.", p.long))
	}
	return f
}

func certainty(samples int) doctor.Certainty {
	if samples > 1 {
		return doctor.Confirmed
	}
	return doctor.Suspected
}

func (l *loss) nodes() []string {
	if l.node == "" {
		return nil
	}
	return []string{l.node}
}

func (l *loss) what() string {
	if l.all {
		return "all backends"
	}
	return "backends"
}

// heal is what brings the backends back: the agent reads the slice again once it
// is written, if it still hears of that.
func heal(p pair, version string) []doctor.Remedy {
	again := doctor.Remedy{
		Text: fmt.Sprintf("Write the EndpointSlices of %s once more: agents that reach the API server take them over.", p.long),
	}
	for _, slice := range p.long.Slices {
		again.Commands = append(again.Commands, doctor.Kubectl(slice.Namespace, "annotate", "endpointslice", slice.Name)+` fairlead.io/touched="$(date +%s)" --overwrite`)
	}
	if p.short.String() != kubernetes {
		return []doctor.Remedy{again, upgrade()}
	}
	return []doctor.Remedy{wayOut(p, version), again, upgrade()}
}

// kubernetes is the API server's own Service: whoever has its endpoints leads to
// the API server too.
const kubernetes = "default/kubernetes"

// wayOut comes first where agents may have lost the API server together with the
// Service: nothing else reaches them.
func wayOut(p pair, version string) doctor.Remedy {
	r := doctor.Remedy{
		Text: fmt.Sprintf("%s leads to the API server. Agents that dial it there are cut off and hear of nothing: first give them an address that is no Service's (api-through-service says which), and restart them.", p.long),
	}
	if ready := p.long.Ready(); len(ready) == 1 {
		r.Commands = []string{
			bugs.SetCilium("kube-system", version, fmt.Sprintf("k8sServiceHost=%s", ready[0].Addr()), fmt.Sprintf("k8sServicePort=%d", ready[0].Port())),
			"kubectl --namespace kube-system rollout restart daemonset/cilium",
		}
	}
	return r
}
