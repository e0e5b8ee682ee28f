// SPDX-License-Identifier: Apache-2.0

// Package doctortest runs checks on bundles that are written down as txtar
// files, and compares what they find with what the file wants.
//
// Each section of a case but the one named "want" is a file of a bundle, under
// its path in the layout of package evidence. The first line of the comment is
// the case's name; a line "# time 2: 2026-01-03T23:17:00Z" says when sample 2
// was taken. Only tests may come in.
package doctortest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/evidence"
)

var update = flag.Bool("update", false, "write what is found into the sections \"want\"")

// want is the section with the findings.
const want = "want"

// Run runs the checks on every case of a folder.
func Run(t *testing.T, checks []doctor.Check, dir string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) == 0 {
		t.Fatalf("the folder %s has no case *.txtar", dir)
	}
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(title(path, archive), func(t *testing.T) { run(t, checks, path, archive) })
	}
}

func title(path string, archive *txtar.Archive) string {
	first, _, _ := strings.Cut(string(archive.Comment), "\n")
	file := strings.TrimSuffix(filepath.Base(path), ".txtar")
	if first = strings.TrimSpace(strings.TrimLeft(first, "# ")); first == "" {
		return file
	}
	return file + ": " + first
}

func run(t *testing.T, checks []doctor.Check, path string, archive *txtar.Archive) {
	bundle, err := Bundle(archive)
	if err != nil {
		t.Fatal(err)
	}
	got := Text(doctor.Examine(facts.Read(bundle), checks))
	if *update {
		rewrite(t, path, archive, got)
		return
	}
	if diff := cmp.Diff(string(section(archive, want)), got); diff != "" {
		t.Errorf("%s wants other findings (- wanted, + found; -update takes them over):\n%s", path, diff)
	}
}

func section(archive *txtar.Archive, name string) []byte {
	for _, f := range archive.Files {
		if f.Name == name {
			return f.Data
		}
	}
	return nil
}

func rewrite(t *testing.T, path string, archive *txtar.Archive, got string) {
	t.Helper()
	written := false
	for i := range archive.Files {
		if archive.Files[i].Name == want {
			archive.Files[i].Data, written = []byte(got), true
		}
	}
	if !written {
		archive.Files = append(archive.Files, txtar.File{Name: want, Data: []byte(got)})
	}
	if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Bundle makes a bundle of a case. Without a time of its own, sample 1 is of a
// fixed one, and the others follow ten seconds apart.
func Bundle(archive *txtar.Archive) (*evidence.Bundle, error) {
	text := &txtar.Archive{Comment: archive.Comment}
	for _, f := range archive.Files {
		if f.Name != want {
			text.Files = append(text.Files, f)
		}
	}
	first := time.Date(2026, time.January, 3, 12, 0, 0, 0, time.UTC)
	for sample := 9; sample > 0; sample-- {
		// The last line for a sample counts.
		at := first.Add(time.Duration(sample-1) * 10 * time.Second)
		text.Comment = append(fmt.Appendf(nil, "# time %d: %s\n", sample, at.Format(time.RFC3339)), text.Comment...)
	}
	return evidence.ParseText(txtar.Format(text), first)
}
