// SPDX-License-Identifier: Apache-2.0

// Package docs keeps pages true that no program reads: what they name must be
// there. It imports nothing of the project.
package docs

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// rules is how many rules of a Service proxy there are.
const rules = 42

// row is a line of the table in compatibility.md.
type row struct {
	rule, asks string
	shown      []evidence
}

// evidence is a link to what shows a rule: a test as PACKAGE.TEST, or a script
// or page by its name.
type evidence struct{ name, file string }

var link = regexp.MustCompile(`\[([^\]]+)\]\(([^)]+)\)`)

// readRows reads the table of rules, whose columns are the rule, what it asks,
// what shows it, and what is missing or different.
func readRows(t *testing.T, page string) []row {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var all []row
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "| R") {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if len(cells) != 4 {
			t.Fatalf("%s: %d cells in %q, want 4", page, len(cells), line)
		}
		r := row{rule: strings.TrimSpace(cells[0]), asks: strings.TrimSpace(cells[1])}
		for _, m := range link.FindAllStringSubmatch(cells[2], -1) {
			r.shown = append(r.shown, evidence{m[1], m[2]})
		}
		all = append(all, r)
	}
	return all
}

func TestCompatibility(t *testing.T) {
	all := readRows(t, "compatibility.md")
	t.Run("every rule has one row", func(t *testing.T) {
		count := map[string]int{}
		for _, r := range all {
			count[r.rule]++
		}
		for number := 1; number <= rules; number++ {
			if rule := fmt.Sprint("R", number); count[rule] != 1 {
				t.Errorf("%s has %d rows", rule, count[rule])
			}
		}
		if len(all) != rules {
			t.Errorf("%d rows, want %d", len(all), rules)
		}
	})
	for _, r := range all {
		t.Run(r.rule+" is in words, and shown by tests that are there and name it", func(t *testing.T) {
			if len(strings.Fields(r.asks)) < 3 || len(r.shown) == 0 {
				t.Errorf("it says %q, shown by %q", r.asks, r.shown)
			}
			for _, e := range r.shown {
				if err := e.shows(r.rule); err != nil {
					t.Errorf("%s in %s: %v", e.name, e.file, err)
				}
			}
		})
	}
}

// shows says what is missing for the evidence to be there and to name the rule.
func (e evidence) shows(rule string) error {
	text, err := os.ReadFile(e.file)
	if err != nil {
		return err
	}
	says := string(text)
	if strings.HasSuffix(e.file, ".go") {
		if says, err = textOf(text, e.name); err != nil {
			return err
		}
	} else if e.name != filepath.Base(e.file) {
		return fmt.Errorf("the link leads to %s", filepath.Base(e.file))
	}
	if !regexp.MustCompile(`\b` + rule + `\b`).MatchString(says) {
		return fmt.Errorf("it does not name %s", rule)
	}
	return nil
}

// textOf returns the source of a test, named PACKAGE.TEST, with the comment
// before it.
func textOf(source []byte, name string) (string, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", source, parser.ParseComments)
	if err != nil {
		return "", err
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Recv != nil || file.Name.Name+"."+f.Name.Name != name || !strings.HasPrefix(f.Name.Name, "Test") {
			continue
		}
		from := f.Pos()
		if f.Doc != nil {
			from = f.Doc.Pos()
		}
		return string(source[files.Position(from).Offset:files.Position(f.End()).Offset]), nil
	}
	return "", fmt.Errorf("there is no such test in it")
}

// Links between pages, to files, and to tests lead somewhere.
func TestLinks(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, "../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			target, _, _ := strings.Cut(m[2], "#")
			if target == "" || strings.Contains(target, "://") {
				continue
			}
			text, err := os.ReadFile(filepath.Join(filepath.Dir(page), target))
			if err == nil && strings.HasSuffix(target, "_test.go") {
				_, err = textOf(text, m[1])
			}
			if err != nil && !errors.Is(err, syscall.EISDIR) {
				t.Errorf("%s: [%s] leads nowhere: %v", page, m[1], err)
			}
		}
	}
}

// A room that the page about the house does not name is a room whose rules
// nobody knows. What stands below a room that is named is a part of it; but the
// doctor has rooms within.
func TestEveryRoomIsInTheArchitecture(t *testing.T) {
	page, err := os.ReadFile("architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	within := map[string]bool{"doctor/checks": true, "doctor/doctortest": true} // folders of the room above
	for _, pattern := range []string{"*", "doctor/*"} {
		folders, err := filepath.Glob(filepath.Join("../internal", pattern, "*.go"))
		if err != nil || len(folders) == 0 {
			t.Fatalf("there are no rooms %s: %v", pattern, err)
		}
		for _, file := range folders {
			room, err := filepath.Rel("../internal", filepath.Dir(file))
			if err != nil {
				t.Fatal(err)
			}
			if !within[room] && !strings.Contains(string(page), "`internal/"+room+"`") {
				t.Errorf("architecture.md does not name internal/%s", room)
				within[room] = true // once
			}
		}
	}
}

// Each module that the project asks for has its reason on the page.
func TestEveryDependencyHasAReason(t *testing.T) {
	page, err := os.ReadFile("architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "| module | why |")
	if !found {
		t.Fatal("architecture.md has no table of modules")
	}
	text, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	asked := regexp.MustCompile(`(?m)^\t(\S+) v\S+$`).FindAllStringSubmatch(string(text), -1)
	if len(asked) == 0 {
		t.Fatal("go.mod asks for nothing")
	}
	for _, m := range asked {
		name := regexp.MustCompile(`/v\d+$`).ReplaceAllString(m[1], "")
		if last := name[strings.LastIndex(name, "/")+1:]; !strings.Contains(table, last) {
			t.Errorf("architecture.md has no reason for %s", m[1])
		}
	}
}
