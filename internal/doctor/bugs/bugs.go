// SPDX-License-Identifier: Apache-2.0

// Package bugs is the list of defects that versions of data planes are known
// for, and which versions a sample shows to be installed.
//
// What is on the list stands in bugs.yaml, with a source for each range of
// versions. Whether a defect bites a cluster is for checks to say, and may not
// enter.
package bugs

import (
	_ "embed"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// Bug is a defect.
type Bug struct {
	ID        string    `yaml:"id"` // PROJECT-NUMBER
	Component Component `yaml:"component"`
	// Title is a clause without its subject, which is the component.
	Title    string  `yaml:"title"`
	Affected []Range `yaml:"affected"`
	// Check is the id of the check that looks for it, if it has one of its own.
	Check string `yaml:"check"`
	// Needs is the name of what a cluster must have for the defect to bite.
	Needs string `yaml:"needs"`
	// Severity is that of a cluster that has it.
	Severity string   `yaml:"severity"`
	Effect   []string `yaml:"effect"` // sentences
	Remedy   string   `yaml:"remedy"` // besides a version that has the fix
	Sources  []string `yaml:"sources"`
}

// Component is a program that serves Services.
type Component string

// The components of which bugs are listed.
const (
	Cilium    Component = "cilium"
	KubeProxy Component = "kube-proxy"
	Calico    Component = "calico"
)

// Name is that of the project, for people.
func (c Component) Name() string {
	switch c {
	case Cilium:
		return "Cilium"
	case Calico:
		return "Calico"
	}
	return string(c)
}

// Range is the versions from one on, up to the first that has the fix, or, where
// none is known, up to the newest that is known to lack it.
type Range struct {
	From    Version  `yaml:"from"`
	Before  *Version `yaml:"before"`
	Through *Version `yaml:"through"`
}

// Contains says whether a version is known to be affected.
func (r Range) Contains(v Version) bool {
	if v.Compare(r.From) < 0 {
		return false
	}
	if r.Before != nil {
		return v.Compare(*r.Before) < 0
	}
	return v.Compare(*r.Through) <= 0
}

func (r Range) String() string {
	if r.Before != nil {
		return fmt.Sprintf("%s and later, fixed in %s", r.From, r.Before)
	}
	return fmt.Sprintf("%s to %s, and perhaps later", r.From, r.Through)
}

// In returns the range that a version lies in; false if it is in none.
func (b *Bug) In(v Version) (Range, bool) {
	for _, r := range b.Affected {
		if r.Contains(v) {
			return r, true
		}
	}
	return Range{}, false
}

//go:embed bugs.yaml
var list []byte

// All are the bugs, in the order of the list.
func All() []Bug {
	all, err := parse(list)
	if err != nil {
		panic(fmt.Sprintf("the list of bugs that is built in is damaged: %v", err))
	}
	return all
}

// Find returns a bug of the list by its id.
func Find(id string) (Bug, bool) {
	for _, b := range All() {
		if b.ID == id {
			return b, true
		}
	}
	return Bug{}, false
}

func parse(data []byte) ([]Bug, error) {
	var all []Bug
	if err := yaml.Unmarshal(data, &all); err != nil {
		return nil, fmt.Errorf("read the list of bugs: %w", err)
	}
	for _, b := range all {
		for _, r := range b.Affected {
			if (r.Before == nil) == (r.Through == nil) {
				return nil, fmt.Errorf("bug %s: a range has either before or through", b.ID)
			}
		}
	}
	return all, nil
}
