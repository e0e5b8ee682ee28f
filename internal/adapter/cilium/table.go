// SPDX-License-Identifier: Apache-2.0

package cilium

import (
	"fmt"
	"strings"
)

// table finds the cells of lines that are aligned below a header. Cells may be
// empty and hold spaces, so only the header tells where they begin.
type table struct {
	titles []string
	starts []int
}

// newTable reads a header. Titles are parted by two spaces at least.
func newTable(header string) table {
	var t table
	for at := 0; at < len(header); {
		if header[at] == ' ' {
			at++
			continue
		}
		title, _, _ := strings.Cut(header[at:], "  ")
		t.titles = append(t.titles, strings.TrimSpace(title))
		t.starts = append(t.starts, at)
		at += len(title)
	}
	return t
}

// cells returns the cells of a line by the titles of their columns.
func (t table) cells(line string) (map[string]string, error) {
	cells := make(map[string]string, len(t.titles))
	for i, title := range t.titles {
		start, end := t.starts[i], len(line)
		if start >= len(line) {
			break
		}
		if i+1 < len(t.starts) {
			end = min(end, t.starts[i+1])
		}
		if start > 0 && line[start-1] != ' ' {
			return nil, fmt.Errorf("%q is not aligned with the header", line)
		}
		cells[title] = strings.TrimSpace(line[start:end])
	}
	return cells, nil
}
