// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the list of checks into the page about the doctor")

const page = "../../../docs/doctor.md"

func TestEveryCheckHasAFolderWithItsPage(t *testing.T) {
	folders := map[string]bool{}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		folders[e.Name()] = e.IsDir()
	}
	for _, c := range All() {
		text, err := os.ReadFile(filepath.Join(c.ID, "README.md"))
		if err != nil {
			t.Errorf("%s: %v", c.ID, err)
		}
		if c.Page != string(text) || len(strings.Fields(c.Page)) < 30 {
			t.Errorf("%s: its page is not the one of its folder, or says nothing", c.ID)
		}
		if c.Title == "" || c.Sample == nil && c.Case == nil {
			t.Errorf("%s: it has no title, or looks at nothing", c.ID)
		}
		delete(folders, c.ID)
	}
	for name, folder := range folders {
		if folder {
			t.Errorf("the check in the folder %s does not run", name)
		}
	}
}

func TestChecksAreInTheOrderOfTheirIDs(t *testing.T) {
	var ids []string
	for _, c := range All() {
		ids = append(ids, c.ID)
	}
	want := slices.Compact(slices.Sorted(slices.Values(ids)))
	if diff := cmp.Diff(want, ids); diff != "" {
		t.Error(diff)
	}
}

func TestThePageAboutTheDoctorListsTheChecks(t *testing.T) {
	const begin, end = "| check | finds |\n| --- | --- |\n", "<!-- end of checks -->"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(text), begin)
	have, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		t.Fatal("the page has no list of checks")
	}
	want := ""
	for _, c := range All() {
		want += fmt.Sprintf("| [%s](../internal/doctor/checks/%s/README.md) | %s |\n", c.ID, c.ID, strings.ReplaceAll(c.Title, "|", `\|`))
	}
	if *update {
		if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("- wanted, + on the page; -update takes it over:\n%s", diff)
	}
}
