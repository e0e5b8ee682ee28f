// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/evidence"
)

// hostile is what a shell would run if it stood in a command without quotes.
const hostile = "$(x)"

// word is what may be a name in a command.
var word = regexp.MustCompile(`[A-Za-z0-9][A-Za-z0-9.-]*[A-Za-z0-9]`)

// Whatever of the evidence gets into a command that people paste, a shell takes
// it for a word: each word of each command that also stands in the evidence is
// replaced there by one that a shell would run.
func TestNothingOfTheEvidenceIsRunByAShell(t *testing.T) {
	paths, err := filepath.Glob("*/testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatal("there are no cases", err)
	}
	got := 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		bundle, err := evidence.ParseText(text, time.Date(2026, time.January, 3, 12, 0, 0, 0, time.UTC))
		if err != nil {
			continue // what cannot be read gives no commands
		}
		check := All()[slices.IndexFunc(All(), func(c doctor.Check) bool { return c.ID == strings.Split(path, "/")[0] })]
		for _, name := range namesIn(bundle, commands(bundle, check)) {
			for _, command := range commands(poisoned(bundle, name), check) {
				if !strings.Contains(command, hostile) {
					continue
				}
				got++
				if strings.Contains(unquoted(command), hostile) {
					t.Errorf("%s: where the evidence says %s, a shell would run it in %s", path, name+hostile, command)
				}
			}
		}
	}
	if got < 20 {
		t.Errorf("%d commands had something of the evidence: the test does not test", got)
	}
}

func commands(b *evidence.Bundle, check doctor.Check) (all []string) {
	var walk func([]*doctor.Node)
	walk = func(nodes []*doctor.Node) {
		for _, n := range nodes {
			for _, r := range n.Remedy {
				all = append(all, r.Commands...)
			}
			walk(n.Consequences)
		}
	}
	r := doctor.Examine(facts.Read(b), []doctor.Check{check})
	walk(r.Causes)
	walk(r.Notes)
	return all
}

// namesIn are the words of commands that stand in the evidence, too.
func namesIn(b *evidence.Bundle, commands []string) []string {
	found := map[string]bool{}
	for _, command := range commands {
		for _, name := range word.FindAllString(command, -1) {
			found[name] = slices.ContainsFunc(b.Records, func(r evidence.Record) bool { return bytes.Contains(r.Content, []byte(name)) })
		}
	}
	maps.DeleteFunc(found, func(_ string, is bool) bool { return !is })
	return slices.Sorted(maps.Keys(found))
}

// poisoned is a bundle with something hostile behind a word, wherever it stands.
func poisoned(b *evidence.Bundle, name string) *evidence.Bundle {
	whole := regexp.MustCompile(`(^|[^A-Za-z0-9.-])` + regexp.QuoteMeta(name) + `($|[^A-Za-z0-9.-])`)
	out := &evidence.Bundle{}
	for _, r := range b.Records {
		r.Content = whole.ReplaceAll(r.Content, []byte("${1}"+name+strings.ReplaceAll(hostile, "$", "$$")+"${2}"))
		out.Records = append(out.Records, r)
	}
	return out
}

// unquoted is what of a command stands outside of single quotes, and outside of
// a document that the shell hands on as it is.
func unquoted(command string) string {
	command, _, _ = strings.Cut(command, "<<'EOF'\n")
	var out strings.Builder
	for i, part := range strings.Split(command, "'") {
		if i%2 == 0 {
			out.WriteString(part)
		}
	}
	return out.String()
}
