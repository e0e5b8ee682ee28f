// SPDX-License-Identifier: Apache-2.0

package printable

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestNothingSteersATerminal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text") + string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		for _, line := range append(Lines(text), Line(text)) {
			if !utf8.ValidString(line) || strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Fatalf("%q became %q", text, line)
			}
		}
	})
}

func TestLines(t *testing.T) {
	tests := []struct {
		name, text string
		want       []string
	}{
		{"nothing has no lines", " \n\t\n", nil},
		{"lines stay lines, and those in between that are empty", "a\n\nb\n\n", []string{"a", "", "b"}},
		{"the ends of lines of another system are ends of lines", "a\r\nb\r\n", []string{"a", "b"}},
		{"a line that goes back to its beginning cannot", "good\rbad", []string{"good bad"}},
		{"tabs go to the next stop", "ID\tADDR\tX\nverylong1\tY", []string{"ID      ADDR    X", "verylong1       Y"}},
		{"escapes and what turns the direction are seen", "\x1b[2Jx\u202ey\x00", []string{"?[2Jx?y?"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Lines(test.text)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
