// SPDX-License-Identifier: Apache-2.0

// Package facts is what a doctor knows of a case: the records of a collection,
// read into typed values and sorted by sample and by node.
//
// It reads and joins; it judges nothing. Checks read it and change nothing.
// What could not be read is a fact as well: whatever is not known must not look
// as if it did not exist.
package facts

import (
	"cmp"
	"reflect"
	"slices"
	"time"

	"github.com/fairlead-io/fairlead/internal/adapter"
	"github.com/fairlead-io/fairlead/internal/evidence"
	"github.com/fairlead-io/fairlead/internal/journal"
)

// Case is all that was collected.
type Case struct {
	Samples []*Sample // by number; there may be none
	Logs    []*Log
	// Spoken is when the newest line of all logs was written; zero: none says.
	Spoken time.Time
	// Noted is that the records say themselves when they were collected. If not,
	// their times are those of files, which may have been copied since.
	Noted bool
	// Events are what a journal tells, oldest first, and Journal is its path where
	// it was read; "": that is not known.
	Events  []journal.Event
	Journal string
	// Unread are the records that could not be read, or only in part.
	Unread []Unread
}

// Last is the newest sample; nil if there is none.
func (c *Case) Last() *Sample {
	if len(c.Samples) == 0 {
		return nil
	}
	return c.Samples[len(c.Samples)-1]
}

// Unread is a record that tells less than it should.
type Unread struct {
	Record *evidence.Record
	Why    string
}

// Sample is what was read at about one moment.
type Sample struct {
	Number int
	// From and To are when its first and its last record were begun.
	From, To time.Time
	// Objects is what the API said; nil: it was not asked, or did not answer.
	Objects *Objects
	// Version is the API server's, as "1.35.4"; "" if it was not asked.
	Version string
	Nodes   []*Node // by name
	Access  []Access

	read      map[source]bool
	converted *converted
	worlds    map[worldKey]*World
	derived   map[reflect.Type]any
}

// source names what was read in a sample.
type source struct{ node, command string }

// Has says whether the output of a command on a node was read in the sample, so
// that it speaks against what it does not show.
func (s *Sample) Has(node, command string) bool { return s.read[source{node, command}] }

// Node returns what is known of a node; nil if nothing is.
func (s *Sample) Node(name string) *Node {
	i, found := slices.BinarySearchFunc(s.Nodes, name, func(n *Node, name string) int { return cmp.Compare(n.Name, name) })
	if !found {
		return nil
	}
	return s.Nodes[i]
}

// Node is what is known of one node at one moment.
type Node struct {
	Name string
	// Dumps are what data planes say of Services, from the first layer to the
	// kernel.
	Dumps     []Dump
	Fairlead  *Fairlead  // nil: nothing was collected of it
	Cilium    *Cilium    // nil: nothing was collected of it
	KubeProxy *KubeProxy // nil: nothing was collected of it
	Conntrack *Conntrack // nil: not read
	Probes    []Probe
}

// Dump is a table of Services of one layer of a data plane.
type Dump struct {
	adapter.Dump
	DataPlane DataPlane
	Layer     Layer
	Record    *evidence.Record
}

// DataPlane is a Service proxy.
type DataPlane string

// The data planes.
const (
	PlaneFairlead  DataPlane = "fairlead"
	PlaneCilium    DataPlane = "cilium"
	PlaneKubeProxy DataPlane = "kube-proxy"
)

// Layer is what part of a data plane a dump is of, in the order in which
// Services go through them.
type Layer int

// The layers of a data plane.
const (
	Backends  Layer = iota // the agent's backends by Service
	Frontends              // the agent's frontends
	Kernel                 // what connections meet
)

func (l Layer) String() string { return [...]string{"backends", "frontends", "kernel"}[l] }
