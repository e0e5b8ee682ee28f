// SPDX-License-Identifier: Apache-2.0

package layers

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/internal/adapter/compare"
	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/model"
)

// Outline is what is of its own about the check of one kind of parting.
type Outline struct {
	ID, Title, Page string
	Kind            compare.Kind
	// Say puts a parting into words: how bad it is, what is wrong, and what
	// follows from it.
	Say func(*Parting) (how doctor.Severity, title string, follows string)
}

// Check is the check of an outline.
func Check(o Outline) doctor.Check {
	return doctor.Check{ID: o.ID, Title: o.Title, Rank: doctor.RankKernel, Page: o.Page, Sample: func(s *facts.Sample) []doctor.Finding {
		var out []doctor.Finding
		all := In(s)
		for i := range all {
			if all[i].Kind == o.Kind {
				out = append(out, all[i].finding(&o))
			}
		}
		return out
	}}
}

func (p *Parting) finding(o *Outline) doctor.Finding {
	how, title, follows := o.Say(p)
	f := doctor.Finding{
		Severity: how, Layer: p.Layer(), Subject: p.Subject(), Nodes: []string{p.Node.Name}, Title: title,
		Detail: p.story(follows), Evidence: p.evidence(), Remedy: p.remedy(), Recent: p.Recent,
	}
	if p.Kind == compare.Missing || p.Kind == compare.Empty {
		f.Key = o.ID // nothing is nothing, however much it should be
	}
	component := p.component().name
	f.RestsOn = []string{doctor.Reach(component, p.Node.Name), doctor.Permission(component)}
	for _, service := range p.Services() {
		f.RestsOn = append(f.RestsOn, doctor.Kept(service.String(), p.Node.Name))
		// These two take nothing away from who connects.
		if p.Kind != compare.Unchosen && p.Kind != compare.Extra {
			f.Breaks = append(f.Breaks, doctor.Backends(service.String(), p.Node.Name))
		}
	}
	return f
}

// Services are those that it is about; none if nobody's frontend is.
func (p *Parting) Services() []model.Name {
	if p.All != nil {
		return p.All
	}
	if p.Service == (model.Name{}) {
		return nil
	}
	return []model.Name{p.Service}
}

// Subject is what it is about: a Service, all of them, or frontends of nobody.
func (p *Parting) Subject() string {
	switch {
	case p.All != nil:
		return "all Services"
	case p.Service == (model.Name{}):
		return "frontend " + listed(p.Places())
	}
	return p.Service.String()
}

// Who is the subject at the begin of a sentence.
func (p *Parting) Who() string {
	if p.All != nil {
		return fmt.Sprintf("each of %d Services", len(p.All))
	}
	return p.Subject()
}

// Where is the first table that is wrong.
func (p *Parting) Where() string { return tableName(p.Seen[0].Dump) }

// Met is the last table that is wrong, the kernel if connections meet it.
func (p *Parting) Met() string { return tableName(p.Seen[len(p.Seen)-1].Dump) }

// tableName is a table in words: "the kernel".
func tableName(d *facts.Dump) string {
	switch d.Layer {
	case facts.Backends:
		return "the backends of " + agentName(d.DataPlane)
	case facts.Frontends:
		return "the frontends of " + agentName(d.DataPlane)
	}
	return "the kernel"
}

func agentName(plane facts.DataPlane) string {
	switch plane {
	case facts.PlaneCilium:
		return "Cilium's agent"
	case facts.PlaneFairlead:
		return "Fairlead's agent"
	}
	return "kube-proxy"
}

// List is some backends in words, sorted.
func (p *Parting) List() string {
	var all []string
	for _, b := range p.Backends() {
		all = append(all, b.String())
	}
	return listed(all)
}

// PlacesText is the frontends in words.
func (p *Parting) PlacesText() string {
	if p.All != nil {
		return "any address"
	}
	return listed(p.Places())
}

// WantedText is how many backends the API has, in words.
func (p *Parting) WantedText() string {
	switch n := len(p.Wanted()); {
	case p.Expected == nil:
		return p.List() + " at its frontends"
	case p.All != nil:
		return "all have some in the API"
	default:
		return fmt.Sprintf("%d in the API", n)
	}
}

// listed names a few of many.
func listed(all []string) string {
	const few = 4
	if more := len(all) - few; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:few], ", "), more)
	}
	return strings.Join(all, ", ")
}

// Rightful are the Services of which backends are, other than its own.
func (p *Parting) Rightful() string {
	var all []string
	for _, b := range p.Backends() {
		for _, name := range p.Expected.Holders(b) {
			if name != p.Service {
				all = append(all, name.String())
			}
		}
	}
	slices.Sort(all)
	return listed(slices.Compact(all))
}

// Wanted are the addresses that the API gives to the Service at this node.
func (p *Parting) Wanted() []netip.AddrPort {
	if p.Expected == nil {
		return nil
	}
	row := p.Expected.Row(p.Service)
	if row == nil {
		return nil
	}
	var all []netip.AddrPort
	for _, set := range row.Own.Sets {
		for _, b := range set.Backends {
			all = append(all, b.AddrPort)
		}
	}
	slices.SortFunc(all, model.CompareAddrPort)
	return slices.Compact(all)
}

// story is what each layer has, and what follows.
func (p *Parting) story(follows string) []string {
	out := []string{p.reference()}
	if first := p.Seen[0].Dump; first.Layer == facts.Kernel && p.Believed == nil {
		switch agent := p.agentTable(); {
		case agent != nil:
			out = append(out, fmt.Sprintf("%s are right, and the kernel is not as they are.", upper(tableName(agent))))
		case p.Plane != facts.PlaneKubeProxy:
			out = append(out, fmt.Sprintf("The tables of %s were not read, so it may be wrong there already.", agentName(p.Plane)))
		}
	}
	if later := p.later(); len(later) > 0 {
		out = append(out, fmt.Sprintf("It begins in %s, and is so in %s, too.", p.Where(), strings.Join(later, " and ")))
	}
	if len(p.Right) > 0 {
		var names []string
		for _, d := range p.Right {
			names = append(names, tableName(d))
		}
		names = slices.Compact(names)
		ahead := "It gets there with the next change of the Service that the agent works on: no connection shows it yet."
		if p.InForce() {
			ahead = "These tables do not agree."
		}
		out = append(out, fmt.Sprintf("It is not so in %s yet. %s", strings.Join(names, " and "), ahead))
	}
	if follows != "" {
		out = append(out, follows)
	}
	return out
}

// reference is what the tables were held against.
func (p *Parting) reference() string {
	if p.Expected == nil {
		if p.Believed != nil && p.Believed != p.Seen[0].Dump {
			return fmt.Sprintf("What the API has is not known. %s was compared with %s.", upper(p.Where()), tableName(p.Believed))
		}
		return fmt.Sprintf("What the API has is not known. %s were compared with its frontends.", upper(p.Where()))
	}
	if p.Kind == compare.Extra {
		return "In the API no Service has this address and port."
	}
	if p.All != nil {
		var names []string
		for _, n := range p.All {
			names = append(names, n.String())
		}
		return "In the API they have backends: " + listed(names) + "."
	}
	wanted := p.Wanted()
	if len(wanted) == 0 {
		return "The API has no backend of it for this node."
	}
	var all []string
	for _, b := range wanted {
		all = append(all, b.String())
	}
	return "The API has " + listed(all) + " for it."
}

// agentTable is one of its agent's that could show it and does not, before the
// kernel.
func (p *Parting) agentTable() *facts.Dump {
	var out *facts.Dump
	for i := range p.Node.Dumps {
		if d := &p.Node.Dumps[i]; d.DataPlane == p.Plane && d.Layer != facts.Kernel && d.Silent == "" && p.couldShow(d) {
			out = d
		}
	}
	return out
}

// later are the tables behind the first one that show it.
func (p *Parting) later() []string {
	var out []string
	for _, s := range p.Seen[1:] {
		if name := tableName(s.Dump); name != p.Where() {
			out = append(out, name)
		}
	}
	return slices.Compact(out)
}

func upper(text string) string { return strings.ToUpper(text[:1]) + text[1:] }
