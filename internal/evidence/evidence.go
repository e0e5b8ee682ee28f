// SPDX-License-Identifier: Apache-2.0

// Package evidence is what was collected of a cluster: the outputs of commands
// and of the API, each with where, when and by which command it came, in one
// archive or in memory.
//
// A doctor that looks at a live cluster and one that opens an archive read the
// same records. What a record means may not enter, nor who collects it.
package evidence

import (
	"fmt"
	"time"
)

// Kind says what the content of a record is.
type Kind string

// The kinds. All but Dump, Log and Unknown are JSON or YAML of one shape, or
// what the named command prints.
const (
	// Objects are objects of the API: one, a List, or several documents, JSON or
	// YAML.
	Objects Kind = "objects"
	// Dump is a table of Services in any format that package adapter reads.
	Dump Kind = "dump"

	FairleadStatus    Kind = "fairlead-status"    // fairlead status -o json
	FairleadFrontends Kind = "fairlead-frontends" // fairlead get frontends -o json
	FairleadKernel    Kind = "fairlead-kernel"    // fairlead get kernel -o json

	CiliumVersion    Kind = "cilium-version"    // cilium-dbg version
	CiliumStatus     Kind = "cilium-status"     // cilium-dbg status, also --verbose, -o json
	CiliumConfig     Kind = "cilium-config"     // cilium-dbg config, also --all, -o json
	CiliumEndpoints  Kind = "cilium-endpoints"  // cilium-dbg endpoint list, also -o json
	CiliumIdentities Kind = "cilium-identities" // cilium-dbg identity list, also -o json
	CiliumMetrics    Kind = "cilium-metrics"    // cilium-dbg metrics list, also -o json

	KubeProxyVersion Kind = "kube-proxy-version" // kube-proxy --version
	KubeProxyMode    Kind = "kube-proxy-mode"    // GET /proxyMode of its metrics port

	Version   Kind = "version"   // GET /version of the API server
	Conntrack Kind = "conntrack" // lines KEY=NUMBER: nf_conntrack_count, nf_conntrack_max
	Access    Kind = "access"    // a List of SubjectAccessReviews with their status
	Probes    Kind = "probes"    // what package probe found
	Events    Kind = "events"    // fairlead events -o json
	Log       Kind = "log"       // lines that a process logged
	Unknown   Kind = "unknown"   // none of these: kept, and not read
)

// Record is one output.
type Record struct {
	// Path is where the content lies in an archive, with slashes; it is unique.
	Path string `json:"path"`
	Kind Kind   `json:"kind"`
	// Node is the name of the node that it tells of; "" for the cluster.
	Node string `json:"node,omitempty"`
	// Pod is NAMESPACE/NAME of the pod that printed it; "" if none did.
	Pod string `json:"pod,omitempty"`
	// Container is that of the pod; "" if it does not matter.
	Container string `json:"container,omitempty"`
	// Resources are those of which Objects holds all that the cluster has, as
	// RESOURCE or RESOURCE.GROUP: what is not among the objects does not exist.
	Resources []string `json:"resources,omitempty"`
	// Version is the resourceVersion of the list.
	Version string `json:"resourceVersion,omitempty"`
	// Command is what a person would run for the same, with all its arguments.
	Command string `json:"command,omitempty"`
	// Sample counts from 1 how often the layers were read; 0 is not a state at a
	// moment, like a log.
	Sample int `json:"sample,omitempty"`
	// Time is when reading began; Took is for how long it went on.
	Time time.Time     `json:"time,omitzero"`
	Took time.Duration `json:"tookNanoseconds,omitempty"`
	// Error says why there is no content, or only a part: the command is not
	// there, it failed, it ran out of time.
	Error string `json:"error,omitempty"`
	// Cut is that content beyond a bound was left out.
	Cut bool `json:"cut,omitempty"`

	Content []byte `json:"-"`
}

// Place says where a record comes from, for people.
func (r *Record) Place() string {
	where := r.Node
	if r.Pod != "" {
		where = r.Pod
	}
	switch {
	case r.Command == "":
		return r.Path
	case where == "":
		return r.Command
	}
	return fmt.Sprintf("%s (%s)", r.Command, where)
}

// Bundle is all that was collected at one occasion.
type Bundle struct {
	// Made is when the collection began, By the version of the program.
	Made time.Time
	By   string
	// Records are in the order of their samples, then as they were collected.
	Records []Record
	// Warnings say what of an archive is not among the records, one line each.
	Warnings []string
}
