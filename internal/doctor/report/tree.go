// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/fairlead-io/fairlead/internal/doctor"
)

// View is how a person looks at a report.
type View struct {
	// Wide shows everything of every finding, else only roots are told at length.
	Wide   bool
	Colour bool
	// Width is how many columns sentences may take. Evidence and commands take
	// what they need: broken lines could not be compared, or pasted.
	Width int
}

// What a tree shows of long lists, unless all is wanted.
const (
	fewAlike        = 3  // causes of one check that are told at length
	fewNamed        = 10 // more of them, by title
	fewConsequences = 8  // under one finding
	fewEvidence     = 4  // outputs
	fewLines        = 12
	fewUnread       = 5
)

// Tree writes causes with their consequences, for a terminal.
func Tree(w io.Writer, r Report, v View) error {
	t := tree{View: v}
	told, alike := t.fold(r.Causes)
	for _, root := range told {
		t.root(root)
	}
	t.alike(alike)
	t.notes(r.Notes)
	t.end(&r)
	if _, err := io.WriteString(w, t.b.String()); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// fold parts causes into those that are told at length, and by check those that are
// more of the same: whoever read three of them needs the names of the others.
func (t *tree) fold(causes []*Finding) (told []*Finding, alike [][]*Finding) {
	seen, groups := map[string]int{}, map[string]int{}
	for _, f := range causes {
		kind := f.Check + " " + f.Severity.String() + " " + f.Certainty.String()
		if len(f.Consequences) == 0 {
			seen[kind]++
		}
		if t.Wide || len(f.Consequences) > 0 || seen[kind] <= fewAlike {
			told = append(told, f)
			continue
		}
		at, known := groups[kind]
		if !known {
			at = len(alike)
			groups[kind], alike = at, append(alike, nil)
		}
		alike[at] = append(alike[at], f)
	}
	return told, alike
}

// alike names causes that are like others, a line for each.
func (t *tree) alike(groups [][]*Finding) {
	for _, all := range groups {
		t.wrap("", indent, fmt.Sprintf("%d more of %s:", len(all), all[0].Check), nil, t.grade(all[0]))
		for _, f := range all[:min(len(all), fewNamed)] {
			text := f.Title
			if on := onNodes(f.Nodes, false); on != "" {
				text += " (" + on + ")"
			}
			t.wrap(" - ", indent, f.Number+". "+text, nil)
		}
		if left := len(all) - fewNamed; left > 0 {
			t.line(fmt.Sprintf(" - and %d more: -o wide tells all of them", left))
		}
		t.blank()
	}
}

type tree struct {
	View
	b strings.Builder
}

const indent = "   "

// root tells one cause: what it is, what follows from it, what shows it and
// what to do.
func (t *tree) root(f *Finding) {
	t.heading(f)
	t.consequences(f, indent)
	t.blank()
	t.body(f)
	if t.Wide {
		t.below(f)
		return
	}
	if remedies(f.Consequences) {
		t.wrap(indent, indent, "What to do about what follows from it, and what shows that: -o wide.", nil)
		t.blank()
	}
}

// remedies says whether there is anything to do about findings by themselves.
func remedies(all []*Finding) bool {
	return slices.ContainsFunc(all, func(f *Finding) bool { return len(f.Remedy) > 0 || remedies(f.Consequences) })
}

// below tells the consequences at length.
func (t *tree) below(f *Finding) {
	for _, c := range f.Consequences {
		t.heading(c)
		t.blank()
		t.body(c)
		t.below(c)
	}
}

func (t *tree) heading(f *Finding) {
	number := f.Number + "."
	t.wrap(number+strings.Repeat(" ", max(1, len(indent)-len(number))), indent, f.Title, func(text string) string { return t.paint(bold, text) }, t.grade(f))
	about := []string{f.Check, f.Subject}
	if f.Layer != "" {
		about = append(about, "layer "+string(f.Layer))
	}
	if on := onNodes(f.Nodes, t.Wide); on != "" {
		about = append(about, on)
	}
	if !f.Since.IsZero() {
		about = append(about, "since "+moment(f.Since.UTC()))
	}
	t.wrap(indent, indent, strings.Join(about, " · "), func(text string) string { return t.paint(dim, text) })
	if t.Wide && len(f.Also) > 0 {
		t.wrap(indent, indent, "also because of "+strings.Join(f.Also, ", "), nil)
	}
}

// grade is how bad and how sure a finding is, in words.
func (t *tree) grade(f *Finding) string {
	colour := map[doctor.Severity]string{doctor.Critical: red, doctor.Warning: yellow}[f.Severity]
	return t.paint(colour, fmt.Sprintf("%s, %s:", f.Severity, f.Certainty))
}

// consequences draws what follows from a finding, a line for each. Nodes are
// named where they are others than those of the finding.
func (t *tree) consequences(of *Finding, gutter string) {
	all := of.Consequences
	shown := all
	if !t.Wide && len(all) > fewConsequences+1 {
		shown = all[:fewConsequences]
	}
	for i, f := range shown {
		branch, trunk := "├─ ", "│  "
		if i == len(all)-1 {
			branch, trunk = "└─ ", "   "
		}
		text := f.Title + " (" + f.Check
		if on := onNodes(f.Nodes, false); on != "" && !slices.Equal(f.Nodes, of.Nodes) {
			text += ", " + on
		}
		t.wrap(gutter+branch, gutter+trunk, text+")", nil, t.grade(f))
		t.consequences(f, gutter+trunk)
	}
	if left := len(all) - len(shown); left > 0 {
		t.line(gutter + "└─ " + fmt.Sprintf("and %d more: -o wide shows them", left))
	}
}

// body tells why a finding is believed, and what to do.
func (t *tree) body(f *Finding) {
	for _, sentence := range f.Detail {
		t.wrap(indent, indent, sentence, nil)
	}
	if len(f.Detail) > 0 {
		t.blank()
	}
	t.evidence(f.Evidence)
	for _, do := range f.Remedy {
		t.wrap(indent, indent, "What to do: "+do.Text, nil)
		t.commands(do.Commands)
		t.blank()
	}
}

func (t *tree) evidence(all []doctor.Evidence) {
	shown := all
	if !t.Wide && len(all) > fewEvidence+1 {
		shown = all[:fewEvidence]
	}
	for _, e := range shown {
		t.output(e)
	}
	if left := len(all) - len(shown); left > 0 {
		t.line(indent + fmt.Sprintf("… and %d more outputs: -o wide shows them", left))
		t.blank()
	}
}

// output shows a command as on a node's prompt, with what it printed.
func (t *tree) output(e doctor.Evidence) {
	from := ""
	if !e.Time.IsZero() {
		from = "   # " + moment(e.Time)
	}
	if t.Wide && e.Path != "" {
		from += "   # " + e.Path
	}
	t.line(indent + t.paint(bold, e.Node+"$ "+strings.ReplaceAll(e.Command, "\n", "\n"+indent)) + t.paint(dim, from))
	lines := strings.Split(e.Excerpt, "\n")
	left := len(lines) - fewLines
	if t.Wide || left <= 1 {
		left = 0
	}
	for _, text := range lines[:len(lines)-left] {
		t.line(indent + "  " + text)
	}
	if left > 0 {
		t.line(indent + fmt.Sprintf("  … and %d more lines: -o wide shows them", left))
	}
	t.blank()
}

// commands stand at the beginning of lines, between empty ones, so that they can
// be marked and pasted as they are, even where a line must begin there.
func (t *tree) commands(all []string) {
	if len(all) == 0 {
		return
	}
	t.blank()
	for _, c := range all {
		for text := range strings.SplitSeq(c, "\n") {
			t.line(t.paint(bold, text))
		}
	}
}

func (t *tree) notes(notes []*Finding) {
	if len(notes) == 0 {
		return
	}
	t.line("Notes:")
	for _, f := range notes {
		text := f.Title + " (" + f.Check
		if on := onNodes(f.Nodes, t.Wide); on != "" {
			text += ", " + on
		}
		t.wrap(" - ", indent, text+")", nil)
		if t.Wide {
			t.blank()
			t.body(f)
		}
	}
	t.blank()
}

// end says what all this rests on.
func (t *tree) end(r *Report) {
	t.wrap("", "", r.headline(), nil)
	t.wrap("", "", r.moments(), nil)
	if len(r.Unread) == 0 {
		return
	}
	all := unreadOnce(r.Unread)
	t.line("cannot tell: " + count(len(all), "output") + " could not be read, or only in part")
	shown := all
	if !t.Wide && len(shown) > fewUnread+1 {
		shown = shown[:fewUnread]
	}
	for _, u := range shown {
		t.wrap(" - ", indent, u.place()+": "+u.Why, nil)
	}
	if left := len(all) - len(shown); left > 0 {
		t.line(fmt.Sprintf(" - and %d more: -o wide shows them", left))
	}
}

// unreadOnce are outputs that could not be read, each once: what does not answer
// in one sample mostly does not in the next.
func unreadOnce(all []Unread) (out []Unread) {
	seen := map[string]bool{}
	for _, u := range all {
		if line := u.place() + ": " + u.Why; !seen[line] {
			seen[line] = true
			out = append(out, u)
		}
	}
	return out
}

const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	yellow = "33"
)

func (t *tree) paint(code, text string) string {
	if !t.Colour || code == "" || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (t *tree) line(text string) {
	t.b.WriteString(strings.TrimRight(text, " "))
	t.b.WriteByte('\n')
}

// blank writes an empty line, if there is none yet.
func (t *tree) blank() {
	if text := t.b.String(); text != "" && !strings.HasSuffix(text, "\n\n") {
		t.b.WriteByte('\n')
	}
}

// wrap writes a text in lines of the width, the first after one prefix and the
// others after another. Words of the text are styled line by line; those before
// it are styled already.
func (t *tree) wrap(first, rest, text string, style func(string) string, before ...string) {
	if style == nil {
		style = func(text string) string { return text }
	}
	prefix, used := first, utf8.RuneCountInString(first)
	for _, word := range before {
		prefix += word + " "
		used += utf8.RuneCountInString(plain(word)) + 1
	}
	for _, part := range breakLines(text, t.Width-used, t.Width-utf8.RuneCountInString(rest)) {
		t.line(prefix + style(part))
		prefix = rest
	}
}

// plain is a text without the colours of paint.
func plain(text string) string {
	for _, code := range []string{bold, dim, red, yellow, "0"} {
		text = strings.ReplaceAll(text, "\x1b["+code+"m", "")
	}
	return text
}

// breakLines breaks a text between words into lines of a width, of which the
// first has another. A word that is longer has a line of its own.
func breakLines(text string, first, rest int) []string {
	var out []string
	line, used := "", 0
	width := first
	for word := range strings.FieldsSeq(text) {
		n := utf8.RuneCountInString(word)
		if used > 0 && used+1+n > width {
			out = append(out, line)
			line, used, width = "", 0, rest
		}
		if used > 0 {
			line, used = line+" ", used+1
		}
		line, used = line+word, used+n
	}
	return append(out, line)
}
