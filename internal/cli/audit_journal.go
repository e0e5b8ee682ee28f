// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fairlead-io/fairlead/internal/audit"
	"github.com/fairlead-io/fairlead/internal/correlation"
	"github.com/fairlead-io/fairlead/internal/journal"
)

// clockTrouble is from when on a clock that differs is worth a word.
const clockTrouble = time.Second

// auditJournal joins logs with a journal.
func (e *env) auditJournal(ctx context.Context, f *auditFlags, path string, filter journal.Filter) error {
	rules, err := readRules(f.policy)
	if err != nil {
		return err
	}
	j, err := journal.Open(path)
	if err != nil {
		return err
	}
	defer j.Close()
	read := atomic.Int64{}
	o := correlation.Options{
		Journal: j, Logs: f.files, Silence: f.gap,
		Scope: correlation.Scope{Kinds: filter.Kinds, Namespaces: filter.Namespaces, Names: filter.Names, Since: filter.Since, Until: filter.Until},
		Record: func(r audit.Record) {
			rules.add(r)
			read.Add(1)
		},
	}
	if f.policy != "" {
		o.Policy = &rules.policy
	}
	done := func() {}
	if f.changes {
		o.Change, err = e.changePrinter(f.output)
	} else {
		done = e.whileBusy(func() string { return fmt.Sprintf("%d records of the logs are joined with the journal", read.Load()) })
	}
	if err != nil {
		return err
	}
	report, err := correlation.Run(ctx, o)
	done()
	if errors.Is(err, correlation.ErrNoRecords) {
		return noRecords(report.Losses)
	}
	if err != nil && !errors.Is(err, journal.ErrTorn) {
		return err
	}
	if err == nil && report.Changes == 0 {
		if err := e.warnOfNo(ctx, j, "changes"); err != nil {
			return err
		}
	}
	return e.reportJoin(f, report, rules, err)
}

// reportJoin prints what was found, unless the changes themselves were asked
// for, and what else there is to know. A journal may be torn.
func (e *env) reportJoin(f *auditFlags, report *correlation.Report, rules *ruleCount, torn error) error {
	answer := newAuditAnswer(report.Summary, report.Losses, rules)
	answer.Journal = report
	if err := e.printJoin(f, answer); err != nil {
		return err
	}
	for _, c := range report.Clocks {
		if c.Behind().Abs() > clockTrouble {
			e.warn("%s", clockText(c))
		}
	}
	if torn != nil {
		e.warn("%s", torn)
	}
	if f.changes || f.writers || f.storms {
		e.warn("%s", joinSummary(report))
	}
	if err := e.reportLosses(report.Losses); err != nil {
		return err
	}
	if torn != nil || len(report.Missing) > 0 {
		return errFindings
	}
	return nil
}

func clockText(c correlation.Clock) string {
	apart, by := "behind", c.Behind()
	if by < 0 {
		apart, by = "ahead of", -by
	}
	source := fmt.Sprintf("by %s of an event and its record", plural(c.Pairs, "pair"))
	if c.Pairs == 0 {
		source = "as far as the times in managedFields tell"
	}
	return fmt.Sprintf("the clock of %s is %s %s the recorder's, %s", c.Server, by.Round(10*time.Millisecond), apart, source)
}

func (e *env) printJoin(f *auditFlags, answer auditAnswer) error {
	report := answer.Journal
	switch {
	case f.changes:
		return nil
	case f.output.data():
		return e.printData(f.output, answer)
	case f.writers:
		return e.printTable(f.output, joinedWritersTable(report.Writers))
	case f.storms:
		return e.printTable(f.output, joinedStormsTable(report.Storms))
	}
	tables := coverTables(answer)
	if t := missingTable(report.Missing); len(t.rows) > 0 {
		tables = append(tables, t)
	}
	if t := unseenTable(report.Unseen); len(t.rows) > 0 {
		tables = append(tables, t)
	}
	if err := e.printTables(f.output, tables); err != nil {
		return err
	}
	return e.print("\n" + joinSummary(report) + "\n")
}

// joinSummary counts all that was found.
func joinSummary(r *correlation.Report) string {
	missing := r.Changes - r.Explained
	text := fmt.Sprintf("%s: %d with their record, %d of these by version, %d without", plural(r.Changes, "change"), r.Explained, r.Exact, missing)
	if r.MissingOmitted > 0 {
		text += fmt.Sprintf(" (%d of them left out here)", r.MissingOmitted)
	}
	text += fmt.Sprintf("; %s without an event", plural(len(r.Unseen)+r.UnseenOmitted, "record"))
	if r.UnseenOmitted > 0 {
		text += fmt.Sprintf(" (%d of them left out here)", r.UnseenOmitted)
	}
	expected := 0
	for _, n := range r.Expected {
		expected += n
	}
	other := 0
	for _, n := range r.NotRecorded {
		other += n
	}
	return text + fmt.Sprintf(", %d that need none, %d of resources that the journal has not", expected, other)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// changePrinter returns what prints one change.
func (e *env) changePrinter(output *format) (func(correlation.Change) error, error) {
	last := "CHANGED"
	if output.wide() {
		last = "DIFF"
	}
	lines := &table{
		columns: slices.Concat(columns("TIME", "KIND", "OBJECT", "TYPE", "MANAGER", "USER", "VERB", "FROM", "LOG", "FIT", "DELAY"), wideColumns("CLIENT"), columns(last)),
		widths:  []int{len("2006-01-02T15:04:05.000Z"), len("EndpointSlice"), 28, len("modified"), 16, 16, len("update"), len("192.0.2.111"), 28, len("version"), len("100ms"), 0},
	}
	if output.wide() {
		lines.widths = slices.Insert(lines.widths, len(lines.widths)-1, 24)
	}
	return streamPrinter(e, output, lines, func(c correlation.Change) []string { return changeCells(c, output.wide()) })
}
