// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/internal/demo"
)

func newDemo(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the proxy at work on this machine, without a cluster",
		Long: `Run an agent on a scratch cgroup and in network namespaces of its own, serve the
example manifests with real servers, connect through their addresses, and play
an incident against it: a Service that shares its endpoint with another loses it.

No packet leaves the machine, and nothing is left behind. It needs root.`,
		Example: e.examples("fairlead demo", "fairlead demo incident-1"),
		Args:    subcommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if demo.Inside() {
				return demo.Play(cmd.Context(), e.out, e.err)
			}
			return e.demoEnded(demo.Run(cmd.Context(), e.out, e.err, "demo"))
		},
	}
	cmd.AddCommand(newDemoIncident(e))
	return cmd
}

func newDemoIncident(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "incident-1",
		Short: "Play the first incident on real API servers",
		Long: `Start etcd and two API servers behind one address in network namespaces of their
own, and an agent on a node, and play what once cut every node of a cluster off
from its API server: one of the servers stops, takes the address that all share
out of default/kubernetes, and the agent starts again before it is back.

It takes the programs that ` + "`make components`" + ` builds, and less than two minutes. No
packet leaves the machine, and nothing is left behind, but what --keep names: the
journal of a recorder that watched, and the API servers' audit logs. It needs root.

Exit status: 0 if all went as told, 1 if not, 2 if it could not begin.`,
		Example: e.examples("fairlead demo incident-1", "fairlead demo incident-1 --keep incident",
			"fairlead demo incident-1 --components /usr/local/lib/kubernetes"),
		Args: noArguments,
	}
	components := cmd.Flags().String("components", "",
		"`FOLDER` of etcd, kube-apiserver and kubectl; where `make components` puts them if empty")
	keep := cmd.Flags().String("keep", "", "`FOLDER`, new or empty, to keep a recording in; none is made if empty")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		folder, err := demo.FindComponents(*components)
		if err != nil {
			return err
		}
		if demo.Inside() {
			return demo.PlayIncident(cmd.Context(), folder, *keep, e.out, e.err)
		}
		args := []string{"demo", "incident-1", "--components", folder}
		if *keep != "" {
			path, err := demo.MakeRecordingFolder(*keep)
			if err != nil {
				return err
			}
			args = append(args, "--keep", path)
		}
		return e.demoEnded(demo.Run(cmd.Context(), e.out, e.err, args...))
	}
	return cmd
}

// demoEnded makes a finding of a demo that did not go as told.
func (e *env) demoEnded(err error) error {
	if !errors.Is(err, demo.ErrNotAsTold) {
		return err
	}
	fmt.Fprintf(e.err, "%s: %v\n", e.name, err)
	return errFindings
}
