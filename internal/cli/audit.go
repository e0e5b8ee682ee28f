// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/audit"
	"github.com/fairlead-io/fairlead/internal/correlation"
)

// topRequests is how many kinds of requests the table of a summary has. The
// JSON has all.
const topRequests = 20

// auditAnswer is the JSON of `audit`.
type auditAnswer struct {
	SchemaVersion int                 `json:"schemaVersion"`
	Servers       []audit.Server      `json:"servers"`
	Stages        map[audit.Stage]int `json:"stages"`
	Levels        map[audit.Level]int `json:"levels"`
	Losses        audit.Losses        `json:"losses"`
	Requests      []audit.Count       `json:"requests"`
	Writers       []audit.Count       `json:"writers"`
	Storms        []audit.Storm       `json:"storms"`
	Rules         []ruleRow           `json:"rules,omitempty"`
	// Journal is what a join with a journal found.
	Journal *correlation.Report `json:"journal,omitempty"`
}

// ruleRow is what a log holds of one rule of a policy. Rule 0 is that no rule
// matches.
type ruleRow struct {
	Rule    int         `json:"rule"`
	Level   audit.Level `json:"level"`
	Records int         `json:"records"`
	// Unlike are the records that a server with this policy would not have
	// written, or at another level.
	Unlike int `json:"unlike"`
}

// auditFlags are the flags of audit as they were given.
type auditFlags struct {
	files           []string
	policy          string
	writers, storms bool
	changes         bool
	gap             time.Duration
	// scope is the journal, and which of its objects and when.
	scope  eventFlags
	output *format
}

func newAudit(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit --audit-log FILE... [--journal FILE [[NAMESPACE/]NAME...]]",
		Short: "Show who wrote what by API servers' audit logs, and what these cover",
		Long: `Read audit logs of API servers: JSON lines as the servers write them, compressed or
not, rotated sets, logs of several servers, and what EKS, GKE, AKS, Alibaba's and
Tencent's log services export. A folder stands for all regular files directly in it.
Order and names of the files do not matter; a record that two files hold counts once.

It prints what the logs cover, where they have gaps, and the most frequent requests.
--writers shows who wrote what with which client, --storms the objects that were
written at least ten times in ten seconds. With --policy it shows what the log holds of
each rule of an audit policy, and what a server with that policy would not have noted
so.

With --journal it finds the request of each change that the journal has, and shows the
changes that have none, each with the likely reason: a rule of the policy, a server that
was stopping, a time that the logs do not cover; and the requests of which the journal
has no event. --changes lists the others: which user made which change, from where, by
which server. --writers and --storms then tell what the journal has of them as well.

Lines that cannot be read are counted, and the first is named on stderr. Then, and if a
change has no record, the exit status is 1.`,
		Example: e.examples(
			"fairlead audit --audit-log /var/log/kubernetes/audit/audit.log",
			"fairlead audit --audit-log cp1/audit.log,cp1/audit.log.1.gz,cp2/audit.log --writers",
			"fairlead audit --audit-log collected-logs/ --writers",
			"fairlead audit --audit-log eks-export.json --storms -o json",
			"fairlead audit --audit-log cp1/audit.log,cp2/audit.log --journal journal.db --policy policy.yaml",
			"fairlead audit --audit-log audit.log --journal journal.db default/kubernetes --changes"),
	}
	f := addAuditFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(f.files) == 0 {
			return seeHelp(cmd, "name the audit logs with --audit-log")
		}
		if f.gap <= 0 {
			return seeHelp(cmd, "--gap %s: a gap takes time", f.gap)
		}
		if f.scope.journal != "" {
			filter, path, err := f.scope.read(args, time.Now())
			if err != nil {
				return seeHelp(cmd, "%w", err)
			}
			return e.auditJournal(cmd.Context(), f, path, filter)
		}
		if err := f.needJournal(cmd, args); err != nil {
			return seeHelp(cmd, "%w", err)
		}
		return e.audit(cmd.Context(), f)
	}
	return cmd
}

func addAuditFlags(cmd *cobra.Command) *auditFlags {
	f := &auditFlags{}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.files, "audit-log", nil, "read `FILE`, plain or gzip, or all files directly in the folder FILE; may be given several times")
	flags.StringVar(&f.policy, "policy", "", "compare with the audit policy in `FILE`")
	flags.BoolVar(&f.writers, "writers", false, "show who wrote what")
	flags.BoolVar(&f.storms, "storms", false, "show objects that were written again and again")
	flags.DurationVar(&f.gap, "gap", time.Minute, "name silences longer than `TIME`")
	flags.BoolVar(&f.changes, "changes", false, "list the journal's changes with their requests")
	f.scope.addTo(cmd)
	cmd.MarkFlagsMutuallyExclusive("writers", "storms", "changes")
	f.output = outputFlag(cmd, "json", "yaml", "wide")
	return f
}

// needJournal keeps what is about a journal from having no effect in silence.
func (f *auditFlags) needJournal(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%q names an object: give --journal too", args[0])
	}
	for _, name := range []string{"changes", "kind", "namespace", "since", "until"} {
		if cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s is about a journal: give --journal too", name)
		}
	}
	return nil
}

// audit reads logs alone.
func (e *env) audit(ctx context.Context, f *auditFlags) error {
	answer, err := readAudit(ctx, f)
	if err != nil {
		return err
	}
	if err := e.printAudit(f, answer); err != nil {
		return err
	}
	return e.reportLosses(answer.Losses)
}

func readAudit(ctx context.Context, f *auditFlags) (auditAnswer, error) {
	rules, err := readRules(f.policy)
	if err != nil {
		return auditAnswer{}, err
	}
	log, err := audit.Open(ctx, f.files...)
	if err != nil {
		return auditAnswer{}, err
	}
	summary := audit.NewSummary(f.gap)
	for r, err := range log.Records(ctx) {
		if err != nil {
			return auditAnswer{}, err
		}
		summary.Add(r)
		rules.add(r)
	}
	if losses := log.Losses(); len(summary.Servers()) == 0 {
		return auditAnswer{}, noRecords(losses)
	}
	return newAuditAnswer(summary, log.Losses(), rules), nil
}

func newAuditAnswer(summary *audit.Summary, losses audit.Losses, rules *ruleCount) auditAnswer {
	return auditAnswer{
		SchemaVersion: api.SchemaVersion,
		Servers:       summary.Servers(),
		Stages:        summary.Stages(),
		Levels:        summary.Levels(),
		Losses:        losses,
		Requests:      summary.Requests(),
		Writers:       summary.Writers(),
		Storms:        summary.Storms(),
		Rules:         rules.rows,
	}
}

func noRecords(losses audit.Losses) error {
	if losses.Any() {
		return fmt.Errorf("find audit records: there are none; the first trouble: %s", losses.First)
	}
	return errors.New("find audit records: there are none in the files; give logs of requests (audit.k8s.io/v1), not a server's own messages")
}

// ruleCount counts records by the rules of a policy; the zero value counts none.
type ruleCount struct {
	policy audit.Policy
	rows   []ruleRow
}

// readRules reads the policy in a file, if there is one.
func readRules(path string) (*ruleCount, error) {
	if path == "" {
		return &ruleCount{}, nil
	}
	policy, err := audit.ReadPolicy(path)
	if err != nil {
		return nil, err
	}
	return newRuleCount(policy), nil
}

func newRuleCount(policy audit.Policy) *ruleCount {
	c := &ruleCount{policy: policy, rows: make([]ruleRow, len(policy.Rules)+1)}
	c.rows[0].Level = audit.None
	for i, rule := range policy.Rules {
		c.rows[i+1] = ruleRow{Rule: i + 1, Level: rule.Level}
	}
	return c
}

func (c *ruleCount) add(r audit.Record) {
	if len(c.rows) == 0 {
		return
	}
	level, rule := c.policy.Level(r)
	row := &c.rows[rule]
	row.Records++
	// A log that does not say its levels cannot contradict one, but None.
	unlike := level == audit.None || r.Level != "" && r.Level != level
	if unlike || c.policy.Omits(rule, r.Stage) {
		row.Unlike++
	}
}

func (e *env) printAudit(f *auditFlags, answer auditAnswer) error {
	switch {
	case f.output.data():
		return e.printData(f.output, answer)
	case f.writers:
		return e.printTable(f.output, writersTable(answer.Writers))
	case f.storms:
		return e.printTable(f.output, stormsTable(answer.Storms))
	}
	tables := append(coverTables(answer), requestsTable(answer.Requests[:min(topRequests, len(answer.Requests))]))
	return e.printTables(f.output, tables)
}

// coverTables say what the logs cover.
func coverTables(answer auditAnswer) []*table {
	tables := []*table{serversTable(answer.Servers)}
	if gaps := gapsTable(answer.Servers); len(gaps.rows) > 0 {
		tables = append(tables, gaps)
	}
	if len(answer.Rules) > 0 {
		tables = append(tables, rulesTable(answer.Rules))
	}
	return tables
}

func (e *env) printTables(output *format, tables []*table) error {
	texts := make([]string, len(tables))
	for i, t := range tables {
		texts[i] = t.text(output.wide(), e.colour)
	}
	return e.print(strings.Join(texts, "\n"))
}

// reportLosses says what of the logs is not in the answer.
func (e *env) reportLosses(losses audit.Losses) error {
	if losses.Other > 0 {
		e.warn("%d values of the files are no audit records", losses.Other)
	}
	if !losses.Any() {
		return nil
	}
	e.warn("not read: %d broken lines, %d too long ones, the rest of %d files; first %s",
		losses.Broken, losses.TooLong, losses.Torn, losses.First)
	return errFindings
}

func auditTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func serversTable(servers []audit.Server) *table {
	t := &table{columns: columns("LOG", "RECORDS", "FIRST", "LAST", "GAPS")}
	for _, s := range servers {
		t.add(s.Name, strconv.Itoa(s.Records), auditTime(s.First), auditTime(s.Last), strconv.Itoa(len(s.Gaps)))
	}
	return t
}

func gapsTable(servers []audit.Server) *table {
	t := &table{columns: columns("LOG", "NOTHING FROM", "TO", "FOR")}
	for _, s := range servers {
		for _, g := range s.Gaps {
			t.add(s.Name, auditTime(g.Began), auditTime(g.Ended), g.Ended.Sub(g.Began).Round(time.Second).String())
		}
	}
	return t
}

func rulesTable(rules []ruleRow) *table {
	t := &table{columns: columns("RULE", "LEVEL", "RECORDS", "UNLIKE THE POLICY")}
	for _, r := range rules {
		name := strconv.Itoa(r.Rule)
		if r.Rule == 0 {
			name = "(no rule)"
		}
		t.add(name, string(r.Level), strconv.Itoa(r.Records), strconv.Itoa(r.Unlike))
	}
	return t
}

func requestsTable(counts []audit.Count) *table {
	t := &table{columns: append(columns("VERB", "RESOURCE", "USER", "REQUESTS", "FAILED"), wideColumns("FIRST", "LAST")...)}
	for _, c := range counts {
		t.add(c.Verb, c.Resource, c.User, strconv.Itoa(c.Requests), strconv.Itoa(c.Failed), auditTime(c.First), auditTime(c.Last))
	}
	return t
}

func writersTable(counts []audit.Count) *table {
	t := &table{columns: append(columns("USER", "VERB", "RESOURCE", "WRITES", "FAILED", "FIRST", "LAST"), wideColumns("CLIENT")...)}
	for _, c := range counts {
		t.add(c.User, c.Verb, c.Resource, strconv.Itoa(c.Requests), strconv.Itoa(c.Failed), auditTime(c.First), auditTime(c.Last), c.UserAgent)
	}
	return t
}

func stormsTable(found []audit.Storm) *table {
	t := &table{columns: columns("RESOURCE", "NAMESPACE", "NAME", "WRITES", "FROM", "FOR", "WRITERS")}
	for _, s := range found {
		var writers []string
		for _, user := range slices.Sorted(maps.Keys(s.Writers)) {
			writers = append(writers, fmt.Sprintf("%s (%d)", user, s.Writers[user]))
		}
		t.add(s.Object.Resource, s.Object.Namespace, s.Object.Name, strconv.Itoa(s.Writes), auditTime(s.Began),
			s.Ended.Sub(s.Began).Round(time.Millisecond).String(), strings.Join(writers, ", "))
	}
	return t
}
