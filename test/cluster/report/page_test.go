// SPDX-License-Identifier: Apache-2.0

package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var results = []Result{
	{Proxy: "fairlead", Set: "more", Specs: []Spec{
		{"DNS answers", Passed, ""},
		{"zones [Feature]", Skipped, "need *3* zones"},
	}},
	{Proxy: "fairlead", Set: "services", Specs: []Spec{
		{"a", Passed, ""},
		{"b", Failed, "not reachable (service.go:1)"},
	}},
	{Proxy: "nftables", Set: "services", Specs: []Spec{{"a", Passed, ""}, {"b", Passed, ""}}},
}

func TestPage(t *testing.T) {
	page := Page(results)
	want := `| set | proxy | specs | passed | failed | skipped |
| --- | --- | ---: | ---: | ---: | ---: |
| services | fairlead | 2 | 1 | 1 | 0 |
| services | nftables | 2 | 2 | 0 | 0 |
| more | fairlead | 2 | 1 | 0 | 1 |

## Failed: services with fairlead

- b
  — not reachable (service.go:1)

## Skipped: more with fairlead

- zones \[Feature\]
  — need \*3\* zones
`
	if _, got, _ := strings.Cut(page, "load balancers.\n\n"); got != want {
		t.Error(cmp.Diff(want, got))
	}
}

func TestSummaryNamesWhatDidNotPass(t *testing.T) {
	want := `services with fairlead: 1 passed, 1 failed, 0 skipped
  failed   b: not reachable (service.go:1)
`
	if got := results[1].Summary(); got != want {
		t.Error(cmp.Diff(want, got))
	}
}

func TestWhatIsSavedIsLoaded(t *testing.T) {
	folder := t.TempDir() + "/results"
	for _, r := range results {
		if err := r.Save(folder); err != nil {
			t.Fatal(err)
		}
		if err := r.Save(folder); err != nil {
			t.Fatalf("the second time: %v", err)
		}
	}
	// What else is kept there is somebody else's.
	if err := os.WriteFile(filepath.Join(folder, "replay.json"), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(results, got); diff != "" {
		t.Error(diff)
	}
}
