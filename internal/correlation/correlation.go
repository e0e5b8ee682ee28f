// SPDX-License-Identifier: Apache-2.0

package correlation

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/audit"
	"github.com/fairlead-io/fairlead/internal/journal"
)

var (
	// ErrNoEvents is a journal without an event.
	ErrNoEvents = errors.New("the journal has no events: there is nothing to join")
	// ErrNoRecords is logs without a record; Report.Losses says what was lost.
	ErrNoRecords = errors.New("the audit logs have no records")
	// ErrApart is a journal and logs of different times.
	ErrApart = errors.New("the audit logs and the journal have no time in common")
)

// join is one run.
type join struct {
	Options
	kinds   map[resource]journal.Kind
	desk    *desk
	report  *Report
	results results
	judge   *judge
	// asked is how often the journal was asked for the event of one record, and
	// owners are the records that events to come turned out to belong to.
	asked  int
	owners map[int64]*waiting
	// spaces says of which resources and namespaces the journal has objects.
	spaces map[object]bool
	last   journal.Event
	torn   error
	// endless is a torn journal that does not say what it covers.
	endless bool
}

// Run joins a journal and audit logs. With an error that is journal.ErrTorn the
// report holds what could be read.
func Run(ctx context.Context, o Options) (*Report, error) {
	var err error
	if o.Logs, err = audit.Files(o.Logs...); err != nil {
		return nil, err
	}
	j, err := prepare(ctx, o)
	if err != nil {
		return nil, err
	}
	log, err := audit.Open(ctx, o.Logs...)
	if err != nil {
		return nil, err
	}
	log.Shift(j.desk.clocks.shifts())
	if err := j.merge(ctx, log); err != nil {
		return nil, err
	}
	j.report.Losses = log.Losses()
	if err := j.finish(ctx); err != nil {
		return j.report, err
	}
	return j.report, j.torn
}

func prepare(ctx context.Context, o Options) (*join, error) {
	j := &join{
		Options: o, kinds: map[resource]journal.Kind{}, owners: map[int64]*waiting{}, spaces: map[object]bool{},
		report: &Report{
			Missing: []Missing{}, Unseen: []Unseen{}, Expected: map[Code]int{}, NotRecorded: map[string]int{},
			Summary: audit.NewSummary(o.Silence),
		},
		results: newResults(),
	}
	kinds, err := o.Journal.Kinds(ctx)
	if ignoreTorn(err) != nil {
		return nil, err
	}
	for _, k := range kinds {
		j.kinds[resource{k.Group, k.Resource}] = k
	}
	first, last, found, err := o.Journal.Extent(ctx)
	if ignoreTorn(err) != nil {
		return nil, err
	}
	if err == nil && !found {
		return nil, ErrNoEvents
	}
	if j.endless = err != nil; j.endless {
		last = time.Unix(1<<40, 0) // until the last event is known
	}
	j.report.From, j.report.To = first, last
	c, err := survey(ctx, o.Journal, o.Logs, j.kinds)
	if err != nil {
		return nil, err
	}
	j.desk = newDesk(c)
	gaps, err := o.Journal.Gaps(ctx, journal.Filter{})
	if ignoreTorn(err) != nil {
		return nil, err
	}
	j.judge = newJudge(j, gaps)
	return j, nil
}

// ignoreTorn is for what can do without the part of the journal that is lost:
// reading its events says so in the end.
func ignoreTorn(err error) error {
	if errors.Is(err, journal.ErrTorn) {
		return nil
	}
	return err
}

// merge takes events and records in the order of time.
func (j *join) merge(ctx context.Context, log *audit.Log) error {
	s := j.Scope
	filter := journal.Filter{Kinds: s.Kinds, Namespaces: s.Namespaces, Names: s.Names, Since: s.Since, Until: s.Until}
	nextEvent, stopEvents := iter.Pull2(j.Journal.Events(ctx, filter))
	defer stopEvents()
	nextRecord, stopRecords := iter.Pull2(log.Records(ctx))
	defer stopRecords()

	event, moreEvents, err := j.pullEvent(nextEvent)
	if err != nil {
		return err
	}
	record, err, moreRecords := nextRecord()
	for moreEvents || moreRecords {
		if err != nil {
			return err
		}
		if moreRecords && (!moreEvents || j.desk.clocks.at(record).Before(event.Time)) {
			if err := j.takeRecord(ctx, record); err != nil {
				return err
			}
			record, err, moreRecords = nextRecord()
			continue
		}
		if err := j.takeEvent(ctx, event); err != nil {
			return err
		}
		event, moreEvents, err = j.pullEvent(nextEvent)
	}
	return err
}

func (j *join) pullEvent(next func() (journal.Event, error, bool)) (journal.Event, bool, error) {
	e, err, ok := next()
	if errors.Is(err, journal.ErrTorn) {
		j.torn = err
		return e, false, nil
	}
	return e, ok && err == nil, err
}

func (j *join) takeEvent(ctx context.Context, e journal.Event) error {
	own := j.owners[e.ID]
	delete(j.owners, e.ID)
	j.desk.addEvent(e, own)
	if j.report.From.IsZero() {
		j.report.From = e.Time
	}
	j.last = e
	return j.settle(ctx, e.Time)
}

func (j *join) takeRecord(ctx context.Context, r audit.Record) error {
	j.report.Summary.Add(r)
	if j.Record != nil {
		j.Record(r)
	}
	if !r.Writes() {
		return nil
	}
	if r.Done() && r.Failed() && r.Code < 500 {
		j.desk.fail(r)
		return nil
	}
	kind, recorded := j.kinds[resourceOf(r)]
	if !recorded {
		if r.Done() && !r.Failed() && len(j.Scope.Kinds)+len(j.Scope.Names) == 0 {
			j.report.NotRecorded[r.Resource.String()]++
		}
		return nil
	}
	at := j.desk.clocks.at(r)
	if !j.Scope.has(kind, r, at) {
		return nil
	}
	j.judge.wrote(r)
	if why := j.expected(r, at); why != "" {
		j.expect(r, why)
		return nil
	}
	if j.desk.addRecord(&waiting{Record: r, at: at, manager: manager(r)}) {
		j.expect(r, ReasonUnchanged)
	}
	return j.settle(ctx, at)
}

// expected is why a write has no event, where that is plain from the record.
func (j *join) expected(r audit.Record, at time.Time) Code {
	switch {
	case dryRun(r):
		return ReasonDryRun
	case storesNothing(r):
		return ReasonStoresNothing
	case at.Before(j.report.From.Add(-window)) || at.After(j.report.To.Add(window)):
		return ReasonOutside
	}
	return ""
}

func (j *join) expect(r audit.Record, why Code) {
	if r.Done() && !r.Failed() {
		j.report.Expected[why]++
	}
}

// has says whether a record may be about an object of the scope. Records have
// some time more, for those that belong to its first and last events.
func (s Scope) has(k journal.Kind, r audit.Record, at time.Time) bool {
	names := []string{k.Kind, k.Resource, k.Resource + "." + k.Group}
	isKind := func(kind string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, kind) })
	}
	switch {
	case len(s.Kinds) > 0 && !slices.ContainsFunc(s.Kinds, isKind),
		len(s.Namespaces) > 0 && r.Namespace != "" && !slices.Contains(s.Namespaces, r.Namespace),
		len(s.Names) > 0 && r.Name != "" && !slices.Contains(s.Names, r.Name):
		return false
	}
	return (s.Since.IsZero() || !at.Before(s.Since.Add(-window))) && (s.Until.IsZero() || at.Before(s.Until.Add(window)))
}

// sure says whether the event of a record would be in the scope, too.
func (s Scope) sure(r audit.Record, at time.Time) bool {
	return (len(s.Names) == 0 || r.Name != "") &&
		(s.Since.IsZero() || at.After(s.Since.Add(near))) && (s.Until.IsZero() || at.Before(s.Until.Add(-near)))
}

// settle decides what has waited for long enough at a moment.
func (j *join) settle(ctx context.Context, now time.Time) error {
	for d := j.desk; d.entries.len() > 0; {
		en := d.entries.first()
		if d.entries.len() <= maxWaiting && now.Sub(en.event.Time) <= window {
			break
		}
		d.entries.pop()
		if err := j.settleEvent(en); err != nil {
			return err
		}
	}
	for d := j.desk; d.records.len() > 0; {
		w := d.records.first()
		if d.records.len() <= maxWaiting && now.Sub(w.at) <= window+near {
			break
		}
		d.records.pop()
		if err := j.settleRecord(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

func (j *join) settleEvent(en *entry) error {
	j.desk.decide(en)
	defer j.desk.forgetEvent(en)
	if en.event.Type == journal.Listed || en.event.Type == journal.Absent && en.record == nil {
		return nil // when it came to be so is unknown
	}
	j.report.Changes++
	if en.record == nil {
		j.results.miss(en.event, j.judge.hint(j.desk, en))
		return nil
	}
	j.report.Explained++
	if en.exact {
		j.report.Exact++
	}
	c := Change{
		Event: en.event, Request: requestOf(en.record.Record), Exact: en.exact,
		DelaySeconds: j.desk.clocks.delay(en.record.Record, en.event).Round(time.Microsecond).Seconds(),
	}
	j.results.write(en)
	j.judge.learn(en)
	if j.Change == nil {
		return nil
	}
	if err := j.Change(c); err != nil {
		return fmt.Errorf("pass on a change: %w", err)
	}
	return nil
}

// maxAsked bounds how often the journal is asked for the event of one record.
const maxAsked = 10_000

func (j *join) settleRecord(ctx context.Context, w *waiting) error {
	defer j.desk.forgetRecord(w)
	if w.used || !w.Done() || w.Failed() {
		return nil
	}
	if w.decided || w.ResourceVersion != "" && j.desk.is(objectOf(w.Record), w.ResourceVersion) {
		j.expect(w.Record, ReasonUnchanged)
		return nil
	}
	if w.ResourceVersion != "" && w.Name != "" && j.asked < maxAsked {
		j.asked++
		e, found, err := lookUp(ctx, j.Journal, j.kinds[resourceOf(w.Record)], w.Record)
		if err != nil {
			return err
		}
		if found && e.ID > j.last.ID {
			w.used = true
			j.owners[e.ID] = w
			return nil
		}
		if found {
			j.expect(w.Record, ReasonUnchanged)
			return nil
		}
	}
	return j.unsee(ctx, w)
}

// finish decides what is left, and says why.
func (j *join) finish(ctx context.Context) error {
	if j.endless {
		j.report.To = j.last.Time
	}
	if err := j.settle(ctx, time.Unix(1<<41, 0)); err != nil {
		return err
	}
	servers := j.report.Summary.Servers()
	if len(servers) == 0 {
		return ErrNoRecords
	}
	if err := j.overlap(servers); err != nil {
		return err
	}
	j.report.Clocks = j.desk.clocks.answer()
	j.report.Writers = j.results.sortedWriters()
	if j.torn != nil {
		j.results.blameTorn()
	}
	j.report.Unseen, j.report.UnseenOmitted = append(j.report.Unseen, j.results.unseen...), j.results.unseenOmitted
	if err := j.storms(ctx); err != nil {
		return err
	}
	return j.explain(ctx, servers)
}

// overlap is an error if nothing could have fit.
func (j *join) overlap(servers []audit.Server) error {
	var from, to time.Time
	for _, s := range servers {
		behind := j.desk.clocks.of(s.Name).behind
		if began := s.First.Add(behind); from.IsZero() || began.Before(from) {
			from = began
		}
		if ended := s.Last.Add(behind); ended.After(to) {
			to = ended
		}
	}
	if from.After(j.report.To.Add(window)) || to.Before(j.report.From.Add(-window)) {
		return fmt.Errorf("%w: the logs are of %s to %s, the journal of %s to %s",
			ErrApart, moment(from), moment(to), moment(j.report.From), moment(j.report.To))
	}
	return nil
}

// moment is a time as reasons and errors write it.
func moment(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func requestOf(r audit.Record) Request {
	return Request{
		Time: r.Time, Server: r.Server, User: r.User, Impersonated: r.Impersonated, UserAgent: r.UserAgent,
		SourceIPs: append([]string{}, r.SourceIPs...), Verb: r.Verb, Resource: r.Resource.String(),
		Namespace: r.Namespace, Name: r.Name, Code: r.Code, Level: r.Level, Stage: r.Stage,
		AuditID: r.AuditID, File: r.File, Line: r.Line,
	}
}
