// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/internal/datapath"
)

func newCleanup(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Detach the programs and remove the maps, after the agent has ended",
		Long: `Detach the programs, those on devices included, and remove everything that is
pinned. Service addresses are not translated on this node from then on: connections
that are open go on where they were translated at the socket, and end on the wire.
Run it in the node's network namespace, where the devices are. A clsact qdisc stays,
and so do ports in net.ipv4.ip_local_reserved_ports and a raised
net.netfilter.nf_conntrack_tcp_timeout_close_wait: others may rest on them.

An agent that stops leaves all of it in force, so that the next one can take it
over: this is for a node that is to be without Fairlead.`,
		Example: e.examples("fairlead cleanup", "fairlead cleanup --pin-path /sys/fs/bpf/fairlead"),
		Args:    noArguments,
	}
	pinPath := pinPathFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		if err := datapath.Cleanup(*pinPath); err != nil {
			return err
		}
		return e.print(fmt.Sprintf("%s is removed, and no program of it is attached\n", *pinPath))
	}
	return cmd
}
