// SPDX-License-Identifier: Apache-2.0

// Package compare finds where another proxy did not serve what the journal says
// that it should have: it follows a replay, and when the moment of a dump has
// come it holds the dump against the rows.
//
// A proxy needs time, so only what was wrong by every state of the last moments
// is a difference. Nothing here reads a journal, a file or a clock, and nothing
// decides about Services: rows say what should be.
package compare

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead-io/fairlead/internal/adapter"
	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/replay"
	"github.com/fairlead-io/fairlead/internal/tables"
)

// Moment is a dump that is read when its time has come.
type Moment struct {
	Time time.Time
	// Place says where the dump stands, for people: "FILE:LINE".
	Place string
	Read  func() adapter.Dump
}

// Options say what is compared, and how strictly.
type Options struct {
	Moments []Moment
	// Lag is how long a proxy may take to follow.
	Lag time.Duration
	// Gaps are times in which the journal does not know what should be; nor does
	// it after End.
	Gaps []journal.Gap
	End  time.Time
}

// Comparison follows a replay. Its Step is what the engine's Observe calls.
type Comparison struct {
	lag     time.Duration
	gaps    []journal.Gap
	end     time.Time
	moments []Moment // still to come, by time

	rows    map[model.Name]*tables.Service
	started bool      // the first rows are there
	index   *index    // of the rows; nil: they changed since
	earlier []version // rows that others replaced within the lag
	past    past      // what led to the rows

	source   map[string]time.Time // of which the last dump is from when
	open     map[subject]int      // findings that hold, by their index
	findings []replay.Finding
	warnings []string
	compared int
	skipped  skipped
}

// skipped counts dumps with which nothing could be compared.
type skipped struct{ before, after, unwatched int }

// version is a row as it was until a moment; nil: there was none.
type version struct {
	until time.Time
	name  model.Name
	row   *tables.Service
}

// subject is what a finding is about.
type subject struct {
	source  string
	service model.Name
	kind    Kind
}

// New returns a comparison that has seen nothing yet.
func New(o Options) *Comparison {
	moments := slices.Clone(o.Moments)
	slices.SortStableFunc(moments, func(a, b Moment) int { return a.Time.Compare(b.Time) })
	return &Comparison{
		lag: o.Lag, gaps: o.Gaps, end: o.End, moments: moments,
		rows: map[model.Name]*tables.Service{}, past: newPast(),
		source: map[string]time.Time{}, open: map[subject]int{},
	}
}

// Step takes what an event did to the rows, after it has compared the dumps
// that are older.
func (c *Comparison) Step(s replay.Step) {
	for len(c.moments) > 0 && c.moments[0].Time.Before(s.Time) {
		c.next()
	}
	c.past.note(&s)
	for i := range s.Changes {
		change := &s.Changes[i]
		c.started, c.index = true, nil
		c.earlier = append(c.earlier, version{s.Time, change.Service, change.Before})
		if change.After == nil {
			delete(c.rows, change.Service)
			continue
		}
		c.rows[change.Service] = change.After
	}
	c.forget(s.Time)
}

// forget drops rows that no dump from now on could still be about.
func (c *Comparison) forget(now time.Time) {
	keep := slices.IndexFunc(c.earlier, func(v version) bool { return !v.until.Before(now.Add(-c.lag)) })
	if keep < 0 {
		keep = len(c.earlier)
	}
	// The rest stays where it is: many may change within the lag.
	clear(c.earlier[:keep])
	c.earlier = c.earlier[keep:]
}

// Finish compares the dumps that are left, and returns what was found in the
// order of its time.
func (c *Comparison) Finish() []replay.Finding {
	for len(c.moments) > 0 {
		c.next()
	}
	slices.SortStableFunc(c.findings, func(a, b replay.Finding) int { return a.Time.Compare(b.Time) })
	return c.findings
}

// Compared is how many dumps were compared.
func (c *Comparison) Compared() int { return c.compared }

// Warnings say what could not be compared, or read.
func (c *Comparison) Warnings() []string {
	warnings := slices.Clone(c.warnings)
	for _, s := range []struct {
		n   int
		why string
	}{
		{c.skipped.before, "from before the journal knows the Services"},
		{c.skipped.after, "from after the end of what was replayed"},
		{c.skipped.unwatched, "from a time that nobody watched Services or EndpointSlices"},
	} {
		if s.n > 0 {
			warnings = append(warnings, fmt.Sprintf("not compared: %d dumps, %s", s.n, s.why))
		}
	}
	return warnings
}

// next compares the next dump, if the journal knows its moment.
func (c *Comparison) next() {
	m := c.moments[0]
	c.moments = c.moments[1:]
	switch {
	case !c.started:
		c.skipped.before++
	case !c.end.IsZero() && m.Time.After(c.end):
		c.skipped.after++
	case slices.ContainsFunc(c.gaps, func(g journal.Gap) bool { return !m.Time.Before(g.Began) && !m.Time.After(g.Ended) }):
		c.skipped.unwatched++
	default:
		c.forget(m.Time)
		c.compare(m)
	}
}

func (c *Comparison) compare(m Moment) {
	d := m.Read()
	for _, p := range d.Problems {
		c.warn(fmt.Sprintf("%s, %s, line %d: %s", m.Place, d.Source, p.Line, p.Text))
	}
	if d.Silent != "" {
		c.warn(fmt.Sprintf("%s, %s: it tells nothing of Services: %s", m.Place, d.Source, d.Silent))
		return
	}
	c.compared++
	if c.index == nil {
		c.index = newIndex(c.rows)
	}
	expected := Expected{c.rows, c.index, newRecent(c.earlier), &c.past}
	source := sourceName(&d)
	differences, notes := expected.Differences(&d)
	for _, note := range notes {
		c.warn(note)
	}
	c.settle(source, m.Time, differences)
	c.source[source] = m.Time
}

// maxWarnings bounds what a broken recording says again and again.
const maxWarnings = 20

// warn notes a warning once.
func (c *Comparison) warn(text string) {
	if len(c.warnings) < maxWarnings && !slices.Contains(c.warnings, text) {
		c.warnings = append(c.warnings, text)
	}
}

// sourceName tells dumps apart of which one follows on the other.
func sourceName(d *adapter.Dump) string {
	if len(d.Families) == 1 {
		return fmt.Sprintf("%s (%s)", d.Source, d.Families[0])
	}
	return d.Source
}

// settle opens a finding for what is wrong now and was not in the dump of the
// source before, and clears those that are wrong no more.
func (c *Comparison) settle(source string, at time.Time, differences []Difference) {
	now := map[subject][]Difference{}
	for _, d := range differences {
		key := subject{source, d.Service, d.Kind}
		now[key] = append(now[key], d)
	}
	for key, i := range c.open {
		if key.source == source && now[key] == nil {
			c.findings[i].Cleared = at.UTC()
			delete(c.open, key)
		}
	}
	keys := make([]subject, 0, len(now))
	for key := range now {
		if _, open := c.open[key]; !open {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b subject) int { return cmp.Or(a.service.Compare(b.service), cmp.Compare(a.kind, b.kind)) })
	for _, key := range keys {
		c.open[key] = len(c.findings)
		c.findings = append(c.findings, c.finding(key, at, now[key]))
	}
}
