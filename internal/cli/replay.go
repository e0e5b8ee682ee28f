// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/replay"
)

func newReplay(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replay JOURNAL",
		Short: "Run a journal through the proxy's rules again, up to any moment",
		Long: `Run the events of a journal through the same rules and tables as the agent does, as
an agent on one node would have seen them, and show the frontends of a moment: the end,
or that of --at or --at-version. It asks no agent, no API server and no kernel, and
gives the same answer for the same journal. On stderr stands what was replayed.

With --check it looks after every event whether these hold, and names the first event
after which one does not, and when it held again:

  backends-lost      rows have the backends that their own Service's objects name
  apiserver-empty    default/kubernetes, and the Services of --retain, have backends
  address-contested  one Service claims an address, port and protocol

With --impl it compares what another proxy's tools printed on the node with what should
have been at that moment: dumps of Cilium, or of kube-proxy's iptables, nftables or
IPVS, each after a line "# time: 2026-01-02T15:04:05Z", or in a file with the time in
its name.

  impl-differs       the other proxy serves what the objects ask for

The exit status is 1 if something did not hold.`,
		Example: e.examples(
			"fairlead replay journal.db",
			"fairlead replay journal.db --check",
			"fairlead replay journal.db --at 2026-11-20T10:00:05Z --node-name n1 -o json",
			"fairlead replay journal.db --at-version 4711 --retain-limit 0",
			"fairlead replay journal.db --node-name n1 --impl cilium.txt"),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return nil
			}
			return seeHelp(cmd, "replay takes one journal, not %d", len(args))
		},
	}
	o := addNodeFlags(cmd)
	o.addMoment(cmd)
	check := cmd.Flags().Bool("check", false, "name the first events after which something does not hold")
	impl := addImplFlags(cmd)
	output := outputFlag(cmd, "json", "yaml", "wide")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.recorded.journal = args[0]
		if err := impl.check(); err != nil {
			return seeHelp(cmd, "%w", err)
		}
		if *check || impl.given() {
			return e.checkJournal(cmd.Context(), o, *check, impl, output)
		}
		w, err := o.read(cmd.Context(), e)
		if err != nil {
			return err
		}
		return e.printWorld(output, w)
	}
	return cmd
}

// checkAnswer is the JSON of replay --check.
type checkAnswer struct {
	SchemaVersion int              `json:"schemaVersion"`
	Node          string           `json:"node"`
	Events        int              `json:"events"`
	From          time.Time        `json:"from"`
	To            time.Time        `json:"to"`
	Findings      []replay.Finding `json:"findings"`
}

// checkJournal looks for what did not hold by the journal itself, by the dumps
// of another proxy, or by both.
func (e *env) checkJournal(ctx context.Context, o *objectFlags, own bool, impl *implFlags, output *format) error {
	to, err := o.recorded.moment(time.Now())
	if err != nil {
		return err
	}
	p := &played{}
	if p.journal, err = journal.Open(o.recorded.journal); err != nil {
		return err
	}
	defer p.close()
	options, err := o.replayOptions(ctx, e, p.journal)
	if err != nil {
		return err
	}
	other, err := impl.compare(ctx, e, p.journal, to.Time)
	if err != nil {
		return err
	}
	defer other.close()
	options.Observe = other.observe()
	done := e.whileBusy(o.recorded.doing)
	report, err := replay.Check(ctx, p.journal, options, to)
	differences := other.finish()
	done()
	p.problems = report.Problems
	if err := p.torn(err); err != nil {
		return fmt.Errorf("replay %s: %w", o.recorded.journal, err)
	}
	e.tell(report.Summary, options.Node.Name)
	if err := e.warnOfEnd(ctx, p.journal, to.Time); err != nil {
		return err
	}
	e.tellCompared(other)
	if !own {
		if report.Findings = nil; other.comparison.Compared() == 0 {
			return errors.New("compare with the other proxy: none of its dumps could be compared")
		}
	}
	report.Findings = join(report.Findings, differences)
	if err := e.printCheck(output, report, options.Node.Name); err != nil {
		return err
	}
	if err := e.report(p.problems); err != nil || len(report.Findings) == 0 {
		return err
	}
	return errFindings
}

func (e *env) printCheck(output *format, report replay.Report, node string) error {
	if output.data() {
		return e.printData(output, checkAnswer{
			SchemaVersion: api.SchemaVersion, Node: node, Events: report.Summary.Events,
			From: report.Summary.First, To: report.Summary.Last, Findings: append([]replay.Finding{}, report.Findings...),
		})
	}
	if len(report.Findings) == 0 {
		return e.print("everything held\n")
	}
	t := &table{columns: append(columns("TIME", "INVARIANT", "SERVICE", "CLEARED", "BY", "MANAGER", "VERSION", "WHAT"), wideColumns("EVENT", "DETAIL")...)}
	for _, f := range report.Findings {
		cleared := "not since"
		if !f.Cleared.IsZero() {
			cleared = stampText(f.Cleared)
		}
		t.add(stampText(f.Time), f.Invariant, f.Service, cleared, f.Object, f.Manager, f.ResourceVersion, f.Text, fmt.Sprint(f.Event), f.Detail)
	}
	return e.printTable(output, t)
}
