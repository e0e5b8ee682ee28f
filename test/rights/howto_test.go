// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/test/rig"
)

const howtoPage = "../../docs/howto-rights.md"

// step is a command of a page, and the lines that the page shows of its output:
// "…" stands for anything, and blanks for each other.
type step struct {
	command string
	shows   []string
}

const prompt = "you$ "

func steps(page string) (all []step) {
	within := false
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		command, is := strings.CutPrefix(line, prompt)
		switch {
		case strings.HasPrefix(line, "```"):
			within = line == "```console"
		case within && is:
			all = append(all, step{command: command})
		case within && line != "…":
			last := &all[len(all)-1]
			last.shows = append(last.shows, line)
		}
	}
	return all
}

var blanks = regexp.MustCompile(`\s+`)

// missing is the first line shown that does not stand in an output, after the ones
// before it; "" if all do.
func (s *step) missing(output string) string {
	lines := strings.Split(output, "\n")
	for _, shown := range s.shows {
		parts := strings.Split(blanks.ReplaceAllString(strings.TrimSpace(shown), " "), "…")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		want := regexp.MustCompile("^ ?" + strings.Join(parts, ".*") + " ?$")
		for len(lines) > 0 && !want.MatchString(blanks.ReplaceAllString(lines[0], " ")) {
			lines = lines[1:]
		}
		if len(lines) == 0 {
			return shown
		}
		lines = lines[1:]
	}
	return ""
}

func TestMissing(t *testing.T) {
	const output = "STATE     OBJECT\nmissing   ClusterRole a   <none>\n\n  2 missing, 1 same\n"
	for _, test := range []struct {
		shows []string
		want  string
	}{
		{[]string{"STATE OBJECT", "missing ClusterRole a …", "2 missing, …"}, ""},
		{[]string{"2 missing, 1 same"}, ""},
		{[]string{"missing ClusterRole a"}, "missing ClusterRole a"},
		{[]string{"2 missing, …", "STATE OBJECT"}, "STATE OBJECT"},
	} {
		if have := (&step{shows: test.shows}).missing(output); have != test.want {
			t.Errorf("%q: %q, want %q", test.shows, have, test.want)
		}
	}
}

// TestHowto plays the page for people to whom the second incident happened.
func TestHowto(t *testing.T) {
	page, err := os.ReadFile(howtoPage)
	if err != nil {
		t.Fatal(err)
	}
	c := startIncident(t)
	home := t.TempDir()
	config, err := os.ReadFile(c.Kubeconfig)
	if err == nil {
		err = os.MkdirAll(filepath.Join(home, ".kube"), 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(home, ".kube", "config"), config, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	path := strings.Join([]string{filepath.Dir(rig.Program()), filepath.Dir(c.Program("kubectl")), os.Getenv("PATH")}, ":")
	all := steps(string(page))
	if len(all) == 0 {
		t.Fatalf("%s has no command", howtoPage)
	}
	for _, s := range all {
		_, stdout, stderr := c.run(t, "env", "HOME="+home, "PATH="+path, "sh", "-c", s.command)
		if line := s.missing(stdout + stderr); line != "" {
			t.Fatalf("%s does not print %q:\n%s%s", s.command, line, stdout, stderr)
		}
	}
}
