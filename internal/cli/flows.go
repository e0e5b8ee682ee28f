// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/datapath"
)

func newGetFlows(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "flows [[NAMESPACE/]NAME|ADDR:PORT[/PROTO]...]",
		Aliases: []string{"flow"},
		Short:   "Show the connections that the packet path translates",
		Long: `Show each connection that the packet path translates: its client, the Service
address that it dialled, its backend, and what the backend sees. ADDR:PORT names any
of these. Connections translated at their socket are not among them: nothing
tracks those. It reads the pinned maps itself, so it works while no agent runs.`,
		Example: e.examples("fairlead get flows", "fairlead get flows default/web -o wide", "fairlead get flows 10.0.1.7:8080"),
	}
	g, pinPath := addGetFlags(cmd), pinPathFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f, err := newFilter(g.namespace, args, true)
		if err != nil {
			return err
		}
		return e.get(cmd.Context(), g, f, "flows", everySecond(), func(context.Context) (answer, error) {
			found, err := readFlows(*pinPath)
			found.Flows = keep(found.Flows, f.matchesFlow)
			return answer{found, flowTable(found.Flows), 4}, err
		})
	}
	return cmd
}

func readFlows(pinPath string) (api.Flows, error) {
	reader, err := datapath.OpenReader(pinPath)
	if err != nil {
		return api.Flows{}, err
	}
	defer reader.Close()
	return reader.Flows()
}

// matchesFlow picks a flow by its Service, or by any address of it.
func (f filter) matchesFlow(flow api.Flow) bool {
	for _, at := range []string{flow.Client, flow.Frontend, flow.Backend, flow.Source} {
		if f.matchesTarget(at, flow.Protocol) {
			return true
		}
	}
	return f.matchesService(flow.Service)
}

func flowTable(flows []api.Flow) *table {
	t := &table{columns: append(columns("PROTO", "CLIENT", "FRONTEND", "BACKEND", "SERVICE", "STATE", "IDLE"), wideColumns("SOURCE", "PATH", "CONFIRMED")...)}
	for _, f := range flows {
		t.add(f.Protocol, f.Client, f.Frontend, f.Backend, serviceText(f.Service, f.PortName), f.State,
			(time.Duration(f.IdleSeconds) * time.Second).String(), f.Source, f.Path, strconv.FormatBool(f.Confirmed))
	}
	return t
}
