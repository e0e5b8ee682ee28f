// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestFiles(t *testing.T) {
	root := t.TempDir()
	put := func(name, text string) {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to, name string) {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	put("logs/b.log", line(1, "b")+"\n")
	put("logs/a.log", line(2, "a")+"\n")
	put("logs/deeper/c.log", line(3, "c")+"\n")
	put("elsewhere.log", line(4, "e")+"\n")
	link("../elsewhere.log", "logs/link.log")
	link("nowhere", "logs/dangling.log")
	link("logs", "linked")
	for _, pipe := range []string{"logs/pipe", "pipe"} {
		if err := syscall.Mkfifo(filepath.Join(root, pipe), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("deep/deeper/c.log", "")

	cases := []struct {
		name  string
		paths string
		files string // or else
		err   string
	}{
		{"a file is itself", "elsewhere.log", "elsewhere.log", ""},
		{"a folder is the regular files directly in it, and links to such", "logs", "logs/a.log logs/b.log logs/link.log", ""},
		{"a link to a folder is that folder", "linked", "linked/a.log linked/b.log linked/link.log", ""},
		{"files and folders may be mixed", "elsewhere.log logs", "elsewhere.log logs/a.log logs/b.log logs/link.log", ""},
		{"a folder of folders says so", "deep", "", "deep has no files directly in it: name the folder in which they are"},
		{"a pipe is refused before anybody waits for it", "pipe", "", "pipe: it is no regular file, and logs are read more than once: write it to a file first"},
		{"what is not there is named", "none", "", "none: no such file or directory"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var paths, want []string
			for name := range strings.FieldsSeq(c.paths) {
				paths = append(paths, filepath.Join(root, name))
			}
			for name := range strings.FieldsSeq(c.files) {
				want = append(want, filepath.Join(root, name))
			}
			got, err := Files(paths...)
			if !slices.Equal(got, want) {
				t.Errorf("files %v, want %v", got, want)
			}
			if (err != nil) != (c.err != "") || err != nil && !strings.HasSuffix(err.Error(), c.err) {
				t.Errorf("err = %v, want %q", err, c.err)
			}
		})
	}
	t.Run("the log of a folder is that of its files", func(t *testing.T) {
		got, losses := read(t, filepath.Join(root, "logs"))
		var ids string
		for _, r := range got {
			ids += r.AuditID
		}
		if ids != "bae" || losses != (Losses{}) {
			t.Errorf("records %s, losses %+v; want bae, and nothing lost", ids, losses)
		}
	})
}
