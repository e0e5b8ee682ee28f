// SPDX-License-Identifier: Apache-2.0

// Package reflector turns a source of Kubernetes objects (an API server, or a
// watched folder of manifests) into a stream of typed events.
//
// It converts objects to the model's values at the door and keeps nothing
// else of them. A source that fails is stale, never empty: no error ever
// becomes a deletion. The package decides nothing about Services.
package reflector

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/model"
)

// Kind is a kind of object the proxy reads.
type Kind uint8

// The kinds of object.
const (
	KindService Kind = iota
	KindEndpointSlice
	KindNode
)

func (k Kind) String() string { return [...]string{"Service", "EndpointSlice", "Node"}[k] }

// Event says what an object now is, or that it is gone: then the pointer of
// its kind is nil and ResourceVersion is the last one known.
type Event struct {
	Kind            Kind
	Name            model.Name // a Node has no namespace
	ResourceVersion string
	Received        time.Time
	Service         *model.Service
	Slice           *model.EndpointSlice
	Node            *Node
}

// Node is what the API says of this node. The agent joins it with what the
// kernel says to a model.Node.
type Node struct {
	Name      string
	Zone      string
	Addresses []string // status.addresses of type InternalIP and ExternalIP
	// Leaving says that load balancers shall send nothing new here (R30): the
	// node is being deleted, or marked for it by the cluster autoscaler.
	Leaving bool
}

// Problem is an object, or a file, that could not be read. The last good
// content stays in force.
type Problem struct {
	File     string // empty for an API server
	Document int    // 1-based within the file; 0 = the file as a whole
	Line     int    // 1-based; 0 = unknown
	Object   string // "Service default/web", as far as known
	Field    string // "spec.ports[0].port"
	Message  string
}

// Error is one line: where, what, which field, and what is wrong with it.
func (p Problem) Error() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File)
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d", p.Line)
		}
		if p.Document > 0 {
			fmt.Fprintf(&b, ": document %d", p.Document)
		}
		b.WriteString(": ")
	}
	if p.Object != "" {
		b.WriteString(p.Object + ": ")
	}
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	b.WriteString(p.Message)
	return b.String()
}

// Handler takes what a source says. Calls may come from several goroutines;
// each call is short and never blocks on the kernel or the network.
type Handler interface {
	// Events delivers changes in order. All that one list or one re-read of a
	// file changed comes in one call, so that an endpoint which moves between
	// slices is never seen absent (R4). Events about an object that did not
	// change are allowed. The slice is the handler's from then on.
	Events([]Event)
	// Listed says that the first list of a kind is complete and its events
	// have been delivered. It is called once per kind.
	Listed(Kind)
	// Stale says that a kind can no longer be followed, and why; nil says
	// that it is followed again.
	Stale(Kind, error)
	// Problems replaces the list of what cannot be read at present.
	Problems([]Problem)
}

// Objects is everything a source holds at one moment.
type Objects struct {
	Services []*model.Service
	Slices   []*model.EndpointSlice
	Nodes    []*Node
}

// Source is where objects come from.
type Source interface {
	// Run follows the source until ctx ends, then returns nil. It retries by
	// itself; an error is one that no retry can mend (a folder that does not
	// exist at the start, a kubeconfig that cannot be read).
	Run(ctx context.Context, h Handler) error
	// List reads everything afresh, beside what Run does.
	List(ctx context.Context) (Objects, []Problem, error)
	// String names the source for a person: a URL or a folder.
	String() string
}
