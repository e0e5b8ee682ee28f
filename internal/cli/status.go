// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/internal/api"
)

func newStatus(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the agent's health, and what it rests on",
		Long: `Show whether the agent is healthy and why not: its source and how far it has been
followed, its way to the API server, what is retained, the state of its rows, what
load balancers are told, the devices of the packet path and the programs on them and
on the cgroup, what the kernel lacks and what that costs, how full the maps are, and
what was refused.

The exit status is 1 if the agent is not healthy.`,
		Example: e.examples("fairlead status", "fairlead status -o wide", "fairlead status -w", "fairlead status -o json"),
		Args:    noArguments,
	}
	output, socket := outputFlag(cmd, "json", "yaml", "wide"), socketFlag(cmd)
	watch := cmd.Flags().BoolP("watch", "w", false, "go on, and print it again when it changes")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		client := api.NewClient(*socket)
		if *watch {
			return e.watchStatus(cmd.Context(), output, client)
		}
		status, err := client.Status(cmd.Context())
		if err != nil {
			return err
		}
		if err := e.printStatus(output, status); err != nil {
			return err
		}
		if !status.Healthy {
			return errFindings
		}
		return nil
	}
	return cmd
}

func (e *env) printStatus(output *format, status api.Status) error {
	if output.data() {
		return e.printData(output, status)
	}
	return e.print(statusText(status, output.wide(), e.colour))
}

// watchStatus looks every second, since health may change while no table does.
func (e *env) watchStatus(ctx context.Context, output *format, client *api.Client) error {
	w := watcher{env: e, output: output}
	return untilEnd(ctx, everySecond(), func() error {
		status, err := client.Status(ctx)
		if err != nil {
			return err
		}
		return w.printOnChange(status, func() error { return e.printStatus(output, status) })
	})
}

// statusText is a page: the facts first, then the tables that have rows.
func statusText(s api.Status, wide, colour bool) string {
	var b strings.Builder
	b.WriteString(statusFacts(s).text(false, colour))
	section(&b, "Findings", s.Findings)
	section(&b, "Objects that cannot be read", s.Problems)
	for _, t := range []*table{
		sourceTable(s), apiServerTable(s), retainedTable(s.Retained), healthTable(s), mapTable(s), featureTable(s, wide),
		deviceTable(s), attachmentTable(s, wide), refusalTable(s), packetTable(s),
	} {
		if len(t.rows) > 0 {
			b.WriteString("\n" + t.text(wide, colour))
		}
	}
	return b.String()
}

func section(b *strings.Builder, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s:\n", title)
	for _, line := range lines {
		b.WriteString("  " + clean(line) + "\n")
	}
}

func statusFacts(s api.Status) *table {
	t := &table{columns: columns("", ""), headless: true}
	t.add("Healthy:", yesNo(s.Healthy))
	t.add("Agent:", fmt.Sprintf("%s, process %d, started %s", s.Version, s.PID, ago(s.Started)))
	t.add("Node:", nodeText(s))
	t.add("Source:", s.Source)
	if s.APIServer != nil {
		t.add("API server:", apiServerText(*s.APIServer))
		t.add("State file:", orNone(s.APIServer.StateFile))
	}
	t.add("Tables:", fmt.Sprintf("%d Services, %d frontends, %d pending, %d errors", s.Services, s.Frontends, s.Pending, s.Errors))
	t.add("Kernel:", fmt.Sprintf("%s, written %s, compared %s, %d entries repaired", s.PinPath, ago(s.LastWrite), ago(s.LastCompared), s.Repaired))
	t.add("Socket path:", fmt.Sprintf("%s, on %s, %d UDP sockets released", s.SocketPath, s.Cgroup, s.SocketsReleased))
	t.add("Packet path:", s.PacketPath)
	t.add("Health:", healthText(s.Healthz))
	t.add("Metrics:", whereText(s.MetricsAddress))
	if r := s.Recording; r != nil {
		t.add("Journal:", fmt.Sprintf("%s, %d kinds, %d objects, %d events and %d gaps since the agent started", r.Journal, r.Kinds, r.Objects, r.Events, r.Gaps))
	}
	if s.EventsLost > 0 {
		t.add("Monitor:", fmt.Sprintf("%d refusals came too fast to be told one by one; the table of refused addresses counts them, too", s.EventsLost))
	}
	return t
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func nodeText(s api.Status) string {
	words := []string{s.Node}
	if s.Zone != "" {
		words = append(words, "zone "+s.Zone)
	}
	return strings.Join(append(words, s.NodeAddresses...), ", ")
}

func sourceTable(s api.Status) *table {
	t := &table{columns: columns("KIND", "STATE", "OBJECTS", "SINCE", "REASON", "MISSING", "ERROR")}
	for _, source := range s.SourceState {
		t.add(source.Kind, sourceState(source), fmt.Sprint(source.Objects), ago(source.Since), source.Reason, source.Missing, source.Error)
	}
	return t
}

func sourceState(s api.SourceStatus) string {
	switch {
	case s.Stale:
		return "stale"
	case !s.Synced:
		return "Pending"
	}
	return "synced"
}

// apiServerText says where the agent talks to the API server.
func apiServerText(a api.APIServer) string {
	if a.Current == "" {
		return "no endpoint is in use, answered " + ago(a.Answered)
	}
	return fmt.Sprintf("%s since %s, answered %s", a.Current, moment(a.Since), ago(a.Answered))
}

func apiServerTable(s api.Status) *table {
	t := &table{columns: columns("API SERVER", "KNOWN FROM", "STATE", "SINCE", "ERROR")}
	if s.APIServer == nil {
		return t
	}
	for _, e := range s.APIServer.Endpoints {
		t.add(e.URL, listCell(e.Sources, true), e.State, ago(e.Since), e.Error)
	}
	return t
}

// healthText says what those who ask about this node are told.
func healthText(h api.Healthz) string {
	text := fmt.Sprintf("/healthz %d, /livez %d, %s", h.Healthz, h.Livez, whereText(h.Address))
	if !h.NodeEligible {
		text += ", the node is gone or about to go"
	}
	return text
}

func whereText(address string) string {
	if address == "" {
		return "not served"
	}
	return "on " + address
}

// healthTable shows what load balancers are told about Services.
func healthTable(s api.Status) *table {
	t := &table{columns: columns("HEALTH CHECK", "PORT", "LOCAL-ENDPOINTS", "ANSWER", "ERROR")}
	for _, h := range s.HealthChecks {
		t.add(h.Service, fmt.Sprint(h.Port), fmt.Sprint(h.LocalEndpoints), fmt.Sprint(h.Status), h.Error)
	}
	return t
}

func mapTable(s api.Status) *table {
	t := &table{columns: append(columns("MAP", "USED", "CAPACITY", "LARGEST-FREE", "MEMORY"), wideColumns("EVICTIONS")...)}
	for _, m := range s.Maps {
		t.add(m.Name, fmt.Sprint(m.Used), fmt.Sprint(m.Capacity), fmt.Sprint(m.LargestFree), bytesText(m.Bytes), fmt.Sprint(m.Evictions))
	}
	return t
}

// bytesText writes a size as a person reads it.
func bytesText(n uint64) string {
	const kibi = 1 << 10
	if n < kibi {
		return fmt.Sprintf("%d B", n)
	}
	size, units := float64(n)/kibi, "KMGTPE"
	for size >= kibi {
		size, units = size/kibi, units[1:]
	}
	return fmt.Sprintf("%.1f %ciB", size, units[0])
}

// featureTable shows what is missing; with -o wide also what is there.
func featureTable(s api.Status, wide bool) *table {
	t := &table{columns: columns("KERNEL FEATURE", "PRESENT", "COST")}
	for _, f := range s.Features {
		if !f.Present || wide {
			t.add(f.Name, yesNo(f.Present), f.Cost)
		}
	}
	return t
}

// deviceTable shows the devices of the packet path.
func deviceTable(s api.Status) *table {
	t := &table{columns: append(columns("DEVICE", "SIDE", "ATTACHED", "PROBLEM"), wideColumns("INDEX", "WHY")...)}
	for _, d := range s.Devices {
		t.add(d.Name, d.Side, d.Attached, d.Problem, fmt.Sprint(d.Index), d.Why)
	}
	return t
}

// attachmentTable shows the programs of others, which were there before ours;
// with -o wide also ours.
func attachmentTable(s api.Status, wide bool) *table {
	t := &table{columns: columns("HOOK", "PROGRAM", "ID", "OWNER")}
	for _, a := range s.Attachments {
		owner := "other"
		if a.Ours {
			owner = "fairlead"
		}
		if !a.Ours || wide {
			t.add(strings.TrimSpace(a.Device+" "+a.Hook), a.Program, fmt.Sprint(a.ID), owner)
		}
	}
	return t
}

func refusalTable(s api.Status) *table {
	t := &table{columns: columns("REFUSED ADDRESS", "SERVICE", "COUNT", "REASON")}
	for _, r := range s.Refusals {
		t.add(target(r.Address, r.Port, r.Protocol), r.Service, fmt.Sprint(r.Count), r.Reason)
	}
	return t
}

// packetTable shows what the packet path met at all.
func packetTable(s api.Status) *table {
	t := &table{columns: columns("PACKETS", "COUNT")}
	for _, p := range s.Packets {
		if p.Count > 0 {
			t.add(p.What, fmt.Sprint(p.Count))
		}
	}
	return t
}
