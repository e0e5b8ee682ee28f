// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/internal/demo"
)

func newDemo(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Show the proxy at work on this machine, without a cluster",
		Long: `Run an agent on a scratch cgroup and in network namespaces of its own, serve the
example manifests with real servers, connect through their addresses, and play
an incident against it: a Service that shares its endpoint with another loses it.

No packet leaves the machine, and nothing is left behind. It needs root.`,
		Example: e.examples("fairlead demo"),
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if demo.Inside() {
				return demo.Play(cmd.Context(), e.out, e.err)
			}
			return demo.Run(cmd.Context(), e.out, e.err)
		},
	}
}
