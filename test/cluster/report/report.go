// SPDX-License-Identifier: Apache-2.0

// Package report turns what upstream's test runner reports into results that
// can be kept and compared, and those into a page for people. It reads and
// writes files of results; it knows nothing of clusters.
package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// State says how a spec went.
type State string

// The states. Whatever is neither of the first two has failed.
const (
	Passed  State = "passed"
	Skipped State = "skipped"
	Failed  State = "failed"
)

// Spec is one of upstream's tests.
type Spec struct {
	Name   string `json:"name"`
	State  State  `json:"state"`
	Reason string `json:"reason,omitempty"` // why it failed or was skipped
}

// suite and specReport are the parts of the runner's report that matter here.
type suite struct {
	SpecialSuiteFailureReasons []string
	PreRunStats                struct{ SpecsThatWillRun int }
	SpecReports                []specReport
}

type specReport struct {
	ContainerHierarchyTexts []string
	LeafNodeType            string
	LeafNodeText            string
	State                   string
	Failure                 struct {
		Message  string
		Location struct {
			FileName   string
			LineNumber int
		}
	}
}

// Parse reads a report of the runner (Ginkgo's JSON) and returns the specs
// that were to run, sorted by name. What went wrong beside the specs, such as
// a time limit, is returned as a spec that failed.
func Parse(r io.Reader) ([]Spec, error) {
	var suites []suite
	if err := json.NewDecoder(r).Decode(&suites); err != nil {
		return nil, fmt.Errorf("read the report of the specs: %w", err)
	}
	var specs []Spec
	for _, s := range suites {
		specs = append(specs, s.specs()...)
	}
	slices.SortStableFunc(specs, func(a, b Spec) int { return cmp.Compare(a.Name, b.Name) })
	return specs, nil
}

func (s suite) specs() []Spec {
	var specs []Spec
	ran := 0
	for _, report := range s.SpecReports {
		spec, ok := report.spec()
		if !ok {
			continue
		}
		specs = append(specs, spec)
		if report.isSpec() {
			ran++
		}
	}
	for _, reason := range s.SpecialSuiteFailureReasons {
		specs = append(specs, Spec{"the run of all specs", Failed, reason})
	}
	if missing := s.PreRunStats.SpecsThatWillRun - ran; missing > 0 {
		specs = append(specs, Spec{"the run of all specs", Failed, fmt.Sprintf("%d specs were never started", missing)})
	}
	return specs
}

func (r specReport) isSpec() bool { return r.LeafNodeType == "It" }

// spec returns false for what was not asked for: specs out of focus, and the
// steps around the specs, unless they failed.
func (r specReport) spec() (spec Spec, ok bool) {
	spec = Spec{Name: r.name(), State: r.state(), Reason: r.reason()}
	switch {
	case spec.State == Skipped && spec.Reason == "":
		return Spec{}, false
	case !r.isSpec() && spec.State != Failed:
		return Spec{}, false
	case spec.State == Passed:
		spec.Reason = ""
	}
	return spec, true
}

func (r specReport) name() string {
	if !r.isSpec() {
		return strings.TrimSpace("[" + r.LeafNodeType + "] " + r.LeafNodeText)
	}
	return strings.Join(append(slices.Clone(r.ContainerHierarchyTexts), r.LeafNodeText), " ")
}

func (r specReport) state() State {
	switch r.State {
	case "passed":
		return Passed
	case "skipped", "pending":
		return Skipped
	}
	return Failed
}

// maxReason bounds what is quoted of a message.
const maxReason = 200

// folder is the part of a path that only the machine knows that ran the test.
var folder = regexp.MustCompile(`(^|[\s='"(])(?:/[\w.@~+-]+)+/([\w.@~+-]+)`)

// reason is the first line of the message, without paths of the machine, and
// where in upstream's source it comes from.
func (r specReport) reason() string {
	message, _, _ := strings.Cut(strings.TrimSpace(r.Failure.Message), "\n")
	message = folder.ReplaceAllString(message, "$1$2")
	if runes := []rune(message); len(runes) > maxReason {
		message = string(runes[:maxReason]) + "…"
	}
	if r.state() != Failed || r.Failure.Location.FileName == "" {
		return message
	}
	file := r.Failure.Location.FileName[strings.LastIndexByte(r.Failure.Location.FileName, '/')+1:]
	return strings.TrimSpace(fmt.Sprintf("%s (%s:%d)", message, file, r.Failure.Location.LineNumber))
}
