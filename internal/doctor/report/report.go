// SPDX-License-Identifier: Apache-2.0

// Package report shows what a doctor found: to a person on a terminal or on a
// page, and to programs.
//
// It judges nothing and knows no check. Whatever it shows may come from a
// stranger's bundle, so all of it passes one door, New: beyond that nothing is
// secret, and lists are never null.
package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/printable"
	"github.com/fairlead-io/fairlead/internal/redact"
)

// Report is what every format shows, and the shape of its JSON.
type Report struct {
	SchemaVersion int      `json:"schemaVersion"`
	Compared      Compared `json:"compared"`
	Samples       []Sample `json:"samples"`
	Nodes         []string `json:"nodes"`
	Checks        []string `json:"checks"`
	// Causes are the roots, the one that explains most of the worst first.
	Causes []*Finding `json:"causes"`
	// Notes do not count as findings.
	Notes  []*Finding `json:"notes"`
	Unread []Unread   `json:"unread"`
}

// Compared is what there was to compare.
type Compared struct {
	Services int      `json:"services"`
	Layers   []string `json:"layers"`
}

// Sample is when the layers were read once; zero: nothing told.
type Sample struct {
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to,omitzero"`
}

// Finding is one finding with what follows from it.
type Finding struct {
	// Number is its place in the tree: 1, 1.1, 1.1.1, 1.2, 2.
	Number string `json:"number"`
	doctor.Finding
	// Also are the other causes it has, as CHECK SUBJECT.
	Also         []string   `json:"also"`
	Consequences []*Finding `json:"consequences"`
}

// Unread is an output that tells less than it should.
type Unread struct {
	Node    string `json:"node,omitempty"`
	Command string `json:"command,omitempty"`
	Path    string `json:"path,omitempty"`
	Why     string `json:"why"`
}

// New makes a report safe to show, and numbers its findings.
func New(from doctor.Report) Report {
	r := Report{
		SchemaVersion: api.SchemaVersion,
		Compared:      Compared{Services: from.Scope.Services, Layers: each(from.Scope.Layers, name)},
		Samples:       []Sample{},
		Nodes:         names(from.Nodes),
		Checks:        each(from.Checks, name),
		Causes:        findings("", from.Causes),
		Notes:         findings("note ", from.Notes),
		Unread:        []Unread{},
	}
	for _, s := range from.Samples {
		r.Samples = append(r.Samples, Sample{s.From.UTC(), s.To.UTC()})
	}
	for _, u := range from.Unread {
		r.Unread = append(r.Unread, Unread{name(u.Record.Node), name(u.Record.Command), name(u.Record.Path), words(u.Why)})
	}
	return r
}

func findings(prefix string, nodes []*doctor.Node) []*Finding {
	out := []*Finding{}
	for i, n := range nodes {
		out = append(out, finding(fmt.Sprint(prefix, i+1), n))
	}
	return out
}

func finding(number string, n *doctor.Node) *Finding {
	f := &Finding{Number: number, Finding: n.Finding, Also: each(n.Also, name), Consequences: findings(number+".", n.Consequences)}
	f.Subject, f.Title = name(f.Subject), words(f.Title)
	f.Nodes, f.Detail = names(f.Nodes), each(f.Detail, words)
	f.Breaks, f.RestsOn = nil, nil
	f.Evidence = []doctor.Evidence{}
	for _, e := range n.Evidence {
		f.Evidence = append(f.Evidence, doctor.Evidence{
			Node: name(e.Node), Command: command(e.Command), Time: e.Time.UTC(), Path: name(e.Path), Excerpt: excerpt(e.Excerpt),
		})
	}
	f.Remedy = []doctor.Remedy{}
	for _, do := range n.Remedy {
		f.Remedy = append(f.Remedy, doctor.Remedy{Text: words(do.Text), Commands: each(do.Commands, command)})
	}
	return f
}

// words are what may quote anything, with or without its ends of lines.
func words(text string) string   { return printable.Line(redact.Text(text)) }
func excerpt(text string) string { return strings.Join(printable.Lines(redact.Text(text)), "\n") }

// name and command are what may be named like a secret without being one.
func name(text string) string    { return printable.Line(redact.Tokens(text)) }
func command(text string) string { return strings.Join(printable.Lines(redact.Tokens(text)), "\n") }

// each is a list that is never null.
func each(texts []string, safe func(string) string) []string {
	out := []string{}
	for _, text := range texts {
		out = append(out, safe(text))
	}
	return out
}

// names leaves out what has none: a table of which nobody said whose it is.
func names(all []string) []string {
	return slices.DeleteFunc(each(all, name), func(name string) bool { return name == "" })
}

// Each goes through the findings as they are numbered, the notes last.
func (r *Report) Each(visit func(f *Finding)) {
	var walk func([]*Finding)
	walk = func(all []*Finding) {
		for _, f := range all {
			visit(f)
			walk(f.Consequences)
		}
	}
	walk(r.Causes)
	walk(r.Notes)
}

// Count returns how many findings are of a severity.
func (r *Report) Count(severity doctor.Severity) (n int) {
	r.Each(func(f *Finding) {
		if f.Severity == severity {
			n++
		}
	})
	return n
}

// Found says whether anything is wrong, or may become so.
func (r *Report) Found() bool { return r.Count(doctor.Warning)+r.Count(doctor.Critical) > 0 }

// headline says in one line what was found.
func (r *Report) headline() string {
	if !r.Found() {
		return "Nothing is wrong that " + count(len(r.Checks), "check") + " could see: " + r.basis() + "."
	}
	var parts []string
	for _, s := range []doctor.Severity{doctor.Critical, doctor.Warning} {
		if n := r.Count(s); n > 0 {
			parts = append(parts, fmt.Sprint(n, " ", s))
		}
	}
	looked := count(len(r.Checks), "check") + " looked"
	if r.Compared.Services == 0 {
		looked += ": " + r.basis()
	} else {
		looked += " at " + r.basis()
	}
	return fmt.Sprintf("%s of %s (%s). %s.",
		count(r.Count(doctor.Critical)+r.Count(doctor.Warning), "finding"), count(len(r.Causes), "cause"), strings.Join(parts, ", "), looked)
}

// basis is what was compared, so that silence can be trusted as far as it goes,
// and no further.
func (r *Report) basis() string {
	switch {
	case r.Compared.Services == 0:
		return "no Services of the API were read, so no data plane was compared with them"
	case len(r.Compared.Layers) < 2:
		return count(r.Compared.Services, "Service") + " in the API, and no table of any data plane to compare them with"
	}
	where := ""
	if len(r.Nodes) > 0 {
		where = " on " + count(len(r.Nodes), "node")
	}
	return fmt.Sprintf("%s%s in %s (%s)", count(r.Compared.Services, "Service"), where, count(len(r.Compared.Layers), "layer"), strings.Join(r.Compared.Layers, ", "))
}

// moments says when the layers were read.
func (r *Report) moments() string {
	first, last := slices.IndexFunc(r.Samples, timed), len(r.Samples)-1
	switch {
	case first < 0:
		return "Nothing tells when the layers were read."
	case first == last:
		return "One sample, of " + moment(r.Samples[first].From) + ": what lasts and what was on its way cannot be told apart."
	}
	apart := r.Samples[last].From.Sub(r.Samples[first].From).Round(time.Second)
	return fmt.Sprintf("%s, %s apart, from %s on.", count(len(r.Samples), "sample"), apart, moment(r.Samples[first].From))
}

func timed(s Sample) bool { return !s.From.IsZero() }

func moment(t time.Time) string { return t.Format("2006-01-02 15:04:05") + " UTC" }

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprint(n, " ", noun, "s")
}

// onNodes shortens a list of nodes to the first few, unless all of it is wanted.
func onNodes(nodes []string, all bool) string {
	const few = 3
	if len(nodes) == 0 {
		return ""
	}
	if all || len(nodes) <= few+1 {
		return "on " + strings.Join(nodes, ", ")
	}
	return fmt.Sprintf("on %s and %d more", strings.Join(nodes[:few], ", "), len(nodes)-few)
}

// place is where an output comes from.
func (u Unread) place() string {
	switch {
	case u.Command == "":
		return u.Path
	case u.Node == "":
		return u.Command
	}
	return u.Command + " on " + u.Node
}
