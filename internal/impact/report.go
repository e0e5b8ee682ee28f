// SPDX-License-Identifier: Apache-2.0

package impact

import "k8s.io/apimachinery/pkg/runtime/schema"

// Severity is how bad a consequence is.
type Severity int

// From what is told to be complete, to what takes a cluster down. From Breaks
// on, something that is in use stops, or something that was closed opens.
const (
	Note   Severity = iota // nothing in use breaks: it comes back by itself, or nobody uses it
	Breaks                 // some users, pods or Services lose something they have
	Outage                 // the cluster's network, DNS, control plane or every write
)

// String is as people and programs read it.
func (s Severity) String() string { return [...]string{"Note", "Breaks", "Outage"}[s] }

// Consequence is one thing that people would see.
type Consequence struct {
	Severity Severity
	// Rank orders consequences of one severity: the higher the worse, about how
	// many pods, Services or users it hits.
	Rank int
	// ID is stable: the judge's word for it, such as rights-lost.
	ID string
	// Title says in one line what people would see, with the object that goes and
	// whoever loses: "pods created from now on have no network: Cilium's agent
	// (kube-system/cilium, 3 pods running) may no longer list pods".
	Title string
	// Objects are those that go and cause it, the first one stands for it.
	Objects []*Object
	// Affected are those that stay and are hit: pods, Services, subjects, as
	// people name them, sorted. Judges give all of them; who prints cuts.
	Affected []string
	// Detail are further sentences: what is lost exactly, what still grants, why
	// it is not worse, what brings it back.
	Detail []string
}

// Group is how many objects of a kind go.
type Group struct {
	Resource *Resource
	Named    int // by the command itself
	Cascaded int // with others
	// Examples are some of them, the named ones first.
	Examples []*Object
}

// Report is what a delete would do.
type Report struct {
	// Groups are sorted by group and resource; Named ones come first.
	Groups []Group
	// Consequences come worst first.
	Consequences []Consequence
	// Incomplete are sentences on what could not be judged, and why.
	Incomplete []string
}

// Worst is the severity of the worst consequence; Note if there is none.
func (r *Report) Worst() Severity {
	if len(r.Consequences) == 0 {
		return Note
	}
	return r.Consequences[0].Severity
}

// Case is what a judge sees: what is known, and what goes. Judges need not know
// each other, and must not be milder for what is unknown: they ask Need for
// each kind by whose objects they judge.
type Case struct {
	*State
	*Deletion

	needed   map[schema.GroupResource][]string
	notKnown []string
}

// Need notes that a judgement depends on all objects of a kind being known, and
// on what: "who mounts them". It is for kinds that bear on this case only.
func (c *Case) Need(gr schema.GroupResource, what string) {
	if c.Unknown(gr) != "" {
		c.needed[gr] = append(c.needed[gr], what)
	}
}

// NotKnown notes in a sentence what cannot be judged for any other reason than a
// kind that could not be read.
func (c *Case) NotKnown(sentence string) { c.notKnown = append(c.notKnown, sentence) }

// Judge looks at a case from one side.
type Judge func(*Case) []Consequence
