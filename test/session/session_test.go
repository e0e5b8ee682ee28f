// SPDX-License-Identifier: Apache-2.0

package session

import (
	"crypto/rand"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/rig"
)

const sessionPage = "../../docs/session.md"

var update = flag.Bool("update", false, "write what the commands print to the page, where it shows something else")

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

// run types a command and returns what it prints.
func (s *shell) run(command string) string {
	// The shell itself reads what is typed from there.
	s.WriteLine("{ " + command + "\n} </dev/null 2>&1")
	s.WriteLine("printf '\\n%s\\n' " + s.mark)
	var b strings.Builder
	for line := s.ReadLine(); line != s.mark; line = s.ReadLine() {
		b.WriteString(line + "\n")
	}
	if output := strings.TrimRight(b.String(), "\n"); output != "" {
		return output + "\n"
	}
	return ""
}

func TestSession(t *testing.T) {
	text, err := os.ReadFile(sessionPage)
	if err != nil {
		t.Fatal(err)
	}
	parts := parse(string(text))
	files := map[string]string{}
	for _, p := range parts {
		if p.file != "" {
			files[p.file] = p.content
		}
	}
	s := newStage(t, files)
	played := 0
	for i, p := range parts {
		if p.machine == "" {
			continue
		}
		played++
		output := s.play(t, p)
		if matches(p.output, output) {
			continue
		}
		parts[i].output = output
		if !*update {
			t.Fatalf("%s:%d: %s$ %s\nprints\n%s\nand the page shows\n%s", sessionPage, p.line, p.machine, p.command, output, p.output)
		}
	}
	if played == 0 {
		t.Errorf("%s has no command", sessionPage)
	}
	if *update {
		if err := os.WriteFile(sessionPage, []byte(join(parts)), 0o644); err != nil {
			t.Fatal(err)
		}
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
