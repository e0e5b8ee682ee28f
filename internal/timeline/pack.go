// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"time"
)

// packed is what the page reads: columns instead of rows, and each text once.
// Times are microseconds since Base, in columns since the time before.
type packed struct {
	Title    string          `json:"title"`
	Source   string          `json:"source"`
	Notes    []string        `json:"notes"`
	Base     int64           `json:"base"` // milliseconds since 1970
	From     int64           `json:"from"`
	To       int64           `json:"to"`
	Texts    []string        `json:"texts"`
	Objects  packedObjects   `json:"objects"`
	Events   packedEvents    `json:"events"`
	Marks    packedMarks     `json:"marks"`
	Services []packedService `json:"services"`
	Gaps     []packedGap     `json:"gaps"`
	Findings []packedFinding `json:"findings"`
}

// Columns of numbers are places in Texts, but for times and IDs; those of
// objects are places in the columns of Objects.
type (
	packedObjects struct {
		Kind      []int `json:"kind"`
		Namespace []int `json:"namespace"`
		Name      []int `json:"name"`
	}
	packedEvents struct {
		ID      []int64  `json:"id"`
		Time    []int64  `json:"time"`
		Object  []int    `json:"object"`
		Type    []int    `json:"type"`
		Manager []int    `json:"manager"`
		Version []string `json:"version"`
	}
	packedMarks struct {
		Time   []int64 `json:"time"`
		User   []int   `json:"user"`
		Verb   []int   `json:"verb"`
		What   []int   `json:"what"`
		Server []int   `json:"server"`
		Event  []int64 `json:"event"`
	}
	packedService struct {
		Name     string  `json:"name"`
		Time     []int64 `json:"time"`
		Backends []int   `json:"backends"` // -1 is that there was no such Service
		Retained []int   `json:"retained"`
	}
	packedGap struct {
		Kind   string `json:"kind"`
		From   int64  `json:"from"`
		To     int64  `json:"to"`
		Reason string `json:"reason"`
	}
	packedFinding struct {
		From      int64    `json:"from"`
		To        *int64   `json:"to"`
		Severity  Severity `json:"severity"`
		Invariant string   `json:"invariant"`
		Text      string   `json:"text"`
		Detail    string   `json:"detail"`
		Event     int64    `json:"event"`
		Service   string   `json:"service"`
	}
)

// packer gives texts and objects their places.
type packer struct {
	out     packed
	base    time.Time
	texts   map[string]int
	objects map[[3]string]int
}

// pack packs the data, whose events are in the order of their times.
func pack(d Data) packed {
	span := extent(d)
	base := span.From.Truncate(time.Millisecond)
	p := packer{base: base, texts: map[string]int{}, objects: map[[3]string]int{}}
	p.out = packed{Title: d.Title, Source: d.Source, Notes: list(d.Notes), Base: base.UnixMilli(), From: p.since(span.From), To: p.since(span.To)}
	p.out.Texts = []string{}
	p.events(d.Events)
	p.marks(d.Marks)
	p.services(d.Services)
	p.gaps(d.Gaps)
	p.findings(d.Findings)
	return p.out
}

func (p *packer) since(t time.Time) int64 { return t.Sub(p.base).Microseconds() }

func (p *packer) text(s string) int {
	place, known := p.texts[s]
	if !known {
		place = len(p.out.Texts)
		p.texts[s] = place
		p.out.Texts = append(p.out.Texts, s)
	}
	return place
}

func (p *packer) object(kind, namespace, name string) int {
	key := [3]string{kind, namespace, name}
	place, known := p.objects[key]
	if !known {
		place = len(p.objects)
		p.objects[key] = place
		o := &p.out.Objects
		o.Kind, o.Namespace, o.Name = append(o.Kind, p.text(kind)), append(o.Namespace, p.text(namespace)), append(o.Name, p.text(name))
	}
	return place
}

func (p *packer) events(events []Event) {
	out := packedEvents{ID: []int64{}, Time: []int64{}, Object: []int{}, Type: []int{}, Manager: []int{}, Version: []string{}}
	p.out.Objects = packedObjects{Kind: []int{}, Namespace: []int{}, Name: []int{}}
	before := int64(0)
	for _, e := range events {
		now := p.since(e.Time)
		out.ID = append(out.ID, e.ID)
		out.Time = append(out.Time, now-before)
		out.Object = append(out.Object, p.object(e.Kind, e.Namespace, e.Name))
		out.Type = append(out.Type, p.text(e.Type))
		out.Manager = append(out.Manager, p.text(e.Manager))
		out.Version = append(out.Version, e.ResourceVersion)
		before = now
	}
	p.out.Events = out
}

func (p *packer) marks(marks []Mark) {
	out := packedMarks{Time: []int64{}, User: []int{}, Verb: []int{}, What: []int{}, Server: []int{}, Event: []int64{}}
	before := int64(0)
	for _, m := range sorted(marks, func(m Mark) time.Time { return m.Time }) {
		now := p.since(m.Time)
		out.Time = append(out.Time, now-before)
		out.User = append(out.User, p.text(m.User))
		out.Verb = append(out.Verb, p.text(m.Verb))
		out.What = append(out.What, p.text(m.What))
		out.Server = append(out.Server, p.text(m.Server))
		out.Event = append(out.Event, m.Event)
		before = now
	}
	p.out.Marks = out
}

func (p *packer) services(services []Service) {
	p.out.Services = make([]packedService, len(services))
	for i, s := range services {
		out := packedService{Name: s.Name, Time: []int64{}, Backends: []int{}, Retained: []int{}}
		before := int64(0)
		for _, point := range sorted(s.Series, func(p Point) time.Time { return p.Time }) {
			now, backends := p.since(point.Time), point.Backends
			if point.Gone {
				backends = -1
			}
			out.Time = append(out.Time, now-before)
			out.Backends = append(out.Backends, backends)
			out.Retained = append(out.Retained, point.Retained)
			before = now
		}
		p.out.Services[i] = out
	}
}

func (p *packer) gaps(gaps []Gap) {
	p.out.Gaps = make([]packedGap, len(gaps))
	for i, g := range sorted(gaps, func(g Gap) time.Time { return g.From }) {
		p.out.Gaps[i] = packedGap{Kind: g.Kind, From: p.since(g.From), To: p.since(g.To), Reason: g.Reason}
	}
}

func (p *packer) findings(findings []Finding) {
	p.out.Findings = make([]packedFinding, len(findings))
	for i, f := range sorted(findings, func(f Finding) time.Time { return f.Time }) {
		out := packedFinding{From: p.since(f.Time), Severity: f.Severity, Invariant: f.Invariant, Text: f.Text, Detail: f.Detail, Event: f.Event, Service: f.Service}
		if !f.Cleared.IsZero() {
			cleared := p.since(f.Cleared)
			out.To = &cleared
		}
		p.out.Findings[i] = out
	}
}

// sorted is a copy in the order of time. What happened at once keeps its order.
func sorted[T any](values []T, at func(T) time.Time) []T {
	values = slices.Clone(values)
	slices.SortStableFunc(values, func(a, b T) int { return at(a).Compare(at(b)) })
	return values
}

// extent is the span with everything that happened beyond it. What lasts counts
// only where there is no span.
func extent(d Data) Span {
	span, asked := d.Span, !d.Span.From.IsZero()
	cover := func(t time.Time) {
		if t.IsZero() {
			return
		}
		if span.From.IsZero() || t.Before(span.From) {
			span.From = t
		}
		if t.After(span.To) {
			span.To = t
		}
	}
	cover(span.From)
	for _, e := range d.Events {
		cover(e.Time)
	}
	for _, m := range d.Marks {
		cover(m.Time)
	}
	if asked {
		return span
	}
	for _, s := range d.Services {
		for _, p := range s.Series {
			cover(p.Time)
		}
	}
	for _, g := range d.Gaps {
		cover(g.From)
		cover(g.To)
	}
	for _, f := range d.Findings {
		cover(f.Time)
		cover(f.Cleared)
	}
	return span
}

// diffLines returns a line of JSON per event: its diff, or, where all of them
// would take more than room, the number of bytes of one that was left out. The
// largest go first, but for those that findings name.
func diffLines(events []Event, findings []Finding, room int) [][]byte {
	named := map[int64]bool{}
	for _, f := range findings {
		named[f.Event] = true
	}
	lines := make([][]byte, len(events))
	bySize := make([]int, len(events))
	for i, e := range events {
		lines[i], bySize[i] = diffLine(e), i
	}
	slices.SortStableFunc(bySize, func(a, b int) int {
		if named[events[a].ID] != named[events[b].ID] {
			return cmp.Compare(rank(named[events[a].ID]), rank(named[events[b].ID]))
		}
		return cmp.Compare(len(lines[a]), len(lines[b]))
	})
	for _, i := range bySize {
		if room -= len(lines[i]); room < 0 && !named[events[i].ID] {
			lines[i], _ = json.Marshal(len(lines[i]))
		}
	}
	return lines
}

// rank puts what is named first.
func rank(named bool) int {
	if named {
		return 0
	}
	return 1
}

// diffLine is a diff in the shortest form: steps of path, op, old, new. A value
// that is no JSON, as of a journal that was damaged, is shown as the text it is.
func diffLine(e Event) []byte {
	type step struct {
		Path string          `json:"p"`
		Op   string          `json:"o"`
		Old  json.RawMessage `json:"a,omitempty"`
		New  json.RawMessage `json:"b,omitempty"`
	}
	steps := make([]step, len(e.Diff))
	for i, c := range e.Diff {
		steps[i] = step{Path: c.Path, Op: c.Op, Old: valid(c.Old), New: valid(c.New)}
	}
	// Every value is valid, so this cannot fail.
	line, _ := json.Marshal(steps)
	return line
}

func valid(value json.RawMessage) json.RawMessage {
	value = bytes.ToValidUTF8(value, []byte("\uFFFD"))
	if len(value) == 0 || json.Valid(value) {
		return value
	}
	text, _ := json.Marshal(string(value))
	return text
}
