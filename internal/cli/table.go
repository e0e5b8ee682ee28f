// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/printable"
)

// column is one column of a table. Wide columns show with -o wide only.
type column struct {
	name string
	wide bool
}

func columns(names ...string) []column {
	out := make([]column, len(names))
	for i, name := range names {
		out[i].name = name
	}
	return out
}

func wideColumns(names ...string) []column {
	out := columns(names...)
	for i := range out {
		out[i].wide = true
	}
	return out
}

// table is what kubectl would print: aligned, with upper-case headers and no
// borders. Every row has a cell for every column, the wide ones too.
type table struct {
	columns []column
	rows    [][]string
	// A table that goes on where another ended has no header, and columns that
	// are at least as wide.
	headless bool
	widths   []int
}

func (t *table) add(cells ...string) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = clean(cell)
	}
	t.rows = append(t.rows, row)
}

// clean keeps names and messages that others wrote from steering the terminal,
// and from breaking a line.
func clean(text string) string { return printable.Line(text) }

const columnGap = "   "

// text lays the table out. Cells of the last column are not padded.
func (t *table) text(wide, colour bool) string {
	lines := t.lines(wide)
	t.widen(lines)
	if t.headless {
		lines = lines[1:]
	}
	var b strings.Builder
	for _, cells := range lines {
		for i, cell := range cells {
			b.WriteString(paint(cell, colour))
			if i == len(cells)-1 {
				break
			}
			b.WriteString(strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(cell)) + columnGap)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func (t *table) widen(lines [][]string) {
	if t.widths == nil {
		t.widths = make([]int, len(lines[0]))
	}
	for _, cells := range lines {
		for i, cell := range cells {
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cell))
		}
	}
}

// lines returns the header and the rows, with the columns that are shown.
func (t *table) lines(wide bool) [][]string {
	shown := func(i int) bool { return wide || !t.columns[i].wide }
	var header []string
	for i, c := range t.columns {
		if shown(i) {
			header = append(header, c.name)
		}
	}
	lines := [][]string{header}
	for _, row := range t.rows {
		var cells []string
		for i, cell := range row {
			if shown(i) {
				cells = append(cells, orNone(cell))
			}
		}
		lines = append(lines, cells)
	}
	return lines
}

// orNone is how kubectl shows an empty cell.
func orNone(cell string) string {
	if cell == "" {
		return "<none>"
	}
	return cell
}

var (
	alarming  = []string{"Error", notInForce, "no", api.EndpointForeign}
	notifying = []string{"Pending", "reject", "drop", "shadowed", "unsupported", "stale", "retained", "unverified", api.EndpointSilent, api.EndpointUnready}
)

// paint colours the few words that somebody should look at.
func paint(cell string, colour bool) string {
	switch {
	case !colour:
		return cell
	case slices.Contains(alarming, cell):
		return "\x1b[31m" + cell + "\x1b[0m"
	case slices.Contains(notifying, cell):
		return "\x1b[33m" + cell + "\x1b[0m"
	}
	return cell
}

func (e *env) printTable(f *format, t *table) error { return e.print(t.text(f.wide(), e.colour)) }
