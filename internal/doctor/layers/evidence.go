// SPDX-License-Identifier: Apache-2.0

package layers

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/fairlead-io/fairlead/internal/adapter"
	"github.com/fairlead-io/fairlead/internal/adapter/compare"
	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/evidence"
	"github.com/fairlead-io/fairlead/internal/model"
)

// The bounds of what is shown of each table and of the API.
const (
	fewLines  = 6
	wideLine  = 200
	fewSlices = 3
)

// evidence are the lines of the tables that show it, and what the API has.
func (p *Parting) evidence() []doctor.Evidence {
	var out []doctor.Evidence
	add := func(d *facts.Dump, lines []string) {
		if p.sharesRecord(d) {
			lines = slices.Insert(lines, 0, "# "+d.Source)
		}
		out = doctor.Join(out, doctor.Excerpt(d.Record, lines...))
	}
	for i := range p.Seen {
		add(p.Seen[i].Dump, p.excerpt(&p.Seen[i]))
	}
	if p.Believed != nil && !p.seenIn(p.Believed) {
		add(p.Believed, p.rows(p.Believed))
	}
	for _, d := range p.Right {
		if d != p.Believed && (d.Layer == facts.Kernel || p.Believed != nil) {
			add(d, p.rows(d))
		}
	}
	if p.Expected == nil {
		return out
	}
	return append(out, p.fromAPI()...)
}

// sharesRecord says that a record holds other tables besides one.
func (p *Parting) sharesRecord(d *facts.Dump) bool {
	return slices.ContainsFunc(p.Node.Dumps, func(o facts.Dump) bool { return o.Record == d.Record && o.Source != d.Source })
}

// excerpt is what of a table shows it.
func (p *Parting) excerpt(s *Seen) []string {
	var out []string
	for _, d := range s.Differences {
		if len(out) >= fewLines {
			out = append(out, "…")
			break
		}
		out = append(out, p.shown(s.Dump, &d)...)
	}
	return slices.Compact(out)
}

// shown are the lines of a difference: what stands there, or that nothing does.
func (p *Parting) shown(d *facts.Dump, a *compare.Difference) []string {
	if a.Line == 0 {
		if d.HasPools {
			return poolRows(d, a)
		}
		return []string{fmt.Sprintf("(nothing of %s %s)", a.Service, a.At)}
	}
	if line := p.line(d.Record, a.Line); readable(line) {
		out := p.slot(d, a, line)
		if !a.Kind.Lacks() && len(a.Backends) > 0 {
			out = append(out, mentions(d.Record.Content, a.Backends[0].String(), out)...)
		}
		return out
	}
	for i := range d.Frontends {
		if fe := &d.Frontends[i]; fe.Line == a.Line && strings.HasPrefix(a.At, fe.Address.String()) {
			return []string{row(fe)}
		}
	}
	return nil
}

// slot is the line of a frontend and, of a table that has a line for each of
// its backends, those.
func (p *Parting) slot(d *facts.Dump, a *compare.Difference, line string) []string {
	out := []string{line}
	address, _, _ := strings.Cut(a.At, "/")
	if !strings.Contains(line, address) {
		return out
	}
	for number := a.Line + 1; len(out) < fewLines; number++ {
		next := p.line(d.Record, number)
		if !strings.Contains(next, address) {
			return out
		}
		out = append(out, next)
	}
	return out
}

// mentions are the first lines with an address, of which none is known.
func mentions(text []byte, address string, known []string) []string {
	const most = 2
	if slices.ContainsFunc(known, func(line string) bool { return strings.Contains(line, address) }) {
		return nil
	}
	var out []string
	for line := range bytes.Lines(text) {
		if _, after, found := bytes.Cut(line, []byte(address)); found && len(out) < most && !startsWithDigit(after) {
			if line := strings.TrimRight(string(line), " \t\r\n"); readable(line) {
				out = append(out, line)
			}
		}
	}
	return out
}

func startsWithDigit(text []byte) bool { return len(text) > 0 && text[0] >= '0' && text[0] <= '9' }

// poolRows are what a table of backends has of a Service.
func poolRows(d *facts.Dump, a *compare.Difference) []string {
	var out []string
	for _, pool := range d.Pools {
		if pool.Service == a.Service {
			out = append(out, fmt.Sprintf("%s %s: %s", pool.Service, pool.PortName, addresses(pool.Backends, 0)))
		}
	}
	if len(out) == 0 {
		return []string{fmt.Sprintf("(no backend of %s)", a.Service)}
	}
	return out
}

// rows are what a table has of the Service at the places that it is about.
func (p *Parting) rows(d *facts.Dump) []string {
	var out []string
	for i := range d.Frontends {
		fe := &d.Frontends[i]
		if len(out) < fewLines && (fe.Service == p.Service || fe.Service == (model.Name{}) && p.holds(fe)) {
			out = append(out, row(fe))
		}
	}
	for _, pool := range d.Pools {
		if len(out) < fewLines && pool.Service == p.Service {
			out = append(out, fmt.Sprintf("%s %s: %s", pool.Service, pool.PortName, addresses(pool.Backends, 0)))
		}
	}
	if len(out) == 0 {
		return []string{fmt.Sprintf("(nothing of %s)", p.Service)}
	}
	return out
}

// holds says that a frontend is at an address of the Service, by the API or
// another table of the node.
func (p *Parting) holds(fe *adapter.Frontend) bool {
	if p.Expected != nil {
		r := p.Expected.Row(p.Service)
		return r != nil && slices.ContainsFunc(r.Compiled.Claims, func(c model.Claim) bool {
			return c.Key.Address == fe.Address.Addr() && c.Key.Port == fe.Address.Port()
		})
	}
	for i := range p.Node.Dumps {
		if slices.ContainsFunc(p.Node.Dumps[i].Frontends, func(o adapter.Frontend) bool { return o.Service == p.Service && o.Address == fe.Address }) {
			return true
		}
	}
	return false
}

// row is a frontend where its table has no line for it that a person can read.
func row(fe *adapter.Frontend) string {
	text := fe.Address.String()
	if fe.Protocol != 0 {
		text += "/" + fe.Protocol.String()
	}
	if fe.Scope != model.ScopeAll {
		text += " " + fe.Scope.String()
	}
	if fe.Type != "" {
		text += " " + fe.Type
	}
	if fe.Service != (model.Name{}) {
		text += " " + fe.Service.String()
	}
	if len(fe.Flags) > 0 {
		text += " (" + strings.Join(fe.Flags, ", ") + ")"
	}
	return text + " -> " + addresses(fe.Backends, fe.More)
}

func addresses(all []adapter.Backend, more int) string {
	if len(all)+more == 0 {
		return "no backends"
	}
	var texts []string
	for _, b := range all {
		text := b.Address.String()
		switch b.State {
		case adapter.Terminating:
			text += " (terminating)"
		case adapter.Unusable:
			text += " (unusable)"
		case adapter.Retained:
			text += " (retained)"
		case adapter.Draining:
			text += " (draining)"
		}
		texts = append(texts, text)
	}
	out := listed(texts)
	if more > 0 {
		out += fmt.Sprintf(" and %d more", more)
	}
	return out
}

// texts are where the lines of records begin, for those that were asked for.
type texts map[*evidence.Record][]int

// line is a line of a record, from 1; "" if it has none of that number.
func (p *Parting) line(r *evidence.Record, number int) string {
	all := facts.Derived(p.Sample, func(*facts.Sample) texts { return texts{} })
	begins, known := all[r]
	if !known {
		begins = []int{0}
		for i, c := range r.Content {
			if c == '\n' {
				begins = append(begins, i+1)
			}
		}
		all[r] = begins
	}
	if number > len(begins) {
		return ""
	}
	line, _, _ := bytes.Cut(r.Content[begins[number-1]:], []byte{'\n'})
	return strings.TrimRight(string(line), " \t\r")
}

// readable says that a line tells a person something: JSON has lines that are a
// bracket, or all that there is.
func readable(line string) bool {
	trimmed := strings.TrimLeft(line, " \t")
	return trimmed != "" && len(line) <= wideLine && !strings.HasPrefix(trimmed, "{") && !strings.HasPrefix(trimmed, "[{") && trimmed != "["
}

// fromAPI are the slices of the Service, or that there is no such Service.
func (p *Parting) fromAPI() []doctor.Evidence {
	objects := p.Sample.Objects
	if p.Kind == compare.Extra {
		list := objects.List("services")
		if list == nil {
			return nil
		}
		return []doctor.Evidence{doctor.Excerpt(list, "(no Service has "+listed(p.Places())+")")}
	}
	var out []doctor.Evidence
	owned := facts.Derived(p.Sample, slicesOf)
	for _, name := range p.Services()[:min(len(p.Services()), fewSlices)] {
		own := owned[name]
		for _, slice := range own[:min(len(own), fewSlices)] {
			if r := objects.Record(slice); r != nil {
				out = doctor.Join(out, doctor.Excerpt(r, sliceRow(slice)))
			}
		}
	}
	return out
}

// ownSlices are the slices of each Service.
type ownSlices map[model.Name][]*discoveryv1.EndpointSlice

func slicesOf(s *facts.Sample) ownSlices {
	out := ownSlices{}
	for _, slice := range s.Objects.EndpointSlices {
		name := model.Name{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
		out[name] = append(out[name], slice)
	}
	return out
}

// sliceRow is a slice as kubectl prints it, with its conditions.
func sliceRow(s *discoveryv1.EndpointSlice) string {
	var ports, endpoints []string
	for _, p := range s.Ports {
		if p.Port != nil {
			ports = append(ports, fmt.Sprint(*p.Port))
		}
	}
	for _, e := range s.Endpoints {
		text := strings.Join(e.Addresses, ",")
		if e.Conditions.Terminating != nil && *e.Conditions.Terminating {
			text += " (terminating)"
		} else if e.Conditions.Ready != nil && !*e.Conditions.Ready {
			text += " (not ready)"
		}
		endpoints = append(endpoints, text)
	}
	row := func(all []string) string {
		if len(all) == 0 {
			return "<unset>"
		}
		return listed(all)
	}
	return fmt.Sprintf("%s/%s   %s   %s   %s", s.Namespace, s.Name, s.AddressType, row(ports), row(endpoints))
}
