// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/printable"
	"github.com/fairlead-io/fairlead/internal/restore"
)

// restored is the JSON of restore.
type restored struct {
	SchemaVersion int  `json:"schemaVersion"`
	Applied       bool `json:"applied"`
	*restore.Plan
}

func (e *env) printPlan(f *restoreFlags, p *restore.Plan) error {
	switch f.output.value {
	case "json", "yaml":
		return e.printData(f.output, restored{api.SchemaVersion, f.apply, p})
	case "diff":
		return e.printDiff(p)
	}
	t := &table{columns: columns("STATE", "OBJECT", "WHAT")}
	for _, item := range p.Items {
		if !f.output.wide() && (item.State == restore.Same || item.State == restore.Left) {
			continue
		}
		for _, what := range itemLines(item, f.output.wide()) {
			t.add(string(item.State), item.String(), what)
		}
	}
	if len(t.rows) > 0 {
		if err := e.printTable(f.output, t); err != nil {
			return err
		}
	}
	return e.print(strings.Join(f.summary(p), "\n") + "\n")
}

// itemLines say what there is to say of an item: all of it, or a part that fits a
// screen.
func itemLines(item *restore.Item, all bool) []string {
	const few = 5
	lines := slices.Clone(item.Notes)
	if item.Why != "" {
		lines = append([]string{item.Why}, lines...)
	}
	for i, d := range item.Differences {
		if !all && i == few {
			lines = append(lines, fmt.Sprintf("and %d more fields: -o wide shows them", len(item.Differences)-few))
			break
		}
		lines = append(lines, differenceText(d, all))
	}
	if len(lines) == 0 {
		lines = append(lines, "")
	}
	return lines
}

func differenceText(d restore.Difference, all bool) string {
	live, wanted := d.Texts()
	if !all {
		live, wanted = shortened(live), shortened(wanted)
	}
	return fmt.Sprintf("%s: live %s, wanted %s", d.Path, live, wanted)
}

// shortened cuts a value that would fill the screen.
func shortened(text string) string {
	const most = 80
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	return string(runes[:most]) + "…"
}

// summary ends with what to do.
func (f *restoreFlags) summary(p *restore.Plan) []string {
	var counts []string
	for _, state := range []restore.State{restore.Created, restore.Missing, restore.Failed, restore.Refused, restore.Drifted, restore.Unknown, restore.Left, restore.Same} {
		if n := p.Count(state); n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, state))
		}
	}
	if counts == nil {
		counts = []string{"no objects"}
	}
	lines := []string{clean(fmt.Sprintf("%s: %s", p.Source, strings.Join(counts, ", ")))}
	for _, text := range p.LeftOut {
		lines = append(lines, clean("left out: "+text))
	}
	if !f.apply && p.Count(restore.Missing) > 0 {
		lines = append(lines, "Nothing was changed: --apply creates what is missing.")
	}
	if p.Count(restore.Drifted) > 0 {
		lines = append(lines, "What differs is never changed here: "+f.howToChange())
	}
	return lines
}

// howToChange says who may change what is there, by where the wish came from.
func (f *restoreFlags) howToChange() string {
	switch {
	case f.release != "" || f.chart.Folder != "":
		return "helm upgrade, or helm rollback to the same revision, writes it anew."
	case f.journal != "":
		return "kubectl edit does that; fairlead events says who changed it, and when."
	}
	return printable.Command(append([]string{"kubectl", "diff"}, fileArguments(f.files)...)...) + " shows it, and kubectl apply writes it."
}

func fileArguments(files []string) (args []string) {
	for _, file := range files {
		args = append(args, "-f", file)
	}
	return args
}

// printDiff shows each object as a patch would: what is missing in whole, and of
// what differs the fields.
func (e *env) printDiff(p *restore.Plan) error {
	var b strings.Builder
	for _, item := range p.Items {
		switch item.State {
		case restore.Missing, restore.Created, restore.Failed, restore.Refused:
			text, err := item.YAML()
			if err != nil {
				return err
			}
			b.WriteString(clean("# "+string(item.State)+": "+item.String()) + "\n")
			for _, line := range printable.Lines(text) {
				b.WriteString("+" + line + "\n")
			}
		case restore.Drifted:
			b.WriteString(clean("# drifted: "+item.String()) + "\n")
			for _, d := range item.Differences {
				live, wanted := d.Texts()
				b.WriteString(clean("-"+d.Path+": "+live) + "\n" + clean("+"+d.Path+": "+wanted) + "\n")
			}
		case restore.Unknown:
			b.WriteString(clean("# unknown: "+item.String()+": "+item.Why) + "\n")
		}
	}
	return e.print(b.String())
}
