// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

// Result is what came out. It is good if nothing was found.
type Result struct {
	Rounds []RoundResult `json:"rounds"`
	// Connections are those that clients opened, watches among them. Failed is
	// how many of them came to no answer; Closed is how many connections a
	// server closed because it stopped, and Unserved how many it, or one that was
	// starting, answered with another status than 200.
	Connections int `json:"connections"`
	Failed      int `json:"failed"`
	Closed      int `json:"closed"`
	Unserved    int `json:"unserved"`
	// Slowest is the longest that a connection took, with its answer.
	Slowest         float64 `json:"slowestSeconds"`
	SlowestInWindow float64 `json:"slowestInWindowSeconds"`
	// Watches is how many ended, and Events what they saw.
	Watches   int                `json:"watches"`
	Events    int                `json:"events"`
	LeaseGaps map[string]float64 `json:"largestLeaseGapSeconds"` // by node
	Findings  []string           `json:"findings"`
}

// RoundResult is one round. Its window is the time in which default/kubernetes
// was empty; its numbers are of that time.
type RoundResult struct {
	Stopped     string  `json:"stopped"`
	Window      float64 `json:"windowSeconds"`
	Serving     float64 `json:"proxiesBackSeconds"` // since they were killed
	Connections int     `json:"connections"`
	Failed      int     `json:"failed"`
	Retained    int     `json:"retained"` // looks that saw the row retained
}

// Good says whether the cluster came through unharmed.
func (r Result) Good() bool { return len(r.Findings) == 0 }

// Summary is for a terminal.
func (r Result) Summary() string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ROUND\tSTOPPED\tEMPTY FOR\tPROXIES BACK\tCONNECTIONS\tFAILED\tSEEN RETAINED")
	for i, round := range r.Rounds {
		fmt.Fprintf(table, "%d\t%s\t%.1f s\t%.1f s\t%d\t%d\t%d\n",
			i+1, round.Stopped, round.Window, round.Serving, round.Connections, round.Failed, round.Retained)
	}
	table.Flush()

	shortest, longest := r.windows()
	fmt.Fprintf(&text, "\nin each round default/kubernetes was empty, for %.1f to %.1f s\n", shortest, longest)
	fmt.Fprintf(&text, "%d connections in all: %d failed, %d were closed by a server that stopped, %d met one that was starting or stopping\n",
		r.Connections, r.Failed, r.Closed, r.Unserved)
	fmt.Fprintf(&text, "slowest connection: %.1f s while it was empty, %.1f s in all; %d watches ended, after %d events\n",
		r.SlowestInWindow, r.Slowest, r.Watches, r.Events)
	fmt.Fprintf(&text, "largest gap between renewals of a lease:")
	for _, node := range slices.Sorted(maps.Keys(r.LeaseGaps)) {
		fmt.Fprintf(&text, " %s %.1f s", node, r.LeaseGaps[node])
	}
	text.WriteString("\n")
	if r.Good() {
		text.WriteString("nobody noticed\n")
		return text.String()
	}
	text.WriteString("found:\n")
	for _, finding := range r.Findings {
		fmt.Fprintf(&text, "  %s\n", finding)
	}
	return text.String()
}

func (r Result) windows() (shortest, longest float64) {
	for i, round := range r.Rounds {
		if i == 0 || round.Window < shortest {
			shortest = round.Window
		}
		longest = max(longest, round.Window)
	}
	return shortest, longest
}

// Save writes the result.
func (r Result) Save(path string) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(r); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.WriteFile(path, text.Bytes(), 0o644)
}

// Load reads a result.
func Load(path string) (Result, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Result{}, err
	}
	var r Result
	if err := json.Unmarshal(text, &r); err != nil {
		return Result{}, fmt.Errorf("read the result %s: %w", path, err)
	}
	return r, nil
}
