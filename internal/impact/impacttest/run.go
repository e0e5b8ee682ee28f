// SPDX-License-Identifier: Apache-2.0

package impacttest

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/internal/impact"
)

var update = flag.Bool("update", false, "write what would be seen into the sections \"want\"")

// Run examines every case *.txtar of a folder. A case has the sections
//
//	cluster   the objects, as YAML
//	delete    what is deleted: KIND/NAME, KIND/NAMESPACE/NAME, or --cascade=HOW
//	unknown   lines of RESOURCE.GROUP and why it could not be read; may be left out
//	want      the report, as Text has it
//
// If IDs are given, the report has no other consequences.
func Run(t *testing.T, dir string, ids ...string) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) == 0 {
		t.Fatalf("the folder %s has no case *.txtar", dir)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) { run(t, path, ids) })
	}
}

func run(t *testing.T, path string, ids []string) {
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	section := map[string]string{}
	for _, f := range archive.Files {
		section[f.Name] = string(f.Data)
	}
	s := State(t, section["cluster"])
	for line := range strings.Lines(section["unknown"]) {
		resource, why, _ := strings.Cut(strings.TrimSpace(line), " ")
		s.SetUnknown(schema.ParseGroupResource(resource), why)
	}
	cascade, names := impact.Background, []string{}
	for _, word := range strings.Fields(section["delete"]) {
		if how, ok := strings.CutPrefix(word, "--cascade="); ok {
			cascade = impact.Cascade(how)
			continue
		}
		names = append(names, word)
	}
	r := impact.Examine(s, Delete(t, s, cascade, names...))
	r.Consequences = slices.DeleteFunc(r.Consequences, func(c impact.Consequence) bool { return len(ids) > 0 && !slices.Contains(ids, c.ID) })
	got := Text(r)
	if *update {
		rewrite(t, path, archive, got)
		return
	}
	if diff := cmp.Diff(section["want"], got); diff != "" {
		t.Errorf("%s wants another report (- wanted, + found; -update takes it over):\n%s", path, diff)
	}
}

func rewrite(t *testing.T, path string, archive *txtar.Archive, got string) {
	t.Helper()
	for i := range archive.Files {
		if archive.Files[i].Name == "want" {
			archive.Files[i].Data = []byte(got)
		}
	}
	if err := os.WriteFile(path, txtar.Format(archive), 0o600); err != nil {
		t.Fatal(err)
	}
}
