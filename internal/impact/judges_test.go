// SPDX-License-Identifier: Apache-2.0

package impact_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/impact"
	"github.com/fairlead-io/fairlead/internal/impact/impacttest"
)

// row is a delete in the cluster of testdata/cluster.yaml, and what people would
// see of it: "SEVERITY ID: title", worst first, without what other judges say.
type row struct {
	name   string
	delete string // with --cascade=orphan, if that is meant
	want   []string
	hits   []string // Affected of the first one
	by     []string // Objects of the first one, where they are not what is named
	detail []string // of the first one, where it matters
}

// judged checks rows of the judges that have the IDs.
func judged(t *testing.T, ids []string, rows []row) {
	t.Helper()
	text, err := os.ReadFile("testdata/cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s := impacttest.State(t, string(text))
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			cascade, names := impact.Background, strings.Fields(r.delete)
			if names[0] == "--cascade=orphan" {
				cascade, names = impact.Orphan, names[1:]
			}
			report := impact.Examine(s, impacttest.Delete(t, s, cascade, names...))
			if len(report.Incomplete) > 0 {
				t.Errorf("the judgement is incomplete: %q", report.Incomplete)
			}
			r.check(t, of(report, ids))
		})
	}
}

// of are the consequences with one of the IDs.
func of(report impact.Report, ids []string) []impact.Consequence {
	var out []impact.Consequence
	for _, c := range report.Consequences {
		if slices.Contains(ids, c.ID) {
			out = append(out, c)
		}
	}
	return out
}

func (r row) check(t *testing.T, got []impact.Consequence) {
	t.Helper()
	var lines []string
	for _, c := range got {
		lines = append(lines, line(c))
	}
	if diff := cmp.Diff(r.want, lines); diff != "" {
		t.Errorf("people would see (- wanted, + found):\n%s", diff)
	}
	if len(got) == 0 {
		return
	}
	if diff := cmp.Diff(r.hits, got[0].Affected); diff != "" && (r.hits != nil || len(got[0].Affected) > 0) {
		t.Errorf("hit are (- wanted, + found):\n%s", diff)
	}
	var by []string
	for _, o := range got[0].Objects {
		by = append(by, o.String())
	}
	if len(by) == 0 {
		t.Error("no object stands for it")
	}
	if diff := cmp.Diff(r.by, by); r.by != nil && diff != "" {
		t.Errorf("it comes of (- wanted, + found):\n%s", diff)
	}
	if diff := cmp.Diff(r.detail, got[0].Detail); r.detail != nil && diff != "" {
		t.Errorf("it says besides (- wanted, + found):\n%s", diff)
	}
}

func line(c impact.Consequence) string {
	severity := map[impact.Severity]string{impact.Note: "Note", impact.Breaks: "Breaks", impact.Outage: "Outage"}[c.Severity]
	return fmt.Sprintf("%s %s: %s", severity, c.ID, c.Title)
}
