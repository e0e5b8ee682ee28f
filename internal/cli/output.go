// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// format is the value of --output; "" prints for people.
type format struct {
	value   string
	allowed []string
}

func (f *format) String() string { return f.value }

// Type is the name of the flag's values in the help text.
func (f *format) Type() string { return strings.Join(f.allowed, "|") }

// Set takes one of the allowed values.
func (f *format) Set(value string) error {
	if !slices.Contains(f.allowed, value) {
		return fmt.Errorf("use one of %s", strings.Join(f.allowed, ", "))
	}
	f.value = value
	return nil
}

func (f *format) wide() bool { return f.value == "wide" }

// data says whether the answer goes to a program.
func (f *format) data() bool { return f.value == "json" || f.value == "yaml" }

// outputFlag adds -o to a command. Only a command whose table has more to show
// allows "wide".
func outputFlag(cmd *cobra.Command, allowed ...string) *format {
	f := &format{allowed: allowed}
	cmd.Flags().VarP(f, "output", "o", "print `FORMAT`: "+f.Type())
	// It fails for a flag that does not exist only.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(allowed, cobra.ShellCompDirectiveNoFileComp))
	return f
}

// printData writes an answer as JSON or YAML. Several YAML answers are the
// documents of one stream, which a line parts.
func (e *env) printData(f *format, answer any) error {
	if f.value == "yaml" {
		body, err := yaml.Marshal(answer)
		if err != nil {
			return fmt.Errorf("write the answer as YAML: %w", err)
		}
		text := string(body)
		if e.documents++; e.documents > 1 {
			text = "---\n" + text
		}
		return e.print(text)
	}
	encoder := json.NewEncoder(e.out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(answer); err != nil {
		return fmt.Errorf("write the answer as JSON: %w", err)
	}
	return nil
}

func (e *env) print(text string) error {
	if _, err := fmt.Fprint(e.out, text); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// warn tells a person something beside the answer.
func (e *env) warn(format string, args ...any) {
	fmt.Fprintln(e.err, "fairlead: "+clean(fmt.Sprintf(format, args...)))
}
