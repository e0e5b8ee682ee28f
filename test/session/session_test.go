// SPDX-License-Identifier: Apache-2.0

package session

import (
	"crypto/rand"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/rig"
)

const sessionPage = "../../docs/session.md"

var update = flag.Bool("update", false, "write what the commands print to the pages, where they show something else")

// shell is one at a prompt: what is typed there later knows what was typed
// before.
type shell struct {
	*lab.Process
	mark string // printed after the output of each command
}

// openShell starts a shell in a folder, whose programs are the machine's and
// ours.
func openShell(t *testing.T, at lab.Place, dir string, env ...string) *shell {
	t.Helper()
	args := append([]string{"--chdir=" + dir, "LC_ALL=C.UTF-8"}, env...)
	s := &shell{Process: at.Start(t, "env", append(args, "bash", "--norc", "--noprofile")...), mark: rand.Text()}
	s.run("PATH=$PATH:" + filepath.Dir(rig.Program()))
	return s
}

// patience is for the demo, which is silent while an API server starts, and gives
// it two minutes.
const patience = 3 * time.Minute

// run types a command and returns what it prints.
func (s *shell) run(command string) string {
	// The shell itself reads what is typed from there.
	s.WriteLine("{ " + command + "\n} </dev/null 2>&1")
	s.WriteLine("printf '\\n%s\\n' " + s.mark)
	var b strings.Builder
	for line := s.ReadLineWithin(patience); line != s.mark; line = s.ReadLineWithin(patience) {
		b.WriteString(line + "\n")
	}
	if output := strings.TrimRight(b.String(), "\n"); output != "" {
		return output + "\n"
	}
	return ""
}

func TestSession(t *testing.T) {
	page := readPage(t, sessionPage)
	s := newStage(t, page.files())
	page.play(t, func(p part) string { return s.play(t, p) })
}

// page is a page that is played.
type page struct {
	path  string
	parts []part
}

func readPage(t *testing.T, path string) page {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return page{path, parse(string(text))}
}

// files are those that the page has the content of.
func (g page) files() map[string]string {
	files := map[string]string{}
	for _, p := range g.parts {
		if p.file != "" {
			files[p.file] = p.content
		}
	}
	return files
}

// play runs each command, which must print what the page shows.
func (g page) play(t *testing.T, run func(part) string) {
	t.Helper()
	played := 0
	for i, p := range g.parts {
		if p.machine == "" {
			continue
		}
		played++
		output := run(p)
		if matches(p.output, output) {
			continue
		}
		g.parts[i].output = output
		if !*update {
			t.Fatalf("%s:%d: %s$ %s\nprints\n%s\nand the page shows\n%s", g.path, p.line, p.machine, p.command, output, p.output)
		}
	}
	if played == 0 {
		t.Errorf("%s has no command", g.path)
	}
	if !*update {
		return
	}
	if err := os.WriteFile(g.path, []byte(join(g.parts)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// play types a command where the page has it. The administrator's are over
// when both nodes have followed.
func (s *stage) play(t *testing.T, p part) string {
	t.Helper()
	sh := s.shells[p.machine]
	if sh == nil {
		t.Fatalf("%s:%d: there is no machine %q", sessionPage, p.line, p.machine)
	}
	output := sh.run(p.command)
	if p.machine == "admin" {
		s.settle(t)
	}
	return output
}
