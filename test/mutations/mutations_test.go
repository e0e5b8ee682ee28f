// SPDX-License-Identifier: Apache-2.0

package mutations

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/checks"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/evidence"
)

// each is how many faults of a kind are made in each data plane.
const each = 16

// score counts what was found of the faults of one kind, by data plane.
type score struct {
	name         string
	found, total map[facts.DataPlane]int
}

// tally are the scores and what was missed.
type tally struct {
	scores []score
	misses []string
}

func (y *tally) note(name string, plane facts.DataPlane, miss string) {
	i := slices.IndexFunc(y.scores, func(s score) bool { return s.name == name })
	if i < 0 {
		i = len(y.scores)
		y.scores = append(y.scores, score{name, map[facts.DataPlane]int{}, map[facts.DataPlane]int{}})
	}
	y.scores[i].total[plane]++
	if miss == "" {
		y.scores[i].found[plane]++
		return
	}
	y.misses = append(y.misses, miss)
}

// TestMutations makes faults in what healthy nodes said, from fixed seeds, and
// looks whether each is found: by the right check, at the right layer, as a
// cause, with nothing else accused.
func TestMutations(t *testing.T) {
	var y tally
	all := map[facts.DataPlane][]world{}
	for _, plane := range allPlanes {
		all[plane] = worlds(t, plane)
	}
	for _, k := range kinds() {
		for _, plane := range k.planes {
			for seed := range uint64(each) {
				y.note(k.name, plane, k.try(t, all[plane], seed))
			}
		}
	}
	for _, k := range others() {
		for _, plane := range k.planes {
			for seed := range uint64(each) {
				y.note(k.name, plane, k.try(t, all[plane], seed))
			}
		}
	}
	total := 0
	for _, s := range y.scores {
		for _, n := range s.total {
			total += n
		}
	}
	t.Logf("%d faults, %d missed:\n%s%s", total, len(y.misses), y.table(), strings.Join(y.misses, "\n"))
	if total < 200 {
		t.Errorf("there are %d faults, want 200 or more", total)
	}
	page(t, y.table())
}

// try makes one fault, in a world that it fits, and says how it was missed.
func (k *kind) try(t *testing.T, all []world, seed uint64) (miss string) {
	r := rand.New(rand.NewPCG(seed, uint64(len(k.name))))
	for range 200 {
		w := &all[r.IntN(len(all))]
		b, f, err := k.make(r, w)
		if errors.Is(err, errUnchanged) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		where := fmt.Sprintf("%s, seed %d, %s, %s %s %s", k.name, seed, w.name, f.service.name(), f.backend, f.other)
		return judge(where, w, examine(b), func(n *doctor.Node) bool {
			return slices.Contains(k.checks, n.Check) && n.Layer == k.layer && (n.Subject == f.service.name().String() || n.Check == "frontend-extra" && strings.Contains(n.Title, f.other.Addr().String()))
		}, f.service.name().String())
	}
	t.Fatalf("no bundle fits %q", k.name)
	return ""
}

func examine(b *evidence.Bundle) doctor.Report {
	return doctor.Examine(facts.Read(b), checks.All())
}

// judge says how a fault was missed; "" if it is a cause, and nobody else is
// blamed.
func judge(where string, w *world, report doctor.Report, is func(*doctor.Node) bool, subject string) string {
	var causes []string
	found := false
	for _, n := range report.Causes {
		if w.known[n.Title] {
			continue
		}
		found = found || is(n)
		causes = append(causes, fmt.Sprintf("%s %s %s: %s", n.Layer, n.Check, n.Subject, n.Title))
		if !is(n) && n.Subject != subject {
			return fmt.Sprintf("%s: also blamed: %s", where, causes[len(causes)-1])
		}
	}
	if !found {
		return fmt.Sprintf("%s: found is %q", where, causes)
	}
	return ""
}

// table is what was found as a table of the page.
func (y *tally) table() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	fmt.Fprintln(w, "| fault\t| Fairlead\t| Cilium\t| kube-proxy\t|")
	fmt.Fprintln(w, "| ---\t| ---\t| ---\t| ---\t|")
	for _, s := range y.scores {
		fmt.Fprintf(w, "| %s\t", s.name)
		for _, plane := range allPlanes {
			if s.total[plane] == 0 {
				fmt.Fprint(w, "| \t")
				continue
			}
			fmt.Fprintf(w, "| %d/%d\t", s.found[plane], s.total[plane])
		}
		fmt.Fprintln(w, "|")
	}
	w.Flush()
	return b.String()
}

// The table stands in the page between these two lines.
const (
	pageFile   = "../../docs/doctor.md"
	tableBegin = "<!-- test/mutations writes this table -->\n"
	tableEnd   = "<!-- end -->\n"
)

// page compares the table with the one in the page, or writes it there.
func page(t *testing.T, table string) {
	t.Helper()
	text, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(text), tableBegin)
	have, after, ends := strings.Cut(rest, tableEnd)
	if !begins || !ends {
		t.Fatalf("%s has no place for the table: it stands between %q and %q", pageFile, tableBegin, tableEnd)
	}
	if *rewrite {
		if err := os.WriteFile(pageFile, []byte(before+tableBegin+table+tableEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(have, table); diff != "" {
		t.Errorf("%s has another table (-page +found; go test ./test/mutations -args -rewrite writes it):\n%s", pageFile, diff)
	}
}
