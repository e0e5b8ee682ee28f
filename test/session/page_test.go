// SPDX-License-Identifier: Apache-2.0

package session

import (
	"regexp"
	"strings"
	"testing"
)

// anything stands on the page for output that differs from run to run: within
// a line for any text, alone on a line for any lines.
const anything = "…"

// The fences of what is typed and of what is a file.
const (
	fence        = "```"
	consoleFence = fence + "console"
)

// fileFence opens the content of a file, which has the name.
var fileFence = regexp.MustCompile("^```[a-z]+ ([a-z0-9.-]+)$")

// prompt begins a command on a machine; more continues it.
var prompt = regexp.MustCompile(`^([a-z][a-z0-9-]*)\$ (.+)$`)

const more = "> "

// part is some lines of a page: a command with its output, the content of a
// file, or, with neither, text for people.
type part struct {
	line    int    // the first, from 1
	text    string // as it stands there, without the output
	machine string
	command string
	output  string
	file    string
	content string
}

// parse takes a page apart. The parts, one after the other, are the page.
func parse(page string) []part {
	var parts []part
	console, file := false, ""
	add := func(p part) { parts = append(parts, p) }
	number := 0
	for line := range strings.Lines(page) {
		number++
		bare := strings.TrimSuffix(line, "\n")
		last := len(parts) - 1
		switch m := prompt.FindStringSubmatch(bare); {
		case bare == fence && (console || file != ""):
			console, file = false, ""
			add(part{line: number, text: line})
		case file != "":
			parts[last].text += line
			parts[last].content += line
		case console && m != nil:
			add(part{line: number, text: line, machine: m[1], command: m[2]})
		case console && parts[last].machine != "" && parts[last].output == "" && strings.HasPrefix(line, more):
			parts[last].text += line
			parts[last].command += "\n" + strings.TrimPrefix(bare, more)
		case console && parts[last].machine != "":
			parts[last].output += line
		case bare == consoleFence:
			console = true
			add(part{line: number, text: line})
		case fileFence.MatchString(bare):
			file = fileFence.FindStringSubmatch(bare)[1]
			add(part{line: number, text: line})
			add(part{line: number + 1, file: file})
		default:
			add(part{line: number, text: line})
		}
	}
	return parts
}

// join is what parse has taken apart.
func join(parts []part) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.text)
		b.WriteString(p.output)
	}
	return b.String()
}

// moment is a time with its day. The page shows one of many.
var moment = regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?`)

// blanks are as many as a column is wide, which differs from run to run.
var blanks = regexp.MustCompile(`[ \t]+`)

func tidy(line string) string { return strings.TrimRight(blanks.ReplaceAllString(line, " "), " ") }

// matches says whether the output is what the page shows.
func matches(shown, output string) bool {
	var pattern strings.Builder
	pattern.WriteString(`^`)
	for line := range strings.Lines(shown) {
		line = tidy(strings.TrimSuffix(line, "\n"))
		if line == anything {
			pattern.WriteString(`(?:.*\n)*`)
			continue
		}
		for i, text := range strings.Split(line, anything) {
			if i > 0 {
				pattern.WriteString(`.*`)
			}
			for j, text := range moment.Split(text, -1) {
				if j > 0 {
					pattern.WriteString(moment.String())
				}
				pattern.WriteString(regexp.QuoteMeta(text))
			}
		}
		pattern.WriteString(`\n`)
	}
	var tidied strings.Builder
	for line := range strings.Lines(output) {
		tidied.WriteString(tidy(strings.TrimSuffix(line, "\n")) + "\n")
	}
	return regexp.MustCompile(pattern.String() + `$`).MatchString(tidied.String())
}

func TestParse(t *testing.T) {
	const page = "text\n\n```yaml web.yaml\nkind: Service\n```\n\n" +
		"```console\nnode-1$ cat <<END\n> one\n> END\none\n> quoted\nclient$ true\n```\n\n```sh\nnode-1$ not run\n```\n"
	parts := parse(page)
	var commands []part
	files := map[string]string{}
	for _, p := range parts {
		if p.machine != "" {
			commands = append(commands, p)
		}
		if p.file != "" {
			files[p.file] = p.content
		}
	}
	t.Run("commands have a machine, further lines, and output", func(t *testing.T) {
		if len(commands) != 2 {
			t.Fatalf("%d commands in %+v, want 2", len(commands), commands)
		}
		want := part{line: 8, text: "node-1$ cat <<END\n> one\n> END\n", machine: "node-1", command: "cat <<END\none\nEND", output: "one\n> quoted\n"}
		if commands[0] != want {
			t.Errorf("the first is\n%+v, want\n%+v", commands[0], want)
		}
		if last := commands[1]; last.machine != "client" || last.command != "true" || last.output != "" {
			t.Errorf("the last is %+v", last)
		}
	})
	t.Run("files have a name and content", func(t *testing.T) {
		if len(files) != 1 || files["web.yaml"] != "kind: Service\n" {
			t.Errorf("files %q", files)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("```console\na$ b\n> c\nd\n```\n")
	f.Add("```yaml x\n```console\na$ b\n```\n```")
	f.Add("```console\n> a\n\nb$ \n…\n")
	f.Fuzz(func(t *testing.T, page string) {
		if again := join(parse(page)); again != page {
			t.Errorf("%q becomes %q", page, again)
		}
	})
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		name, shown, output string
		want                bool
	}{
		{"the same text", "a\nb\n", "a\nb\n", true},
		{"other text", "a\n", "b\n", false},
		{"a line more", "a\n", "a\nb\n", false},
		{"a line less", "a\nb\n", "a\n", false},
		{"nothing is nothing", "", "", true},
		{"nothing is not something", "", "a\n", false},
		{"columns of another width", "a  b\n", "a \t   b  \n", true},
		{"a blank that is not there", "a b\n", "ab\n", false},
		{"anything within a line", "a … d\n", "a b c d\n", true},
		{"anything within a line is within a line", "a … d\n", "a b\nc d\n", false},
		{"any lines", "a\n…\nd\n", "a\nb\nc\nd\n", true},
		{"no lines are any lines", "a\n…\nd\n", "a\nd\n", true},
		{"what stands behind any lines must come", "a\n…\nd\n", "a\nb\n", false},
		{"a time is any time", "at 2026-11-20T10:00:00.5Z: a\n", "at 2027-01-02T03:04:05Z: a\n", true},
		{"a time is no other text", "at 2026-11-20T10:00:00Z\n", "at noon\n", false},
		{"signs are no patterns", "a.*\n", "abc\n", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := matches(c.shown, c.output); got != c.want {
				t.Errorf("%q shows %q: %v, want %v", c.shown, c.output, got, c.want)
			}
		})
	}
}
