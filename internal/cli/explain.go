// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/model"
)

func newExplain(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain SERVICE|ADDR:PORT[/PROTO]",
		Short: "Say why a Service, or an address, is served as it is",
		Long: `Follow a Service, or whatever holds an address, from its objects through the
agent's rows to the kernel's entries: what each layer holds, what a new connection
meets, and what changed last, with its cause. What a Service keeps although the API
has it no more is shown with its time.

With --journal it explains the same of a moment that was recorded, up to the rows and
with who wrote what: a journal knows no kernel.`,
		Example: e.examples("fairlead explain default/web", "fairlead explain -n default web", "fairlead explain 10.96.0.10:53/UDP -o json",
			"fairlead explain default/kubernetes --journal journal.db --at 2026-11-20T10:00:05Z"),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return nil
			}
			return seeHelp(cmd, "explain takes one Service or one address, not %d", len(args))
		},
	}
	namespace := cmd.Flags().StringP("namespace", "n", "", "`NAMESPACE` of the Service")
	output, socket := outputFlag(cmd, "json", "yaml"), socketFlag(cmd)
	objects := addNodeFlags(cmd)
	objects.addRecorded(cmd)
	completeServices(cmd, namespace, socket)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		what, err := explainTarget(*namespace, args[0])
		if err != nil {
			return err
		}
		if objects.fromJournal() {
			return e.explainRecorded(cmd.Context(), objects, output, what)
		}
		if err := objects.refuseWithoutFiles(cmd); err != nil {
			return err
		}
		explained, err := api.NewClient(*socket).Explain(cmd.Context(), what)
		if err != nil {
			return err
		}
		return e.printExplain(output, explained)
	}
	return cmd
}

func (e *env) printExplain(output *format, explained api.Explain) error {
	if output.data() {
		return e.printData(output, explained)
	}
	return e.print(explainText(explained, e.colour))
}

// explainTarget checks what the user wrote before the agent has to, and
// completes it.
func explainTarget(namespace, arg string) (string, error) {
	if !looksLikeTarget(arg) {
		return serviceName(namespace, arg)
	}
	addrPort, protocol, err := api.ParseTarget(arg)
	return target(addrPort.Addr().String(), addrPort.Port(), protocol.String()), err
}

func explainText(x api.Explain, colour bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Service %s\n", clean(x.Service))
	if x.Reason != "" {
		fmt.Fprintf(&b, "no frontends: %s\n", clean(x.Reason))
	}
	if x.Selection == model.SelectionMaglev.String() {
		b.WriteString("packets choose among backends by Maglev, sockets at random\n")
	}
	if len(x.Objects) > 0 {
		b.WriteString("\n" + objectTable(x.Objects).text(false, colour))
	}
	if len(x.Retained) > 0 {
		b.WriteString("\n" + retainedTable(x.Retained).text(false, colour))
	}
	for _, f := range x.Frontends {
		b.WriteString("\n" + explainFrontend(f, colour))
	}
	if len(x.Transitions) > 0 {
		b.WriteString("\nTransitions, the last one first:\n")
	}
	for i := len(x.Transitions) - 1; i >= 0; i-- {
		b.WriteString(transitionText(x.Transitions[i]))
	}
	return b.String()
}

func objectTable(objects []api.ObjectRef) *table {
	t := &table{columns: columns("OBJECT", "VERSION")}
	for _, o := range objects {
		t.add(o.Kind+" "+o.Name, o.ResourceVersion)
	}
	return t
}

// explainFrontend is one row with what the kernel holds for it.
func explainFrontend(f api.ExplainedFrontend, colour bool) string {
	title := fmt.Sprintf("%s (%s, scope %s", target(f.Address, f.Port, f.Protocol), f.Type, f.Scope)
	if f.PortName != "" {
		title += ", port " + f.PortName
	}
	t := &table{columns: columns("", ""), headless: true}
	t.add("  row", rowText(f.Frontend))
	if f.Status != "" { // else no agent has the row
		t.add("  status", statusOf(f.Frontend))
		t.add("  kernel", kernelText(f.Kernel))
	}
	t.add("  verdict", f.Verdict)
	return clean(title) + ")\n" + t.text(false, colour)
}

func rowText(f api.Frontend) string {
	text := f.Action
	if f.Action == "forward" {
		text += " to " + backendCell(f.Backends, true)
	}
	if f.Reason != "" {
		text += ": " + f.Reason
	}
	if len(f.Draining) > 0 {
		text += "; draining " + backendCell(f.Draining, true)
	}
	return text + conditions(f.AffinitySeconds, f.SourceRanges)
}

// conditions are what a set asks beside its backends.
func conditions(affinitySeconds uint32, sourceRanges []string) string {
	text := ""
	if affinitySeconds > 0 {
		text += fmt.Sprintf("; affinity %ds", affinitySeconds)
	}
	if len(sourceRanges) > 0 {
		text += "; only from " + listCell(sourceRanges, true)
	}
	return text
}

func statusOf(f api.Frontend) string {
	text := f.Status
	if f.Since != nil {
		text += " since " + moment(*f.Since)
	}
	if f.Error != nil && *f.Error != "" {
		text += ": " + *f.Error
	}
	return text
}

func kernelText(k *api.KernelEntry) string {
	if k == nil {
		return "no entry"
	}
	text := fmt.Sprintf("set %d (%s, owner %d, generation %d): %s", k.Set, k.Role, k.Owner, k.Generation, k.Action)
	if k.Action == "forward" {
		text += " to " + slotCell(k.Backends, true)
	}
	if len(k.Draining) > 0 {
		text += "; draining " + slotCell(k.Draining, true)
	}
	text += conditions(k.AffinitySeconds, k.SourceRanges)
	if k.MaglevEntries > 0 {
		text += "; Maglev table of " + entriesCell(k.MaglevEntries)
	}
	if k.Problem != "" {
		text += "; " + k.Problem
	}
	return text
}

func transitionText(t api.Transition) string {
	causes := make([]string, len(t.Causes))
	for i, cause := range t.Causes {
		causes[i] = strings.TrimSpace(cause.Kind + " " + cause.Name)
		if cause.ResourceVersion != "" {
			causes[i] += " at " + cause.ResourceVersion
		}
		if cause.Manager != "" {
			causes[i] += " by " + cause.Manager
		}
	}
	text := fmt.Sprintf("  %s  because of %s\n", moment(t.Time), clean(strings.Join(causes, ", ")))
	for _, change := range t.Changes {
		text += "    " + clean(change) + "\n"
	}
	return text
}

func moment(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05.000") }
