// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/internal/api"
)

// socketEnv names the agent's socket where --socket does not.
const socketEnv = "FAIRLEAD_SOCKET"

// socketFlag adds --socket to a command that asks the agent.
func socketFlag(cmd *cobra.Command) *string {
	socket := os.Getenv(socketEnv)
	if socket == "" {
		socket = api.DefaultSocket
	}
	return cmd.Flags().String("socket", socket, "`PATH` of the agent's socket; "+socketEnv+" sets it too")
}

func newGet(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get",
		Short: "Show what the agent's tables, or the kernel's maps, hold",
		Long: `Show what the agent's tables hold: Services, frontends, backends. "get kernel" and
"get flows" read the kernel's maps themselves, and work without an agent.`,
		Example: e.examples("fairlead get frontends", "fairlead get kernel -o wide"),
		Args:    subcommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newGetServices(e), newGetFrontends(e), newGetBackends(e), newGetKernel(e), newGetFlows(e))
	return cmd
}

// answer is what a read found: data for programs, and a table for people whose
// first cells name the row.
type answer struct {
	data   any
	table  *table
	naming int
}

func (a answer) empty() bool { return len(a.table.rows) == 0 }

// getFlags are the flags that all of get has.
type getFlags struct {
	namespace string
	watch     bool
	output    *format
}

func addGetFlags(cmd *cobra.Command) *getFlags {
	g := &getFlags{output: outputFlag(cmd, "json", "yaml", "wide")}
	cmd.Flags().StringVarP(&g.namespace, "namespace", "n", "", "only Services of this `NAMESPACE`")
	cmd.Flags().BoolVarP(&g.watch, "watch", "w", false, "go on, and print what changes")
	return g
}

func newGetServices(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "services [[NAMESPACE/]NAME...]",
		Aliases: []string{"service", "svc"},
		Short:   "Show each Service with its ports, backends and state",
		Example: e.examples("fairlead get services", "fairlead get services -n kube-system -o wide", "fairlead get services default/web -o yaml"),
	}
	return e.getFromAgent(cmd, "Services", false, func(ctx context.Context, client *api.Client, f filter, wide bool) (answer, error) {
		found, err := client.Services(ctx)
		found.Services = keep(found.Services, func(s api.Service) bool { return f.matchesService(s.Service) })
		return answer{found, serviceTable(found.Services, wide), 1}, err
	})
}

func newGetFrontends(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "frontends [[NAMESPACE/]NAME|ADDR:PORT[/PROTO]...]",
		Aliases: []string{"frontend", "fe"},
		Short:   "Show each Service address and what happens to a new connection to it",
		Example: e.examples("fairlead get frontends", "fairlead get frontends default/web -o wide",
			"fairlead get frontends 10.96.0.10:53/UDP '[fd00::10]:53'", "fairlead get frontends -n kube-system -w"),
	}
	return e.getFromAgent(cmd, "frontends", true, func(ctx context.Context, client *api.Client, f filter, wide bool) (answer, error) {
		rows, err := client.Frontends(ctx)
		rows = keep(rows, func(r api.Frontend) bool { return f.matches(r.Service, r.Address, r.Port, r.Protocol) })
		return answer{rows, frontendTable(rows, true, wide), 5}, err
	})
}

func newGetBackends(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "backends [[NAMESPACE/]NAME|ADDR:PORT[/PROTO]...]",
		Aliases: []string{"backend", "be"},
		Short:   "Show each backend of each Service port",
		Example: e.examples("fairlead get backends", "fairlead get backends default/web", "fairlead get backends 10.0.1.7:8080"),
	}
	return e.getFromAgent(cmd, "backends", true, func(ctx context.Context, client *api.Client, f filter, wide bool) (answer, error) {
		found, err := client.Backends(ctx)
		found.Backends = keep(found.Backends, func(r api.BackendRow) bool { return f.matches(r.Service, r.Address, r.Port, r.Protocol) })
		return answer{found, backendTable(found.Backends, wide), 3}, err
	})
}

// getFromAgent completes a command that shows rows of the agent's tables.
// Addresses says that rows can be named by ADDR:PORT, too.
func (e *env) getFromAgent(cmd *cobra.Command, what string, addresses bool, read func(context.Context, *api.Client, filter, bool) (answer, error)) *cobra.Command {
	g, socket := addGetFlags(cmd), socketFlag(cmd)
	completeServices(cmd, &g.namespace, socket)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f, err := newFilter(g.namespace, args, addresses)
		if err != nil {
			return err
		}
		client := api.NewClient(*socket)
		return e.get(cmd.Context(), g, f, what, tableChanges(client), func(ctx context.Context) (answer, error) {
			return read(ctx, client, f, g.output.wide())
		})
	}
	return cmd
}

// get shows what a read finds, once or, with --watch, whenever next returns.
func (e *env) get(ctx context.Context, g *getFlags, f filter, what string, next waiter, read func(context.Context) (answer, error)) error {
	if g.watch {
		return e.watch(ctx, g.output, next, read)
	}
	a, err := read(ctx)
	if err != nil {
		return err
	}
	if g.output.data() {
		err = e.printData(g.output, a.data)
	} else if !a.empty() {
		err = e.printTable(g.output, a.table)
	}
	if err != nil || !a.empty() {
		return err
	}
	if f.named() {
		e.warn("no %s match", what)
		return errFindings
	}
	if !g.output.data() {
		e.warn("no %s found", what)
	}
	return nil
}
