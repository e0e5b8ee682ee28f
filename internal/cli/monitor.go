// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/internal/api"
)

func newMonitor(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "monitor",
		Short: "Show connections as they are refused",
		Long: `Show each connection that the agent's programs refuse, as it happens: who dialled
what, and why it was refused. It goes on until it is interrupted. With -o json
each line is one JSON object.`,
		Example: e.examples("fairlead monitor", "fairlead monitor --service default/web", "fairlead monitor -o json"),
		Args:    noArguments,
	}
	service := cmd.Flags().String("service", "", "only connections to the Service `NAMESPACE/NAME`")
	output, socket := outputFlag(cmd, "json", "yaml"), socketFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *service != "" {
			if _, err := serviceName("", *service); err != nil {
				return err
			}
		}
		emit := e.refusalPrinter(output)
		return api.NewClient(*socket).Refusals(cmd.Context(), func(r api.Refusal) error {
			if *service != "" && r.Service != *service {
				return nil
			}
			return emit(r)
		})
	}
	return cmd
}

// refusalPrinter returns what prints one refusal. A line of a table cannot
// wait for the ones that follow, so its columns only ever grow.
func (e *env) refusalPrinter(output *format) func(api.Refusal) error {
	switch output.value {
	case "json":
		encoder := json.NewEncoder(e.out)
		encoder.SetEscapeHTML(false)
		return func(r api.Refusal) error {
			if err := encoder.Encode(r); err != nil {
				return fmt.Errorf("write the refusal: %w", err)
			}
			return nil
		}
	case "yaml":
		return func(r api.Refusal) error { return e.printData(output, r) }
	}
	// The usual widths, so that few lines are out of line.
	lines := &table{
		columns: columns("TIME", "PROCESS", "FROM", "ADDRESS", "SERVICE", "ACTION", "REASON"),
		widths:  []int{len("15:04:05.000"), 20, len("netns 0000"), 20, 24, len("reject"), 0},
	}
	return func(r api.Refusal) error {
		lines.rows = nil
		lines.add(refusalCells(r)...)
		text := lines.text(false, e.colour)
		lines.headless = true
		return e.print(text)
	}
}

func refusalCells(r api.Refusal) []string {
	from := fmt.Sprintf("netns %d", r.NetNS)
	if r.Host {
		from = "host"
	}
	service := r.Service
	if service != "" && r.PortName != "" {
		service += ":" + r.PortName
	}
	return []string{
		r.Time.Local().Format("15:04:05.000"),
		fmt.Sprintf("%s[%d]", strings.Map(printable, r.Command), r.PID),
		from, target(r.Address, r.Port, r.Protocol), service, r.Action, r.Reason,
	}
}

// printable keeps the name that a process gave itself from steering the
// terminal.
func printable(r rune) rune {
	if r < ' ' || r == 0x7f {
		return '?'
	}
	return r
}
