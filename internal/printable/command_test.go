// SPDX-License-Identifier: Apache-2.0

package printable

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestCommand(t *testing.T) {
	for _, test := range []struct {
		name  string
		words []string
		want  string
	}{
		{"plain words stand as they are", []string{"kubectl", "get", "pods/web-0", "--replicas=1"}, "kubectl get pods/web-0 --replicas=1"},
		{"what a shell would run is quoted", []string{"echo", "$(id)", "a;b", "`id`"}, "echo '$(id)' 'a;b' '`id`'"},
		{"a quote ends the quotes for itself only", []string{"echo", "it's"}, `echo 'it'\''s'`},
		{"a word may be empty", []string{"echo", ""}, "echo ''"},
		{"a word may have lines", []string{"echo", "a\nEOF\nid"}, "echo 'a\nEOF\nid'"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if have := Command(test.words...); have != test.want {
				t.Errorf("have %s, want %s", have, test.want)
			}
		})
	}
}

// What a shell makes of a command are the words that it was written of.
func TestAShellReadsTheWordsOfACommand(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringOf(rapid.SampledFrom([]rune("ab '\"\\$`();&|<>*?[]{}~#!=\n\té-")))
		words := rapid.SliceOfN(word, 1, 5).Draw(t, "words")
		out, err := exec.Command("sh", "-c", Command(append([]string{"printf", `%s\0`}, words...)...)).Output()
		if err != nil {
			t.Fatal(err)
		}
		have := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
		if !slices.Equal(have, words) {
			t.Fatalf("a shell reads %q of %q", have, words)
		}
	})
}
