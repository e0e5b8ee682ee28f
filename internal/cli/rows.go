// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/fairlead-io/fairlead/internal/api"
)

// fewEntries is how many entries of a list a narrow cell shows.
const fewEntries = 3

// frontendTable shows rows. Those that no agent holds have neither a status
// nor an age, and the table has no columns for them.
func frontendTable(rows []api.Frontend, fromAgent, wide bool) *table {
	t := &table{columns: columns("ADDRESS", "TYPE", "SCOPE", "SERVICE", "PORTNAME", "ACTION", "BACKENDS")}
	if fromAgent {
		t.columns = append(t.columns, columns("STATUS", "AGE")...)
	}
	t.columns = append(t.columns, wideColumns("REASON", "AFFINITY", "DRAINING", "RANGES")...)
	for _, f := range rows {
		cells := []string{target(f.Address, f.Port, f.Protocol), f.Type, f.Scope, f.Service, f.PortName, f.Action, backendCell(f.Backends, wide)}
		if fromAgent {
			cells = append(cells, statusCell(f.Status), age(f.Since))
		}
		t.add(append(cells, reasonOf(f), secondsCell(f.AffinitySeconds), backendCell(f.Draining, wide), listCell(f.SourceRanges, wide))...)
	}
	return t
}

// notInForce marks a row that the kernel could not take: what the row shows is
// wanted, while the kernel serves something else or nothing.
const notInForce = "Error: not in force"

func statusCell(status string) string {
	if status == api.StatusError {
		return notInForce
	}
	return status
}

// reasonOf is why the row is as it is; an error of the kernel comes first.
func reasonOf(f api.Frontend) string {
	if f.Error != nil && *f.Error != "" {
		return *f.Error
	}
	return f.Reason
}

func serviceTable(services []api.Service, wide bool) *table {
	t := &table{columns: append(
		columns("SERVICE", "TYPE", "PORTS", "FRONTENDS", "BACKENDS", "DRAINING", "STATUS", "AGE"),
		wideColumns("REASON", "SELECTION", "VERSION", "SLICES")...)}
	for _, s := range services {
		slices := make([]string, len(s.Slices))
		for i, slice := range s.Slices {
			slices[i] = slice.Name
		}
		reason := s.Reason
		if s.Error != "" {
			reason = s.Error
		}
		t.add(s.Service, s.Type, listCell(s.Ports, wide), strconv.Itoa(s.Frontends), backendCount(s), strconv.Itoa(s.Draining),
			s.Status, age(&s.Since), reason, s.Selection, s.ResourceVersion, listCell(slices, wide))
	}
	return t
}

// backendCount tells what the API has from what is kept without it.
func backendCount(s api.Service) string {
	if s.Retained == 0 {
		return strconv.Itoa(s.Backends)
	}
	return fmt.Sprintf("%d (%d retained)", s.Backends, s.Retained)
}

func backendTable(rows []api.BackendRow, wide bool) *table {
	t := &table{columns: append(
		columns("BACKEND", "SERVICE", "PORTNAME", "STATE", "LOCAL", "NODE"),
		wideColumns("DRAINING", "ROLES", "SLICES")...)}
	for _, b := range rows {
		t.add(target(b.Address, b.Port, b.Protocol), b.Service, b.PortName, b.State, strconv.FormatBool(b.Local), b.Node,
			strconv.FormatBool(b.Draining), listCell(b.Roles, wide), listCell(b.Slices, wide))
	}
	return t
}

func kernelTable(k api.Kernel, wide bool) *table {
	t := &table{columns: append(
		columns("ADDRESS", "SCOPE", "SERVICE", "PORTNAME", "ACTION", "BACKENDS", "SET", "GENERATION", "PROBLEM"),
		wideColumns("ROLE", "OWNER", "BASE", "AFFINITY", "MAGLEV", "DRAINING", "RANGES")...)}
	add := func(address string, e api.KernelEntry) {
		t.add(address, e.Scope, e.Service, e.PortName, e.Action, slotCell(e.Backends, wide), number(e.Set), number(e.Generation), e.Problem,
			e.Role, number(e.Owner), number(e.Base), secondsCell(e.AffinitySeconds), entriesCell(e.MaglevEntries), slotCell(e.Draining, wide), listCell(e.SourceRanges, wide))
	}
	for _, e := range k.Entries {
		add(target(e.Address, e.Port, e.Protocol), e)
	}
	if !wide {
		return t
	}
	for _, e := range k.UnusedSets {
		add("(no frontend)", e)
	}
	return t
}

// target writes ADDR:PORT/PROTO, as every command reads it.
func target(address string, port uint16, protocol string) string {
	return api.HostPort(address, port) + "/" + protocol
}

// backendCell shows what a new connection may meet; a backend that is not
// active says why it may.
func backendCell(list []api.Backend, wide bool) string {
	return listCell(backendWords(list), wide)
}

func backendWords(list []api.Backend) []string {
	words := make([]string, len(list))
	for i, b := range list {
		words[i] = api.HostPort(b.Address, b.Port)
		if b.State != "active" {
			words[i] += "(" + b.State + ")"
		}
	}
	return words
}

func slotCell(list []api.KernelBackend, wide bool) string {
	words := make([]string, len(list))
	for i, b := range list {
		words[i] = api.HostPort(b.Address, b.Port)
	}
	return listCell(words, wide)
}

func listCell(words []string, wide bool) string {
	if wide || len(words) <= fewEntries {
		return strings.Join(words, ",")
	}
	return fmt.Sprintf("%s + %d more...", strings.Join(words[:fewEntries], ","), len(words)-fewEntries)
}

func secondsCell(seconds uint32) string {
	if seconds == 0 {
		return ""
	}
	return number(seconds) + "s"
}

func entriesCell(entries uint32) string {
	if entries == 0 {
		return ""
	}
	return number(entries) + " entries"
}

func number(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

func age(since *time.Time) string {
	if since == nil || since.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(*since))
}

// ago puts a moment into a sentence.
func ago(moment time.Time) string {
	if moment.IsZero() {
		return "never"
	}
	return duration.HumanDuration(time.Since(moment)) + " ago"
}
