// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/google/go-cmp/cmp"
)

// answer is as much of preflight's JSON as tests read.
type answer struct {
	Verdict      string
	Consequences []struct {
		Severity, Title string
		Objects         []string
	}
	Incomplete []string
}

// first is the worst consequence: its object, and what people would see.
func (a *answer) first() (object, sees string) {
	if len(a.Consequences) == 0 || len(a.Consequences[0].Objects) == 0 {
		return "", ""
	}
	return a.Consequences[0].Objects[0], a.Consequences[0].Title
}

func (c *cluster) preflight(t *testing.T, args string) (status int, a answer) {
	t.Helper()
	status, stdout, stderr := c.fairlead(t, append([]string{"preflight", "delete", "-o", "json"}, strings.Fields(args)...)...)
	if err := json.Unmarshal([]byte(stdout), &a); err != nil {
		t.Fatalf("preflight delete %s: status %d, %v\n%s%s", args, status, err, stdout, stderr)
	}
	return status, a
}

// enough is how many rows each table has at least.
const enough = 30

// TestTable asks preflight about deletes of each kind, and compares what it says
// with the table of the page.
func TestTable(t *testing.T) {
	if len(harmful) < enough || len(harmless) < enough {
		t.Errorf("%d harmful deletes and %d harmless ones, want %d of each", len(harmful), len(harmless), enough)
	}
	page(t, "test/rights writes the harmful", harmfulTable())
	page(t, "test/rights writes the harmless", harmlessTable())
	c := start(t)
	c.serveMetrics(t)
	c.load(t, "cluster/10-nodes.yaml", "cluster/20-cni.yaml", "cluster/30-system.yaml", "cluster/40-shop.yaml", "cluster/50-data.yaml", "cluster/60-extensions.yaml")
	for _, r := range harmful {
		t.Run(r.args, func(t *testing.T) {
			status, a := c.preflight(t, r.args)
			object, sees := a.first()
			if status != 1 || !strings.HasPrefix(object, r.first) || !strings.Contains(sees, r.sees) {
				t.Errorf("status %d, first %s: %s; want 1, %s: … %s …", status, object, sees, r.first, r.sees)
			}
		})
	}
	for _, r := range harmless {
		t.Run(r.args, func(t *testing.T) {
			if status, a := c.preflight(t, r.args); status != 0 {
				object, sees := a.first()
				t.Errorf("status %d, %s, %s: %s %q; want 0: %s", status, a.Verdict, object, sees, a.Incomplete, r.why)
			}
		})
	}
}

func harmfulTable() string {
	return table("| `kubectl delete …`\t| stands first\t| people would see\t| why\t|", "| ---\t| ---\t| ---\t| ---\t|", harmful,
		func(r row) string {
			return fmt.Sprintf("| `%s`\t| %s\t| … %s …\t| %s\t|", r.args, r.first, r.sees, r.why)
		})
}

func harmlessTable() string {
	return table("| `kubectl delete …`\t| why nothing breaks\t|", "| ---\t| ---\t|", harmless,
		func(r row) string { return fmt.Sprintf("| `%s`\t| %s\t|", r.args, r.why) })
}

func table(head, rule string, rows []row, line func(row) string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	fmt.Fprintln(w, head)
	fmt.Fprintln(w, rule)
	for _, r := range rows {
		fmt.Fprintln(w, line(r))
	}
	w.Flush()
	return b.String()
}

const pageFile = "../../docs/preflight.md"

// page compares a table with that which stands in the page, or writes it there.
func page(t *testing.T, mark, table string) {
	t.Helper()
	text, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+mark+" -->\n", "<!-- end -->\n"
	before, rest, begins := strings.Cut(string(text), begin)
	have, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		t.Fatalf("%s has no place for the table: it stands between %q and %q", pageFile, begin, end)
	}
	if *rewrite {
		if err := os.WriteFile(pageFile, []byte(before+begin+table+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(have, table); diff != "" {
		t.Errorf("%s has another table (-page +found; go test ./test/rights -args -rewrite writes it):\n%s", pageFile, diff)
	}
}
