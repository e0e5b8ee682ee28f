// SPDX-License-Identifier: Apache-2.0

package cilium

import (
	"bytes"
	"fmt"
	"iter"
	"net/netip"
	"strings"
)

// Endpoint is a pod as the agent knows it.
type Endpoint struct {
	ID int
	// Pod is NAMESPACE/NAME; "" where the output leaves it out.
	Pod       string
	Addresses []netip.Addr
	// Identity is 0 while the agent has not given it one.
	Identity int
	// Labels are those of the identity, as reserved:init or k8s:app=web.
	Labels []string
	// State is the agent's word: ready, waiting-for-identity, disconnecting…
	State string
	// Ingress and Egress are whether policy is enforced.
	Ingress, Egress bool
	Line            int
}

// Identity is a set of labels with the number that policies know it by.
type Identity struct {
	ID     int
	Labels []string
	Line   int
}

// Status is what the agent says of its own health.
type Status struct {
	// Kubernetes is "Ok" or why not; KubernetesDetail the rest of the line.
	Kubernetes, KubernetesDetail string
	// KubeProxyReplacement is True, False, Strict, Partial, Probe or Disabled.
	KubeProxyReplacement string
	// Cilium is the agent's own line: "Ok 1.18.5 (v1.18.5-…)".
	Cilium string
	// Controllers are failing ones, and why; lines as they stand.
	Failing []string
	// Lines are all that it printed, for excerpts.
	Lines []string
}

// faults collect what could not be read of an output, by line.
type faults struct {
	first []string
	count int
}

// maxFaults is how many faults are named; the rest are counted.
const maxFaults = 3

func (f *faults) add(line int, format string, args ...any) {
	f.count++
	if f.count <= maxFaults {
		f.first = append(f.first, fmt.Sprintf("line %d: %s", line, fmt.Sprintf(format, args...)))
	}
}

func (f *faults) err() error {
	switch {
	case f.count == 0:
		return nil
	case f.count > maxFaults:
		return fmt.Errorf("%s; and %d more", strings.Join(f.first, "; "), f.count-maxFaults)
	}
	return fmt.Errorf("%s", strings.Join(f.first, "; "))
}

// lines yields the lines of an output with their numbers, from 1, without what
// kubectl says of its own.
func lines(text []byte) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		n := 0
		for line := range bytes.Lines(text) {
			n++
			if bytes.HasPrefix(line, kubectlSays) {
				continue
			}
			if !yield(n, strings.TrimRight(string(line), "\r\n")) {
				return
			}
		}
	}
}

// kubectlSays begins the line with which kubectl tells the container that it
// chose; it comes first where both outputs of kubectl went into one file.
var kubectlSays = []byte("Defaulted container ")

// jsonIn returns an output from where its JSON begins, and the number of that
// line; nil if it is no JSON.
func jsonIn(text []byte) (json []byte, line int) {
	at := 0
	for l := range bytes.Lines(text) {
		line++
		switch trimmed := bytes.TrimSpace(l); {
		case len(trimmed) == 0 || bytes.HasPrefix(l, kubectlSays):
		case trimmed[0] == '[' || trimmed[0] == '{':
			return text[at:], line
		default:
			return nil, 0
		}
		at += len(l)
	}
	return nil, 0
}

// torn says that an output ends within its last line.
func torn(text []byte) bool { return len(text) > 0 && text[len(text)-1] != '\n' }
