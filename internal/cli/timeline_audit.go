// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/audit"
	"github.com/fairlead-io/fairlead/internal/correlation"
	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/timeline"
)

// withoutRecord is the invariant of a change that no audit log has.
const withoutRecord = "no-audit-record"

// readAudit adds what audit logs note: a mark for each write, and a finding for
// changes that none of them explains.
func (g *gathered) readAudit(ctx context.Context, j *journal.Journal, f *timelineFlags) error {
	if len(f.logs) == 0 {
		return nil
	}
	m := marks{places: map[line]int{}}
	o := correlation.Options{
		Journal: j, Logs: f.logs, Silence: time.Minute, Scope: correlation.Scope{Kinds: f.kinds, Since: g.filter.Since, Until: g.filter.Until},
		Change: m.change, Record: m.record,
	}
	if f.policy != "" {
		policy, err := audit.ReadPolicy(f.policy)
		if err != nil {
			return err
		}
		o.Policy = &policy
	}
	report, err := correlation.Run(ctx, o)
	if errors.Is(err, correlation.ErrNoRecords) {
		return noRecords(report.Losses)
	}
	if err := g.torn(err); err != nil {
		return fmt.Errorf("join audit logs with journal %s: %w", f.journal, err)
	}
	g.losses = report.Losses
	g.data.Marks = m.shown(g.filter, report)
	g.sources = append(g.sources, plural(len(f.logs), "file")+" of audit logs")
	g.findMissing(report.Missing)
	if report.MissingOmitted > 0 {
		g.data.Notes = append(g.data.Notes, fmt.Sprintf("%d more changes have no audit record, of the kinds and writers of those that are shown.", report.MissingOmitted))
	}
	return nil
}

// line is where a record was read, which tells records apart.
type line struct {
	file   string
	number int
}

// marks collects the writes that logs note while they are joined.
type marks struct {
	list   []timeline.Mark
	places map[line]int
}

func (m *marks) record(r audit.Record) {
	if r.Writes() && r.Done() {
		m.add(line{r.File, r.Line}, r.Time, r.User, r.Impersonated, r.Verb, r.Code, r.Resource.String(), r.Namespace, r.Name, r.Server)
	}
}

// change takes the event that a request brought about. Its record may be one of
// a request that had no end.
func (m *marks) change(c correlation.Change) error {
	r := c.Request
	at := line{r.File, r.Line}
	if _, known := m.places[at]; !known {
		m.add(at, r.Time, r.User, r.Impersonated, r.Verb, r.Code, r.Resource, r.Namespace, r.Name, r.Server)
	}
	m.list[m.places[at]].Event = c.Event.ID
	return nil
}

func (m *marks) add(at line, when time.Time, user, impersonated, verb string, code int, resource, namespace, name, server string) {
	if impersonated != "" {
		user += " as " + impersonated
	}
	if code >= 400 {
		verb += fmt.Sprintf(" (%d)", code)
	}
	if namespace != "" {
		name = namespace + "/" + name
	}
	m.places[at] = len(m.list)
	m.list = append(m.list, timeline.Mark{Time: when.UTC(), User: user, Verb: verb, What: strings.TrimSpace(resource + " " + name), Server: server})
}

// shown are the marks of the time and kinds that are asked for, by the clock of
// the recorder.
func (m *marks) shown(f journal.Filter, report *correlation.Report) []timeline.Mark {
	behind := map[string]time.Duration{}
	for _, c := range report.Clocks {
		behind[c.Server] = c.Behind()
	}
	unseen := map[int]bool{}
	for _, u := range report.Unseen {
		if place, known := m.places[line{u.Request.File, u.Request.Line}]; known {
			unseen[place] = true
		}
	}
	var out []timeline.Mark
	for i, mark := range m.list {
		mark.Time = mark.Time.Add(behind[mark.Server])
		outside := mark.Time.Before(f.Since) || !f.Until.IsZero() && !mark.Time.Before(f.Until)
		if outside || len(f.Kinds) > 0 && mark.Event == 0 && !unseen[i] {
			continue
		}
		out = append(out, mark)
	}
	slices.SortStableFunc(out, func(a, b timeline.Mark) int { return a.Time.Compare(b.Time) })
	return out
}

// findMissing makes a finding of changes without a record: of one kind by one
// writer for one reason. That the logs note nothing of the kind is none.
func (g *gathered) findMissing(missing []correlation.Missing) {
	type group struct {
		kind, manager string
		code          correlation.Code
	}
	groups := map[group][]correlation.Missing{}
	var order []group
	unnoted := 0
	for _, m := range missing {
		switch m.Reason.Code {
		case correlation.ReasonPolicy, correlation.ReasonUnlogged, correlation.ReasonExpired, correlation.ReasonGap:
			unnoted++
			continue
		}
		key := group{m.Event.Kind.Kind, m.Event.Manager, m.Reason.Code}
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], m)
	}
	for _, key := range order {
		g.data.Findings = append(g.data.Findings, missingFinding(groups[key]))
	}
	if unnoted > 0 {
		g.sources = append(g.sources, "which note nothing of "+plural(unnoted, "change"))
	}
}

func missingFinding(missing []correlation.Missing) timeline.Finding {
	first := missing[0]
	e := first.Event
	text := fmt.Sprintf("No audit log has a record of how %s was %s", objectText(e), e.Type)
	if e.Manager != "" {
		text += " by " + e.Manager
	}
	if more := len(missing) - 1; more > 0 {
		text += fmt.Sprintf(", nor of %s of such objects", plural(more, "more change"))
	}
	detail := strings.Join(append([]string{first.Reason.Text}, first.Reason.Evidence...), "; ")
	return timeline.Finding{Time: e.Time.UTC(), Severity: timeline.Warning, Invariant: withoutRecord, Text: text, Detail: detail, Event: e.ID}
}

func objectText(e journal.Event) string {
	if e.Namespace == "" {
		return e.Kind.Kind + " " + e.Name
	}
	return e.Kind.Kind + " " + e.Namespace + "/" + e.Name
}
