// SPDX-License-Identifier: Apache-2.0

package points

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestFailpointsAreFoundInSources(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
		err   string // in it, if there is to be one
	}{
		"in every file, sorted": {files: map[string]string{
			"a.go": "func f() { failpoint.Hit(\"write: second\") }",
			"b.go": "func g() { if true { failpoint.Hit(`write: first`) } }",
		}, want: []string{"write: first", "write: second"}},
		"in functions within functions": {files: map[string]string{
			"a.go": `func f() { func() { defer failpoint.Hit("late") }() }`,
		}, want: []string{"late"}},
		"not in tests, and not what only looks like one": {files: map[string]string{
			"a_test.go": `func f() { failpoint.Hit("test") }`,
			"b.go":      `func f() { other.Hit("x"); Hit("y"); failpoint.Off("z") }`,
			"c.txt":     `failpoint.Hit("text")`,
		}},
		"a name twice":           {files: map[string]string{"a.go": `func f() { failpoint.Hit("x"); failpoint.Hit("x") }`}, err: "two places"},
		"a name that is made":    {files: map[string]string{"a.go": `func f() { failpoint.Hit("x" + "y") }`}, err: "not written out"},
		"no name":                {files: map[string]string{"a.go": `func f() { failpoint.Hit("") }`}, err: "cannot be"},
		"a name with a number":   {files: map[string]string{"a.go": `func f() { failpoint.Hit("x#1") }`}, err: "cannot be"},
		"too many names":         {files: map[string]string{"a.go": `func f() { failpoint.Hit("x", "y") }`}, err: "one name"},
		"what is no Go":          {files: map[string]string{"a.go": `func`}, err: "a.go"},
		"a folder without files": {},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			for file, text := range c.files {
				if err := os.WriteFile(filepath.Join(folder, file), []byte("package p\n"+text+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := In(folder)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want one about %q", err, c.err)
				}
				return
			}
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
		})
	}
}
