// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Result is what one set of specs found with one proxy.
type Result struct {
	Proxy string `json:"proxy"`
	Set   string `json:"set"`
	Specs []Spec `json:"specs"`
}

// Count returns how many specs ended in a state.
func (r Result) Count(state State) int { return len(r.in(state)) }

func (r Result) in(state State) []Spec {
	var specs []Spec
	for _, s := range r.Specs {
		if s.State == state {
			specs = append(specs, s)
		}
	}
	return specs
}

// Summary is for a terminal: how many passed, and which did not.
func (r Result) Summary() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s with %s: %d passed, %d failed, %d skipped\n", r.Set, r.Proxy, r.Count(Passed), r.Count(Failed), r.Count(Skipped))
	for _, state := range []State{Failed, Skipped} {
		for _, s := range r.in(state) {
			fmt.Fprintf(&text, "  %-7s  %s: %s\n", s.State, s.Name, s.Reason)
		}
	}
	return text.String()
}

// Save writes the result into a folder, in place of what the same set found
// with the same proxy before.
func (r Result) Save(folder string) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(r); err != nil {
		return fmt.Errorf("write the result of %s with %s: %w", r.Set, r.Proxy, err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, r.Proxy+"-"+r.Set+".json"), text.Bytes(), 0o644)
}

// Load reads the results of a folder, sorted by proxy and set. The names of
// other files that are kept there have no hyphen.
func Load(folder string) ([]Result, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*-*.json"))
	if err != nil {
		return nil, err
	}
	var results []Result
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var r Result
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, fmt.Errorf("read the result %s: %w", path, err)
		}
		results = append(results, r)
	}
	return results, nil
}
