// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/checks"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/doctor/report"
	"github.com/fairlead-io/fairlead/internal/evidence"
)

// doctorFlags say what a doctor looks at, with which checks, and how it
// answers.
type doctorFlags struct {
	bundles    []string
	only, skip []string // ids of checks
	explain    string
	list       bool
	output     *format
	live       *collectFlags
}

func newDoctor(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what is wrong with a cluster's Services, and why",
		Long: `Compare what the API asks for with what data planes believe and the kernel holds,
layer by layer, on Fairlead, Cilium and kube-proxy, and explain the first place
where they part. Causes stand first, with what follows from them below, the outputs
that show it, and what to do.

It looks at the node that it runs on, and at the API where --kubeconfig or a pod's
service account leads to it; the node alone is enough when the API server is gone. As
root it tries connections from there to the API server, DNS, the gateway and other
nodes, unless --probe=false is given. With --fairlead, --cilium or --kube-proxy it also
looks at these data planes on all nodes, or on those of --node, by commands in their
pods. With --bundle it looks at what was collected before, and at nothing else.

A bundle is an archive or a folder of outputs, such as fairlead bundle makes. Bundles
of one occasion can be given together: of each node its own, say. What a single
sample shows may have been on its way, so it is only suspected; what two samples show
is confirmed.

Exit status: 0 nothing is wrong, 1 findings, 2 it could not look.`,
		Example: e.examples(
			"fairlead doctor --kubeconfig ~/.kube/config   # on a node",
			"fairlead doctor --kubeconfig ~/.kube/config --cilium --node n1",
			"fairlead doctor --bundle cluster.tar.gz",
			"fairlead doctor --bundle examples/incidents/incident-1 -o wide",
			"fairlead doctor --bundle cluster.tar.gz -o html > report.html",
			"fairlead doctor --bundle cluster.tar.gz --skip selector-empty",
			"fairlead doctor --checks",
			"fairlead doctor --explain name-prefix"),
		Args: noArguments,
	}
	f := addDoctorFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		chosen, err := f.choose(checks.All())
		switch {
		case err != nil:
			return err
		case f.list:
			return e.listChecks(f.output, chosen)
		case f.explain != "":
			return e.explainCheck(f.explain)
		}
		bundles, err := f.evidence(cmd.Context(), cmd, e)
		if err != nil {
			return err
		}
		return e.examine(f, bundles, chosen)
	}
	return cmd
}

func addDoctorFlags(cmd *cobra.Command) *doctorFlags {
	f := &doctorFlags{}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.bundles, "bundle", nil, "look at the archive or folder `PATH`; may be given several times")
	flags.StringSliceVar(&f.only, "check", nil, "run only the check `ID`; may be given several times")
	flags.StringSliceVar(&f.skip, "skip", nil, "do not run the check `ID`, nor name it as a cause; may be given several times")
	flags.StringVar(&f.explain, "explain", "", "print what the check `ID` looks for, why, and what to do")
	flags.BoolVar(&f.list, "checks", false, "list the checks")
	for _, name := range []string{"check", "skip", "explain"} {
		// It fails for a flag that does not exist only.
		_ = cmd.RegisterFlagCompletionFunc(name, completeChecks)
	}
	cmd.MarkFlagsMutuallyExclusive("bundle", "explain", "checks")
	f.live = addCollectFlags(cmd)
	f.output = outputFlag(cmd, "wide", "json", "yaml", "junit", "prometheus", "html")
	return f
}

func completeChecks(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var ids []string
	for _, c := range checks.All() {
		ids = append(ids, c.ID+"\t"+c.Title)
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}

// choose returns the checks that are asked for.
func (f *doctorFlags) choose(all []doctor.Check) ([]doctor.Check, error) {
	for _, id := range slices.Concat(f.only, f.skip) {
		if _, err := findCheck(all, id); err != nil {
			return nil, err
		}
	}
	chosen := slices.DeleteFunc(all, func(c doctor.Check) bool {
		return len(f.only) > 0 && !slices.Contains(f.only, c.ID) || slices.Contains(f.skip, c.ID)
	})
	if len(chosen) == 0 {
		return nil, errors.New("--check and --skip leave no check to run")
	}
	return chosen, nil
}

func findCheck(all []doctor.Check, id string) (doctor.Check, error) {
	i := slices.IndexFunc(all, func(c doctor.Check) bool { return c.ID == id })
	if i < 0 {
		return doctor.Check{}, fmt.Errorf("there is no check %q: fairlead doctor --checks lists them", id)
	}
	return all[i], nil
}

// evidence is what the bundles hold that the flags name, or what is alive.
func (f *doctorFlags) evidence(ctx context.Context, cmd *cobra.Command, e *env) ([]*evidence.Bundle, error) {
	if len(f.bundles) > 0 {
		return f.open(cmd)
	}
	if err := f.live.check(cmd); err != nil {
		return nil, err
	}
	b, err := f.live.collect(ctx, e)
	if err != nil {
		return nil, err
	}
	return []*evidence.Bundle{b}, nil
}

// open reads the bundles that the flags name.
func (f *doctorFlags) open(cmd *cobra.Command) ([]*evidence.Bundle, error) {
	if err := f.live.refuse(cmd, "bundle"); err != nil {
		return nil, err
	}
	var bundles []*evidence.Bundle
	for _, path := range f.bundles {
		b, err := evidence.Open(path)
		if err != nil {
			return nil, err
		}
		bundles = append(bundles, b)
	}
	return bundles, nil
}

// examine runs checks on what was collected, and says what they found.
func (e *env) examine(f *doctorFlags, bundles []*evidence.Bundle, chosen []doctor.Check) error {
	for _, b := range bundles {
		e.warnOfBundle(b)
	}
	c := facts.Read(bundles...)
	if err := nothingRead(c); err != nil {
		return err
	}
	r := report.New(doctor.Examine(c, chosen))
	if err := e.printReport(f.output, r); err != nil {
		return err
	}
	if r.Found() {
		return errFindings
	}
	return nil
}

// warnOfBundle tells what of an archive is not looked at.
func (e *env) warnOfBundle(b *evidence.Bundle) {
	const few = 5
	for _, warning := range b.Warnings[:min(few, len(b.Warnings))] {
		e.warn("%s", warning)
	}
	if left := len(b.Warnings) - few; left > 0 {
		e.warn("and %d more such warnings", left)
	}
}

// nothingRead keeps a doctor that saw nothing from saying that all is well.
func nothingRead(c *facts.Case) error {
	if len(c.Logs) > 0 || len(c.Events) > 0 || slices.ContainsFunc(c.Samples, seesAnything) {
		return nil
	}
	if len(c.Unread) == 0 {
		return errors.New("look at the bundle: it holds no output that this program knows; fairlead bundle makes one that does, and docs/doctor.md says what it may hold")
	}
	u := c.Unread[0]
	return fmt.Errorf("look at the bundle: none of its %d outputs could be read; the first trouble: %s: %s", len(c.Unread), u.Record.Path, u.Why)
}

func seesAnything(s *facts.Sample) bool {
	return s.Objects != nil || s.Version != "" || len(s.Nodes) > 0 || len(s.Access) > 0
}

func (e *env) printReport(f *format, r report.Report) error {
	switch f.value {
	case "json", "yaml":
		return e.printData(f, r)
	case "junit":
		return report.JUnit(e.out, r)
	case "prometheus":
		return report.Prometheus(e.out, r)
	case "html":
		return report.HTML(e.out, r)
	}
	return report.Tree(e.out, r, report.View{Wide: f.wide(), Colour: e.colour, Width: e.width()})
}

// width is how long lines of sentences may be: a terminal's, but neither so
// narrow that nothing fits, nor so wide that nobody follows.
func (e *env) width() int {
	const narrowest, widest = 60, 110
	file, ok := e.out.(*os.File)
	if !ok {
		return widest
	}
	columns, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return widest
	}
	return min(max(columns, narrowest), widest)
}

// checkList is the JSON of doctor --checks.
type checkList struct {
	SchemaVersion int        `json:"schemaVersion"`
	Checks        []checkRow `json:"checks"`
}

type checkRow struct {
	ID    string `json:"id"`
	Title string `json:"title"`
}

func (e *env) listChecks(f *format, all []doctor.Check) error {
	answer := checkList{SchemaVersion: api.SchemaVersion, Checks: []checkRow{}}
	t := &table{columns: columns("CHECK", "FINDS")}
	for _, c := range all {
		answer.Checks = append(answer.Checks, checkRow{c.ID, c.Title})
		t.add(c.ID, c.Title)
	}
	switch {
	case f.data():
		return e.printData(f, answer)
	case f.value != "" && !f.wide():
		return fmt.Errorf("--checks has no format %s: use json or yaml", f.value)
	}
	return e.printTable(f, t)
}

func (e *env) explainCheck(id string) error {
	c, err := findCheck(checks.All(), id)
	if err != nil {
		return err
	}
	return e.print(strings.TrimSpace(c.Page) + "\n")
}
