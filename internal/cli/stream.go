// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
)

// streamPrinter returns what prints one value of a stream: a document of YAML,
// a line of JSON, or a line of the table. Before people see the first they see
// the header, and so that the stream is open. A line cannot wait for those that
// follow, so the table has the usual widths and columns only ever grow.
func streamPrinter[T any](e *env, output *format, lines *table, cells func(T) []string) (func(T) error, error) {
	switch output.value {
	case "yaml":
		return func(value T) error { return e.printData(output, value) }, nil
	case "json":
		return func(value T) error { return e.printLine(value) }, nil
	}
	err := e.print(lines.text(output.wide(), e.colour))
	lines.headless = true
	return func(value T) error {
		lines.rows = nil
		lines.add(cells(value)...)
		return e.print(lines.text(output.wide(), e.colour))
	}, err
}

// printLine writes one line of NDJSON.
func (e *env) printLine(value any) error {
	encoder := json.NewEncoder(e.out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("write a line of JSON: %w", err)
	}
	return nil
}
