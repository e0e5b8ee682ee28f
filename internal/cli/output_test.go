// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestColourDoesNotMoveColumns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cells := rapid.SampledFrom([]string{"forward", "drop", "reject", "Error", "no", "", "10.0.1.7:8080", "größer"})
		plain := &table{columns: append(columns("A", "B"), wideColumns("C")...)}
		for range rapid.IntRange(0, 5).Draw(t, "rows") {
			plain.add(cells.Draw(t, "a"), cells.Draw(t, "b"), cells.Draw(t, "c"))
		}
		coloured := *plain
		wide := rapid.Bool().Draw(t, "wide")
		text := coloured.text(wide, true)
		for _, code := range []string{"\x1b[31m", "\x1b[33m", "\x1b[0m"} {
			text = strings.ReplaceAll(text, code, "")
		}
		if want := plain.text(wide, false); text != want {
			t.Fatalf("without its colours\n%s\nis not\n%s", text, want)
		}
		checkAligned(t, text)
	})
}

// checkAligned: every row's second cell begins where the header's does.
func checkAligned(t *rapid.T, text string) {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	at := strings.Index(lines[0], "B")
	for _, line := range lines[1:] {
		runes := []rune(line)
		if utf8.RuneCountInString(line) <= at || runes[at] == ' ' || runes[at-1] != ' ' {
			t.Fatalf("not aligned at %d:\n%s", at, text)
		}
	}
}

func TestOnlyAFewWordsAreColoured(t *testing.T) {
	t1 := &table{columns: columns("ACTION", "STATUS")}
	t1.add("drop", "Error")
	t1.add("forward", "Done")
	t1.add("forward", notInForce)
	want := "ACTION    STATUS\n" + "\x1b[33mdrop\x1b[0m      \x1b[31mError\x1b[0m\n" + "forward   Done\n" +
		"forward   \x1b[31mError: not in force\x1b[0m\n"
	if diff := cmp.Diff(want, t1.text(false, true)); diff != "" {
		t.Error(diff)
	}
}

func TestACellCannotSteerTheTerminal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := &table{columns: columns("NAME", "NOTE"), headless: true}
		table.add(rapid.String().Draw(t, "name"), "\x1b[2J two\nlines\u202e\u009b")
		text := table.text(false, false)
		line, rest, _ := strings.Cut(text, "\n")
		if rest != "" || strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("not one line of printable text: %q", text)
		}
		if !strings.HasSuffix(line, "?[2J two lines??") {
			t.Errorf("what can be printed is not kept: %q", line)
		}
	})
}

func TestBytesText(t *testing.T) {
	tests := map[uint64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 12 << 20: "12.0 MiB", math.MaxUint64: "16.0 EiB",
	}
	for n, want := range tests {
		if got := bytesText(n); got != want {
			t.Errorf("%d bytes: got %s, want %s", n, got, want)
		}
	}
}

func TestAnErrorOfSeveralLinesIsOneLine(t *testing.T) {
	err := fmt.Errorf("read: %w", errors.Join(errors.New("first"), errors.New("  second\n\nthird\x1b[2J")))
	if got, want := oneLine(err), "read: first; second; third?[2J"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
