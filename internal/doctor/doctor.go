// SPDX-License-Identifier: Apache-2.0

// Package doctor compares what should be with what is, and explains the first
// place where they part.
//
// Package facts reads what was collected into samples: moments at which each
// layer was read. A check looks at a sample, or at the whole case, and says
// what is wrong with it. Examine runs the checks, believes of states only what
// every sample shows, joins what is the same on several nodes, and puts causes
// above their consequences.
//
// Nothing in this room or in a check asks a cluster, reads a file or a clock:
// the same evidence gives the same findings, live and from an archive.
package doctor

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/evidence"
	"github.com/fairlead-io/fairlead/internal/printable"
)

// Check is one thing that may be wrong.
type Check struct {
	// ID is stable: people silence and count findings by it.
	ID    string
	Title string
	Rank  Rank
	// Page is what it looks for, why, by which evidence, and what to do: README.md
	// of its folder.
	Page string
	// Sample looks at the state at one moment. What it finds counts if every
	// sample that could show it does.
	Sample func(*facts.Sample) []Finding
	// Case looks at what is no state: logs, history, differences of samples.
	Case func(*facts.Case) []Finding
}

// Rank orders checks in the direction in which trouble mostly spreads: of
// several causes of a finding the nearest one of a lower rank is named. Only
// where there is none may one of a higher rank explain it.
type Rank int

// The ranks, in the order in which trouble spreads.
const (
	RankVersion    Rank = iota // a defect that a version is known for
	RankConfig                 // how the cluster or an object is set up
	RankPermission             // who may do what
	RankAPI                    // what the API says
	RankAgent                  // what an agent's tables hold
	RankKernel                 // what the kernel holds
	RankReach                  // whether a component reaches the API server
	RankIdentity               // what a CNI makes of pods
	RankPods                   // whether pods reach anybody
	RankDNS                    // whether names are found
	RankConnection             // whether a connection works
)

// Severity is how bad a finding is.
type Severity int

// The severities. Info is no finding by itself: it does not change the exit
// status.
const (
	Info Severity = iota
	Warning
	Critical
)

var severities = []string{"info", "warning", "critical"}

func (s Severity) String() string { return severities[s] }

// MarshalJSON writes the severity as a word.
func (s Severity) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// Certainty is how sure a finding is.
type Certainty int

// The certainties. What a single sample shows may have been a moment between
// two writes, so it is only suspected.
const (
	Suspected Certainty = iota
	Confirmed
)

func (c Certainty) String() string { return [...]string{"suspected", "confirmed"}[c] }

// MarshalJSON writes the certainty as a word.
func (c Certainty) MarshalJSON() ([]byte, error) { return json.Marshal(c.String()) }

// Layer is where a finding lies: the first layer that is not as the one before.
type Layer string

// The layers, from what is asked for to what happens.
const (
	LayerAPI        Layer = "api"
	LayerAgent      Layer = "agent"
	LayerKernel     Layer = "kernel"
	LayerConnection Layer = "connection"
)

// Finding is one thing that is wrong.
type Finding struct {
	Check     string    `json:"check"`
	Severity  Severity  `json:"severity"`
	Certainty Certainty `json:"certainty"` // set by Examine, unless Certain
	Layer     Layer     `json:"layer,omitempty"`
	// Subject is what it is about, and with Check and Layer its identity: the same
	// subject in another sample or on another node is the same finding. A Service
	// as NAMESPACE/NAME, another object as KIND NAMESPACE/NAME.
	Subject string `json:"subject"`
	// Nodes are those on which it is so; empty for what is no node's.
	Nodes []string `json:"nodes"`
	// Title is one clause without the subject's kind; Detail are sentences.
	Title    string     `json:"title"`
	Detail   []string   `json:"detail"`
	Evidence []Evidence `json:"evidence"`
	Remedy   []Remedy   `json:"remedy"`
	Since    time.Time  `json:"since,omitzero"` // if the evidence tells

	// Breaks are names of what cannot work while this is so, and RestsOn of what
	// it would be a consequence of: see functions like Reach.
	Breaks  []string `json:"-"`
	RestsOn []string `json:"-"`
	// Key stands for the Title in the identity, where a title has numbers that
	// differ between samples and nodes.
	Key string `json:"-"`
	// Recent is that what it is about changed just before the sample, so that it
	// may be on its way. It is no finding by itself, and does not contradict that
	// of another sample.
	Recent bool `json:"-"`
	// Certain is that one sample is enough: an error that somebody got, a version,
	// a state that is not between two writes.
	Certain bool `json:"-"`
}

// Evidence is what shows it: a command, and the lines of its output that do.
type Evidence struct {
	Node    string    `json:"node,omitempty"`
	Command string    `json:"command"`
	Time    time.Time `json:"time,omitzero"`
	Path    string    `json:"path,omitempty"` // in the archive
	Excerpt string    `json:"excerpt"`
}

// Excerpt is the evidence of some lines of a record, in the record's words or in
// those that the person would see who ran its command.
func Excerpt(r *evidence.Record, lines ...string) Evidence {
	return Evidence{Node: r.Node, Command: r.Command, Time: r.Time, Path: r.Path, Excerpt: strings.Join(lines, "\n")}
}

// Join adds evidence to some; lines of one record stand together.
func Join(all []Evidence, more Evidence) []Evidence {
	for i := range all {
		if e := &all[i]; e.Path == more.Path && e.Node == more.Node && e.Command == more.Command && e.Time.Equal(more.Time) {
			e.Excerpt += "\n" + more.Excerpt
			return all
		}
	}
	return append(all, more)
}

// Remedy is what to do. Commands can be pasted into a shell.
type Remedy struct {
	Text     string   `json:"text"`
	Commands []string `json:"commands"`
}

// Kubectl is a command about one namespace. Names come from clusters and from
// archives, and so from strangers: all commands that hold one are written by it
// or by printable.Command.
func Kubectl(namespace string, words ...string) string {
	return printable.Command(append([]string{"kubectl", "--namespace", namespace}, words...)...)
}

// What findings break, and rest on. A node "" stands for all of them.

// Backends is that a Service's backends are in force on a node.
func Backends(service, node string) string { return "backends of " + service + at(node) }

// Kept is that no defect takes a Service's backends away.
func Kept(service, node string) string { return "backends kept of " + service + at(node) }

// Loop is that a component's way to the API server is none of the Services that
// it serves itself.
func Loop(component, node string) string { return "way out for " + component + at(node) }

// Advertised is that each API server has an address of its own in
// default/kubernetes.
func Advertised() string { return "own addresses of the API servers" }

// Reach is that a component reaches the API server from a node.
func Reach(component, node string) string { return "API server for " + component + at(node) }

// Permission is that a component may do what it has to.
func Permission(component string) string { return "permissions of " + component }

// Identities is that the pods of a node are known to its CNI.
func Identities(node string) string { return "identities" + at(node) }

// PodNetwork is that the pods of a node reach others.
func PodNetwork(node string) string { return "pod network" + at(node) }

// DNS is that names are found from a node.
func DNS(node string) string { return "DNS" + at(node) }

func at(node string) string {
	if node == "" {
		return ""
	}
	return " on " + node
}

// identity tells findings apart.
func (f *Finding) identity() string {
	return fmt.Sprintf("%s\x00%s\x00%s\x00%s", f.Check, f.Layer, f.Subject, cmp.Or(f.Key, f.Title))
}

// compareFindings is the order in which equals are shown: the worst first.
func compareFindings(a, b Finding) int {
	return cmp.Or(
		cmp.Compare(b.Severity, a.Severity),
		cmp.Compare(b.Certainty, a.Certainty),
		cmp.Compare(a.Check, b.Check),
		cmp.Compare(a.Subject, b.Subject),
		cmp.Compare(a.Layer, b.Layer),
		cmp.Compare(a.Title, b.Title),
		slices.Compare(a.Nodes, b.Nodes),
	)
}
