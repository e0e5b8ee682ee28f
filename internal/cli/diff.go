// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/internal/api"
)

// diffFlags say where the layers are.
type diffFlags struct {
	objects    *objectFlags
	kubeconfig string
	socket     *string
	pinPath    *string
	output     *format
}

func newDiff(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff",
		Short: "Show where API, tables and kernel differ",
		Long: `Compare what the API asks for, what the agent's tables hold and what the kernel's
maps hold, and print each difference. It compares the layers that it can reach,
and needs two of them:

  api     from files (-f), an API server (--kubeconfig), or else a fresh read by the agent
  tables  from the agent
  kernel  from the pinned maps, whether or not an agent runs

While an agent works, a difference counts if it stays for a second. Objects from
files or an API server are compiled for the agent's node, with its options and the
ports it listens on; with --state-file, an emptied Service in front of the API server
keeps what an agent remembers in that file, until the time limit of its retention. An
agent that reads the API for itself knows what it retains. The exit status is 1 if
there is drift.`,
		Example: e.examples(
			"fairlead diff",
			"fairlead diff -o json",
			"fairlead diff -f services.yaml --node-name n1",
			"fairlead diff -f services.yaml --node-name n1 --state-file /var/lib/fairlead/state.json",
			"fairlead diff --kubeconfig ~/.kube/config --node-name n1"),
		Args: noArguments,
	}
	d := &diffFlags{}
	cmd.Flags().StringVar(&d.kubeconfig, "kubeconfig", "", "`FILE` that says how to reach the API server")
	d.objects, d.socket, d.pinPath = addObjectFlags(cmd), socketFlag(cmd), pinPathFlag(cmd)
	d.objects.addStateFile(cmd)
	d.output = outputFlag(cmd, "json", "yaml", "wide")
	cmd.MarkFlagsMutuallyExclusive("filename", "kubeconfig")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !d.objects.given() && d.kubeconfig == "" {
			if err := d.objects.refuseWithoutFiles(cmd); err != nil {
				return err
			}
		}
		return e.diff(cmd.Context(), d)
	}
	return cmd
}

func (e *env) diff(ctx context.Context, d *diffFlags) error {
	l, err := e.reach(ctx, d)
	if err != nil {
		return err
	}
	found, frontends, err := l.drift(ctx)
	if err != nil {
		return err
	}
	for _, note := range l.notes {
		e.warn("%s", note)
	}
	if err := e.printDrift(d.output, l.names(), found, frontends); err != nil {
		return err
	}
	if len(found) > 0 {
		err = errFindings
	}
	return errors.Join(e.report(l.problems), err)
}

func (e *env) printDrift(output *format, names []string, found []api.Drift, frontends int) error {
	if output.data() {
		return e.printData(output, api.Diff{SchemaVersion: api.SchemaVersion, Layers: names, Drift: found})
	}
	if len(found) == 0 {
		return e.print(fmt.Sprintf("no drift: %s (%d frontends)\n", strings.Join(names, " = "), frontends))
	}
	t := &table{columns: append(columns("ADDRESS", "LAYERS", "FIELD", "WANT", "HAVE", "SERVICE"), wideColumns("SCOPE")...)}
	for _, d := range found {
		t.add(target(d.Address, d.Port, d.Protocol), d.Left+"/"+d.Right, d.Field, d.Want, d.Have, d.Service, d.Scope)
	}
	return e.printTable(output, t)
}
