// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fairlead-io/fairlead/internal/audit"
	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
	"github.com/fairlead-io/fairlead/internal/replay"
	"github.com/fairlead-io/fairlead/internal/timeline"
)

// gathered is what a timeline shows, and what was wrong with where it came from.
type gathered struct {
	data     timeline.Data
	problems []reflector.Problem
	lost     bool // a part of the journal
	sources  []string
	losses   audit.Losses
	filter   journal.Filter
	doing    atomic.Pointer[string] // for people who wait
}

// gather reads a journal: its events and gaps, and what a replay makes of them.
func (f *timelineFlags) gather(ctx context.Context, e *env, j *journal.Journal, now time.Time) (*gathered, error) {
	g := &gathered{filter: journal.Filter{Kinds: f.kinds}}
	var err error
	if g.filter.Since, g.filter.Until, err = readSpan(f.since, f.until, now); err != nil {
		return nil, err
	}
	g.data.Title = filepath.Base(f.journal)
	defer e.whileBusy(func() string { return *g.doing.Load() })()
	for _, step := range []struct {
		doing string
		do    func() error
	}{
		{"reading events", func() error { return g.readEvents(ctx, j) }},
		{"replaying the journal", func() error { return g.replay(ctx, e, j, f.objects) }},
		{"joining audit logs with the journal", func() error { return g.readAudit(ctx, j, f) }},
	} {
		g.doing.Store(&step.doing)
		if err := step.do(); err != nil {
			return nil, err
		}
	}
	g.data.Source = strings.Join(g.sources, ", ")
	slices.SortStableFunc(g.data.Findings, func(a, b timeline.Finding) int { return a.Time.Compare(b.Time) })
	return g, nil
}

// torn takes a torn journal for a problem, once, and tells whoever sees the page.
func (g *gathered) torn(err error) error {
	if !errors.Is(err, journal.ErrTorn) {
		return err
	}
	if !g.lost {
		g.lost = true
		g.problems = append(g.problems, reflector.Problem{Message: err.Error()})
		g.data.Notes = append(g.data.Notes, "A part of the journal is lost: what happened then is missing here.")
	}
	return nil
}

func (g *gathered) readEvents(ctx context.Context, j *journal.Journal) error {
	for event, err := range j.Events(ctx, g.filter) {
		if err != nil {
			if err := g.torn(err); err != nil {
				return err
			}
			break
		}
		g.data.Events = append(g.data.Events, timeline.Event{
			ID: event.ID, Time: event.Time.UTC(), Kind: event.Kind.Kind, Namespace: event.Namespace, Name: event.Name,
			Type: string(event.Type), Manager: event.Manager, ResourceVersion: event.ResourceVersion, Diff: event.Diff,
		})
	}
	if err := g.readSpan(ctx, j); err != nil {
		return err
	}
	gaps, err := j.Gaps(ctx, g.filter)
	for _, gap := range gaps {
		g.data.Gaps = append(g.data.Gaps, timeline.Gap{Kind: gap.Kind.Kind, From: gap.Began.UTC(), To: gap.Ended.UTC(), Reason: gap.Reason})
	}
	return g.torn(err)
}

func (g *gathered) readSpan(ctx context.Context, j *journal.Journal) error {
	first, last, _, err := j.Extent(ctx)
	if err := g.torn(err); err != nil {
		return err
	}
	g.data.Span = timeline.Span{From: first.UTC(), To: last.UTC()}
	if !g.filter.Since.IsZero() {
		g.data.Span.From = g.filter.Since.UTC()
	}
	if !g.filter.Until.IsZero() {
		g.data.Span.To = g.filter.Until.UTC()
	}
	return nil
}

// replay adds what Services had, and which invariants did not hold. A journal
// that cannot tell that shows its events all the same.
func (g *gathered) replay(ctx context.Context, e *env, j *journal.Journal, o *objectFlags) error {
	lacks, err := g.lacks(ctx, j, o)
	if err != nil {
		return err
	}
	if lacks != "" {
		g.data.Notes = append(g.data.Notes, "Backends of Services are not shown: "+lacks)
		return nil
	}
	options, err := o.replayOptions(ctx, e, j)
	if err != nil {
		return err
	}
	s := series{}
	options.Observe = s.observe
	report, err := replay.Check(ctx, j, options, g.end())
	g.problems = append(g.problems, report.Problems...)
	if err := g.torn(err); err != nil {
		return fmt.Errorf("replay %s: %w", o.recorded.journal, err)
	}
	g.sources = append(g.sources, "backends as on Node "+options.Node.Name)
	g.data.Services = s.services(g.filter.Since)
	for _, finding := range report.Findings {
		g.find(finding)
	}
	return nil
}

// lacks says what a replay would need, and the journal does not have.
func (g *gathered) lacks(ctx context.Context, j *journal.Journal, o *objectFlags) (string, error) {
	kinds, err := j.Kinds(ctx)
	if err := g.torn(err); err != nil {
		return "", err
	}
	if !slices.ContainsFunc(kinds, func(k journal.Kind) bool { return k.Resource == "services" || k.Resource == "endpointslices" }) {
		return "the journal has no Services and no EndpointSlices.", nil
	}
	nodes, err := replay.Nodes(ctx, j)
	if o.nodeName == "" && len(nodes) == 0 {
		return "they depend on the node, and the journal has none. --node-name names one.", g.torn(err)
	}
	return "", g.torn(err)
}

// end is the last moment that is shown.
func (g *gathered) end() replay.Moment {
	if g.filter.Until.IsZero() {
		return replay.Moment{}
	}
	return replay.Moment{Time: g.filter.Until.Add(-1)}
}

// find takes a finding that was so in the time that is shown.
func (g *gathered) find(f replay.Finding) {
	if over := f.Cleared; !over.IsZero() && !over.After(g.filter.Since) {
		return
	}
	severity := timeline.Warning
	if f.Invariant == replay.APIServerEmpty || f.Invariant == replay.BackendsLost {
		severity = timeline.Alarm
	}
	out := timeline.Finding{Time: f.Time.UTC(), Severity: severity, Invariant: f.Invariant, Text: f.Text, Detail: f.Detail, Event: f.Event, Service: f.Service}
	if !f.Cleared.IsZero() {
		out.Cleared = f.Cleared.UTC()
	}
	g.data.Findings = append(g.data.Findings, out)
}

// series collects what Services had while a journal is replayed.
type series map[model.Name][]timeline.Point

func (s series) observe(step replay.Step) {
	for i := range step.Changes {
		change := &step.Changes[i]
		count := replay.CountBackends(change.After)
		s.add(change.Service, timeline.Point{Time: step.Time.UTC(), Gone: change.After == nil, Backends: count.Own, Retained: count.Retained})
	}
}

// add takes a point that differs from the one before.
func (s series) add(name model.Name, p timeline.Point) {
	points := s[name]
	if n := len(points); n > 0 {
		last := points[n-1]
		if last.Gone == p.Gone && last.Backends == p.Backends && last.Retained == p.Retained {
			return
		}
		if last.Time.Equal(p.Time) {
			points = points[:n-1]
		}
	}
	s[name] = append(points, p)
}

// services are those that there were from a moment on, by name.
func (s series) services(since time.Time) []timeline.Service {
	var out []timeline.Service
	for name, points := range s {
		points = from(points, since)
		if len(points) == 1 && points[0].Gone {
			continue
		}
		out = append(out, timeline.Service{Name: name.String(), Series: points})
	}
	slices.SortFunc(out, func(a, b timeline.Service) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// from cuts off what was before a moment, but for what was in force then, and,
// where that was nothing, what there had been.
func from(points []timeline.Point, since time.Time) []timeline.Point {
	first := 0
	for first+1 < len(points) && !points[first+1].Time.After(since) {
		first++
	}
	for first > 0 && points[first].Backends == 0 && !points[first].Gone {
		first--
	}
	return points[first:]
}
