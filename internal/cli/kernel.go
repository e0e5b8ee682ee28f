// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/collect"
	"github.com/fairlead-io/fairlead/internal/datapath"
)

// defaultPinPath is where an agent pins its maps unless told otherwise.
const defaultPinPath = collect.DefaultPins

// pinPathEnv names the pin path where --pin-path does not.
const pinPathEnv = "FAIRLEAD_PIN_PATH"

func pinPathFlag(cmd *cobra.Command) *string {
	path := os.Getenv(pinPathEnv)
	if path == "" {
		path = defaultPinPath
	}
	return cmd.Flags().String("pin-path", path, "`FOLDER` on a bpffs where the agent pins its maps; "+pinPathEnv+" sets it too")
}

// readKernel reads the pinned maps, whether or not an agent runs.
func readKernel(pinPath string) (api.Kernel, error) {
	reader, err := datapath.OpenReader(pinPath)
	if err != nil {
		return api.Kernel{}, err
	}
	defer reader.Close()
	return reader.Kernel()
}

func newGetKernel(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kernel [[NAMESPACE/]NAME|ADDR:PORT[/PROTO]...]",
		Short: "Show what the kernel's maps hold, with names",
		Long: `Show each frontend that the kernel's maps hold, with its backend set. It reads the
pinned maps itself, so it works while no agent runs. With -o wide it also shows
sets to which no frontend points.`,
		Example: e.examples("fairlead get kernel", "fairlead get kernel 10.96.0.10:53/UDP -o wide", "fairlead get kernel -o json"),
	}
	g, pinPath := addGetFlags(cmd), pinPathFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f, err := newFilter(g.namespace, args, true)
		if err != nil {
			return err
		}
		return e.get(cmd.Context(), g, f, "frontends in the kernel", everySecond(), func(context.Context) (answer, error) {
			k, err := readKernel(*pinPath)
			matches := func(k api.KernelEntry) bool { return f.matches(k.Service, k.Address, k.Port, k.Protocol) }
			k.Entries, k.UnusedSets = keep(k.Entries, matches), keep(k.UnusedSets, matches)
			return answer{k, kernelTable(k, g.output.wide()), 2}, err
		})
	}
	return cmd
}
