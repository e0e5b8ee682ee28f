// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/internal/doctor/dials"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/evidence"
	"github.com/fairlead-io/fairlead/internal/probe"
)

// probeDial is the command that the program starts of itself.
const probeDial = "probe-dial"

// newProbeDial is what the program starts of itself to dial from another cgroup
// or network namespace.
func newProbeDial(e *env) *cobra.Command {
	return &cobra.Command{
		Use:    probeDial,
		Short:  "Dial what standard input says, and write what came of it",
		Hidden: true,
		Args:   noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return probe.Serve(cmd.Context(), e.in, e.out)
		},
	}
}

// dial tries connections on this node, chosen by what a sample shows.
func (c *collectFlags) dial(ctx context.Context, node string, records []evidence.Record) ([]probe.Result, error) {
	const proc, ownNetwork = "/proc", "/proc/self/ns/net"
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the program's own file, which dials from elsewhere: %w", err)
	}
	sample := facts.Read(&evidence.Bundle{Records: records}).Last()
	if sample == nil {
		return nil, errors.New("nothing was read that tells what to dial")
	}
	// From another cgroup than the agent's, no Service is there to be found.
	if n := sample.Node(node); n != nil && n.Fairlead != nil && n.Fairlead.Status == nil && !c.probeFlag.Changed {
		return nil, nil
	}
	wanted := dials.Choose(sample, node)
	if !wanted.Any() {
		return nil, nil // without a Service of the cluster the rest tells nothing
	}
	pods := dials.Pods(sample, node)
	uids := make([]string, len(pods))
	for i, p := range pods {
		uids[i] = p.UID
	}
	paths, err := probe.PodNamespaces(proc, ownNetwork, uids)
	if err != nil {
		return nil, err
	}
	o := probe.Options{Targets: probe.Plan(wanted), Backends: wanted.BackendCounts(), Program: []string{program, probeDial}}
	for _, p := range pods {
		if path, ok := paths[p.UID]; ok {
			o.Pods = append(o.Pods, probe.Namespace{Name: probe.FromPod + p.Name, Path: path})
		}
	}
	// Other data planes than Fairlead attach their programs to the root.
	if n := sample.Node(node); n != nil && n.Fairlead != nil {
		if n.Fairlead.Status != nil {
			o.Cgroup = n.Fairlead.Status.Cgroup
		}
		if n.Fairlead.Kernel != nil {
			o.PinPath = *c.pinPath
		}
	}
	return probe.Run(ctx, o), nil
}
