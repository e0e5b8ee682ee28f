// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"iter"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/internal/api"
)

func newMonitor(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "monitor",
		Short: "Show connections as they are refused, and steps of retentions",
		Long: `Show each connection that the agent's programs refuse, as it happens: which
process, or which packet on which device, dialled what, and why it was refused.

Beside them it shows each step by which the agent keeps the backends of the API
server's own Services while the API has none (retained, restored, verified, foreign,
ended), with the set in place of an address, and when it turns to another endpoint
of the API server (endpoint).

It goes on until it is interrupted. With -o json each line is one JSON object.`,
		Example: e.examples("fairlead monitor", "fairlead monitor --service default/web", "fairlead monitor -o json"),
		Args:    noArguments,
	}
	service := cmd.Flags().String("service", "", "only events of the Service `NAMESPACE/NAME`")
	output, socket := outputFlag(cmd, "json", "yaml"), socketFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *service != "" {
			if _, err := serviceName("", *service); err != nil {
				return err
			}
		}
		stream, err := api.NewClient(*socket).Events(cmd.Context())
		if err != nil {
			return err
		}
		return e.printEvents(output, *service, stream)
	}
	return cmd
}

// printEvents prints those of a Service, or all, as they come.
func (e *env) printEvents(output *format, service string, stream iter.Seq2[api.Event, error]) error {
	emit, err := e.eventPrinter(output)
	if err != nil {
		return err
	}
	for event, err := range stream {
		if err != nil {
			return err
		}
		if service != "" && event.Service != service {
			continue
		}
		if err := emit(event); err != nil {
			return err
		}
	}
	return nil
}

// eventPrinter returns what prints one event.
func (e *env) eventPrinter(output *format) (func(api.Event) error, error) {
	return streamPrinter(e, output, &table{
		columns: columns("TIME", "PROCESS OR DEVICE", "FROM", "ADDRESS", "SERVICE", "ACTION", "REASON"),
		widths:  []int{len("15:04:05.000"), 20, len("192.0.2.100:30000"), 20, 24, len("reject"), 0},
	}, eventCells)
}

// eventCells puts the set that a step is about where a refusal has an address.
func eventCells(e api.Event) []string {
	cells := []string{e.Time.Local().Format("15:04:05.000")}
	service := serviceText(e.Service, e.PortName)
	if e.Event != api.EventRefused {
		return append(cells, "", "", strings.TrimSpace(e.Family+" "+e.Role), service, e.Event, e.Reason)
	}
	at, from := fmt.Sprintf("%s[%d]", e.Command, e.PID), fmt.Sprintf("netns %d", e.NetNS)
	switch {
	case e.From != "":
		at, from = e.Device, e.From
	case e.Host:
		from = "host"
	}
	return append(cells, at, from, target(e.Address, e.Port, e.Protocol), service, e.Action, e.Reason)
}

// serviceText names a Service port, as far as it is known.
func serviceText(service, portName string) string {
	if service == "" || portName == "" {
		return service
	}
	return service + ":" + portName
}
