// SPDX-License-Identifier: Apache-2.0

// Package adapter is the one shape into which Fairlead brings what another
// Service proxy says of itself: its frontends, and who stands behind them.
//
// Each proxy has a folder of its own, with a parser from text to a Dump and a
// page on how people record that text. Nothing in this room or in those
// folders opens a file, runs a program, asks an API server or judges what it
// read: a parser takes a reader, and says of each line that it could not
// understand which one that was.
package adapter

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead-io/fairlead/internal/model"
)

// Dump is what one command printed about a proxy's Services at one moment.
type Dump struct {
	// Source is the command that printed it, as people know it: "bpf lb list".
	Source string
	Time   time.Time
	// Families are those of which the source tells; empty is both.
	Families []model.Family
	// Frontends are in the source's order.
	Frontends []Frontend
	// HasPools is that the source lists backends by Service, and no frontends.
	HasPools bool
	Pools    []Pool
	// Silent says why the dump tells nothing of Services, if so: then nothing is
	// missing in it.
	Silent string
	// Absent are the families of which the source is whole and has no trace of a
	// proxy. Whether there should be one is not for it to say.
	Absent []model.Family
	// Problems name what could not be read, or does not fit together.
	Problems []Problem
	// Unread is that some of it could not be read: what is missing in the dump
	// may have stood there.
	Unread bool
}

// Frontend is one address that a proxy serves. What a source does not tell is
// the zero value.
type Frontend struct {
	// Address is unspecified for a NodePort on every address of the node.
	Address  netip.AddrPort
	Protocol model.Protocol // 0 = the source does not tell
	Scope    model.Scope
	// Type is as the source has it: ClusterIP, NodePort, HostPort, LocalRedirect…
	Type     string
	Service  model.Name
	PortName string
	// Action is what happens to a new connection while there is no backend.
	Action Action
	// Backends are those that the source lists; More is how many it only counts.
	Backends []Backend
	More     int
	// Flags are the source's own words.
	Flags []string
	Line  int
}

// Pool is the backends that a proxy knows of one Service port.
type Pool struct {
	Service  model.Name
	PortName string
	Backends []Backend
}

// Backend is one address behind a frontend.
type Backend struct {
	Address netip.AddrPort
	State   State
	// Weight is the share of new connections where the source gives shares.
	Weight int
}

// State is whether a proxy gives new connections to a backend.
type State uint8

// The states. Of a source that does not tell them, all are Unknown.
const (
	Unknown State = iota
	Active
	Terminating // it keeps connections; it gets new ones only if nobody else is there
	Unusable    // the proxy itself has taken it out: quarantined, in maintenance, weight 0
	Retained    // it gets new connections although the API has it no more: the proxy keeps it on purpose
	Draining    // it keeps connections, and gets no new ones even if nobody else is there
)

// Action is what a proxy does with a new connection that no backend gets.
type Action uint8

// The actions. A source whose proxy forwards, or that does not tell, has Forward.
const (
	Forward Action = iota
	Reject
	Drop
)

func (a Action) String() string { return [...]string{"forward", "reject", "drop"}[a] }

// Problem is something that a parser could not understand.
type Problem struct {
	Line int
	Text string
}

// maxProblems is how many problems of a dump are kept: who has more of them
// gave the wrong file.
const maxProblems = 20

// Problemf notes a line that could not be read.
func (d *Dump) Problemf(line int, format string, args ...any) {
	d.Unread = true
	d.Oddf(line, format, args...)
}

// Oddf notes a line that was read, and does not fit the others.
func (d *Dump) Oddf(line int, format string, args ...any) {
	if len(d.Problems) == maxProblems {
		d.Problems = append(d.Problems, Problem{line, "and more from here on"})
	}
	if len(d.Problems) < maxProblems {
		d.Problems = append(d.Problems, Problem{line, fmt.Sprintf(format, args...)})
	}
}

// Cut notes that nothing is read from a line on. What came before stands, but
// such a dump says nothing of what is not in it.
func (d *Dump) Cut(line int, format string, args ...any) {
	d.Problemf(line, format+"; nothing is read from here on", args...)
	d.Silent = "it is cut off or damaged"
}

// Tells says whether the source tells of a family.
func (d *Dump) Tells(family model.Family) bool {
	return len(d.Families) == 0 || slices.Contains(d.Families, family)
}
