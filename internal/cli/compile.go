// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"
)

func newCompile(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "compile (-f FILE... --node-name NAME | --journal FILE)",
		Short: "Show the frontends that objects in files ask for, on a node",
		Long: `Compile Services and EndpointSlices from files to the frontends that a node
would serve. It asks no agent, no API server and no kernel.

A Node object of that name in the files gives the zone and the addresses, unless
flags do. With --journal the objects are those of a recording at the moment --at, and
what an agent would have retained is shown, too. Objects that cannot be read are named
on stderr; the others are shown, and the exit status is 1.

With --state-file, an emptied Service in front of the API server goes on with the
backends that an agent remembers in that file, as it would on its node until the time
limit of its retention. They are unverified: only an agent finds out which ones answer.`,
		Example: e.examples(
			"fairlead compile -f examples/clusterip.yaml --node-name n1",
			"fairlead compile -f services.yaml,slices.yaml --node-name n1 --node-label topology.kubernetes.io/zone=a --node-ip 192.0.2.11",
			"fairlead compile -f services.yaml,slices.yaml --node-name n1 --state-file /var/lib/fairlead/state.json",
			"fairlead compile --journal journal.db --at 2026-11-20T10:00:05Z --node-name n1",
			"kubectl get services,endpointslices,nodes -A -o yaml | fairlead compile -f - --node-name n1 -o json"),
		Args: noArguments,
	}
	objects, output := addObjectFlags(cmd), outputFlag(cmd, "json", "yaml", "wide")
	objects.addStateFile(cmd)
	objects.addRecorded(cmd)
	cmd.MarkFlagsMutuallyExclusive("journal", "state-file")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		w, err := objects.read(cmd.Context(), e)
		if err != nil {
			return err
		}
		return e.printWorld(output, w)
	}
	return cmd
}

// printWorld shows the rows of a world, and names what could not be read.
func (e *env) printWorld(output *format, w world) error {
	rows := w.frontends()
	var err error
	if output.data() {
		err = e.printData(output, rows)
	} else {
		err = e.printTable(output, frontendTable(rows, false, output.wide()))
	}
	if err != nil {
		return err
	}
	return e.report(w.problems)
}
