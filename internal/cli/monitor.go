// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"iter"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/internal/api"
)

func newMonitor(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "monitor",
		Short: "Show connections as they are refused",
		Long: `Show each connection that the agent's programs refuse, as it happens: which
process, or which packet on which device, dialled what, and why it was refused. It
goes on until it is interrupted. With -o json each line is one JSON object.`,
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
		stream, err := api.NewClient(*socket).Refusals(cmd.Context())
		if err != nil {
			return err
		}
		return e.printRefusals(output, *service, stream)
	}
	return cmd
}

// printRefusals prints those of a Service, or all, as they come.
func (e *env) printRefusals(output *format, service string, stream iter.Seq2[api.Refusal, error]) error {
	emit, err := e.refusalPrinter(output)
	if err != nil {
		return err
	}
	for refusal, err := range stream {
		if err != nil {
			return err
		}
		if service != "" && refusal.Service != service {
			continue
		}
		if err := emit(refusal); err != nil {
			return err
		}
	}
	return nil
}

// refusalPrinter returns what prints one refusal. Before people see the first
// they see the header, and so that the stream is open.
func (e *env) refusalPrinter(output *format) (func(api.Refusal) error, error) {
	if output.value == "yaml" {
		return func(r api.Refusal) error { return e.printData(output, r) }, nil
	}
	if output.value == "json" {
		return e.printLine, nil
	}
	// A line cannot wait for those that follow, so columns only ever grow. They
	// begin with the usual widths, and few lines will be out of line.
	lines := &table{
		columns: columns("TIME", "PROCESS OR DEVICE", "FROM", "ADDRESS", "SERVICE", "ACTION", "REASON"),
		widths:  []int{len("15:04:05.000"), 20, len("192.0.2.100:30000"), 20, 24, len("reject"), 0},
	}
	err := e.print(lines.text(false, e.colour))
	lines.headless = true
	return func(r api.Refusal) error {
		lines.rows = nil
		lines.add(refusalCells(r)...)
		return e.print(lines.text(false, e.colour))
	}, err
}

// printLine writes one line of NDJSON.
func (e *env) printLine(r api.Refusal) error {
	encoder := json.NewEncoder(e.out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(r); err != nil {
		return fmt.Errorf("write the refusal: %w", err)
	}
	return nil
}

func refusalCells(r api.Refusal) []string {
	at, from := fmt.Sprintf("%s[%d]", r.Command, r.PID), fmt.Sprintf("netns %d", r.NetNS)
	switch {
	case r.From != "":
		at, from = r.Device, r.From
	case r.Host:
		from = "host"
	}
	return []string{
		r.Time.Local().Format("15:04:05.000"),
		at, from, target(r.Address, r.Port, r.Protocol), serviceText(r.Service, r.PortName), r.Action, r.Reason,
	}
}

// serviceText names a Service port, as far as it is known.
func serviceText(service, portName string) string {
	if service == "" || portName == "" {
		return service
	}
	return service + ":" + portName
}
