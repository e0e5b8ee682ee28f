// SPDX-License-Identifier: Apache-2.0

// Package printable makes text that others wrote safe to show: it cannot steer
// a terminal, hide a part of itself, or look like a line of ours.
//
// It knows nothing of what the text means. What is secret in it is another
// room's.
package printable

import (
	"strings"
	"unicode"
)

// Line returns text as one line.
func Line(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}

// tabStop is every how many columns a terminal has one.
const tabStop = 8

// Lines returns the lines of a text, without empty ones at its end. Tabs become
// spaces, as a terminal would show them.
func Lines(text string) []string {
	text = strings.TrimRight(strings.ReplaceAll(text, "\r\n", "\n"), " \t\r\n")
	if text == "" {
		return nil
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(Line(expand(line)), " ")
	}
	return lines
}

func expand(line string) string {
	if !strings.ContainsRune(line, '\t') {
		return line
	}
	var b strings.Builder
	column := 0
	for _, r := range line {
		width := 1
		if r == '\t' {
			width = tabStop - column%tabStop
			b.WriteString(strings.Repeat(" ", width))
		} else {
			b.WriteRune(r)
		}
		column += width
	}
	return b.String()
}
