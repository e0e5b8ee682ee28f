// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/audit"
	"github.com/fairlead-io/fairlead/internal/rights"
)

// usageFlags say which audit logs are read.
type usageFlags struct {
	files  []string
	policy string
}

func (f *usageFlags) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.files, "audit-log", nil, "read `FILE`, plain or gzip, or all files directly in the folder FILE; may be given several times")
	flags.StringVar(&f.policy, "policy", "", "the servers' audit policy is in `FILE`: what it leaves out is not taken for unused")
}

// auditGap is how long a log may be silent before that is called a gap.
const auditGap = time.Minute

// usage is what audit logs say of one user, or of all.
type usage struct {
	*rights.Usage
	summary *audit.Summary
	losses  audit.Losses
	policy  *audit.Policy
	rules   *ruleCount
}

// readUsage reads the logs once.
func (e *env) readUsage(ctx context.Context, f *usageFlags, user string) (*usage, error) {
	u := &usage{Usage: rights.NewUsage(user), summary: audit.NewSummary(auditGap), rules: &ruleCount{}}
	if f.policy != "" {
		policy, err := audit.ReadPolicy(f.policy)
		if err != nil {
			return nil, err
		}
		u.policy, u.rules = &policy, newRuleCount(policy)
	}
	done := e.whileBusy(func() string { return "reading the audit logs" })
	defer done()
	log, err := audit.Open(ctx, f.files...)
	if err != nil {
		return nil, err
	}
	for r, err := range log.Records(ctx) {
		if err != nil {
			return nil, err
		}
		u.summary.Add(r)
		u.rules.add(r)
		u.Add(r)
	}
	u.losses = log.Losses()
	if len(u.summary.Servers()) == 0 {
		return nil, noRecords(u.losses)
	}
	return u, nil
}

// warnOfUsage says what the logs do not say.
func (e *env) warnOfUsage(u *usage) {
	var unseen []string
	for _, verb := range []string{"get", "list", "watch", "create", "update", "patch", "delete"} {
		if !u.Saw(verb) {
			unseen = append(unseen, verb)
		}
	}
	if len(unseen) > 0 {
		e.warn("the log has no %s of anybody: its audit policy may leave them out", joined(unseen))
	}
	if left := u.rules.leftOut(); len(left) > 0 {
		e.warn("the audit policy leaves requests out by %s", joined(left))
	}
	if u.Uncounted > 0 {
		e.warn("%d requests of further users, resources or paths are not counted", u.Uncounted)
	}
	if u.Unjudged > 0 {
		e.warn("%d requests are of nobody who is known, or were turned away before anybody looked at rights", u.Unjudged)
	}
}

// leftOut names the rules by which a server notes nothing.
func (c *ruleCount) leftOut() (names []string) {
	for i, rule := range c.policy.Rules {
		if rule.Level == audit.None {
			names = append(names, "rule "+strconv.Itoa(i+1))
		}
	}
	return names
}

// usedAnswer is the JSON of `rbac used`.
type usedAnswer struct {
	SchemaVersion int                 `json:"schemaVersion"`
	Servers       []audit.Server      `json:"servers"`
	Levels        map[audit.Level]int `json:"levels"`
	Losses        audit.Losses        `json:"losses"`
	Rules         []ruleRow           `json:"rules,omitempty"`
	Used          []usedRow           `json:"used"`
	Uncounted     int                 `json:"uncounted"`
	Unjudged      int                 `json:"unjudged"`
}

// usedRow is one verb of one user on one kind of object.
type usedRow struct {
	User      string    `json:"user"`
	By        string    `json:"by,omitempty"` // who asked in the user's name
	Verb      string    `json:"verb"`
	Group     string    `json:"group"`
	Resource  string    `json:"resource,omitempty"`
	Path      string    `json:"path,omitempty"`
	Namespace string    `json:"namespace,omitempty"`
	Names     []string  `json:"names,omitempty"`
	MoreNames bool      `json:"moreNames,omitempty"`
	Requests  int       `json:"requests"`
	Refused   int       `json:"refused"`
	First     time.Time `json:"first"`
	Last      time.Time `json:"last"`
}

func newRBACUsed(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "used [NAMESPACE/]ACCOUNT|--user NAME --audit-log FILE...",
		Short: "Show which rights users made use of, by API servers' audit logs",
		Long: `Read audit logs of API servers, in all forms that fairlead audit reads, and show
which verbs on which resources and paths each user asked for, or the one that is named:
how often, when first and last, and what was refused. The names of objects count
together. A request in another's name is the other's, and the right to impersonate is
its sender's.

What the logs do not say is told on stderr: lines that cannot be read, verbs of which
they have no request of anybody, and, with --policy, the rules that leave requests out.`,
		Example: e.examples(
			"fairlead rbac used kube-system/cilium --audit-log /var/log/kubernetes/audit/audit.log",
			"fairlead rbac used --user system:kube-scheduler --audit-log cp1/audit.log,cp2/audit.log --policy policy.yaml",
			"fairlead rbac used --audit-log collected-logs/ -o json"),
	}
	subject, logs, output := &subjectFlags{}, &usageFlags{}, outputFlag(cmd, "wide", "json", "yaml")
	subject.addTo(cmd)
	logs.addTo(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		user, _, err := subject.read(args)
		if err != nil {
			return seeHelp(cmd, "%w", err)
		}
		if len(logs.files) == 0 {
			return seeHelp(cmd, "name the audit logs with --audit-log")
		}
		return e.rbacUsed(cmd.Context(), logs, output, user.Name)
	}
	return cmd
}

func (e *env) rbacUsed(ctx context.Context, f *usageFlags, output *format, user string) error {
	u, err := e.readUsage(ctx, f, user)
	if err != nil {
		return err
	}
	answer := usedAnswer{
		SchemaVersion: api.SchemaVersion, Servers: u.summary.Servers(), Levels: u.summary.Levels(), Losses: u.losses,
		Rules: u.rules.rows, Used: usedRows(u.Uses()), Uncounted: u.Uncounted, Unjudged: u.Unjudged,
	}
	if output.data() {
		err = e.printData(output, answer)
	} else {
		tables := coverTables(auditAnswer{Servers: answer.Servers, Rules: answer.Rules})
		err = e.printTables(output, append(tables, usedTable(answer.Used)))
	}
	if err != nil {
		return err
	}
	if user != "" && len(answer.Used) == 0 {
		e.warn("the logs have no request of %s", user)
	}
	e.warnOfUsage(u)
	return e.reportLosses(u.losses)
}

func usedRows(uses []rights.Use) []usedRow {
	rows := []usedRow{}
	for _, s := range rights.Summed(uses) {
		rows = append(rows, usedRow{
			User: s.User, By: s.By, Verb: s.Verb, Group: s.Group, Resource: s.Resource, Path: s.Path, Namespace: s.Namespace,
			Names: s.Names, MoreNames: s.More, Requests: s.Requests, Refused: s.Refused, First: s.First, Last: s.Last,
		})
	}
	return rows
}

func usedTable(rows []usedRow) *table {
	t := &table{columns: append(columns("USER", "VERB", "RESOURCE", "NAMESPACE", "REQUESTS", "REFUSED", "FIRST", "LAST"), wideColumns("NAMES")...)}
	for _, r := range rows {
		user := r.User
		if r.By != "" {
			user += " by " + r.By
		}
		names := r.Names
		if r.MoreNames {
			names = append(names, "…")
		}
		rule := rights.Rule{Group: r.Group, Resource: r.Resource, Path: r.Path}
		t.add(user, r.Verb, rule.Target(), r.Namespace, fmt.Sprint(r.Requests), fmt.Sprint(r.Refused), auditTime(r.First), auditTime(r.Last), strings.Join(names, ","))
	}
	return t
}
