// SPDX-License-Identifier: Apache-2.0

package doctortest

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/fairlead-io/fairlead/internal/doctor"
)

// Text writes a report with all that checks decide: each finding with its
// consequences below it, then notes, then what could not be read.
func Text(r doctor.Report) string {
	b := &strings.Builder{}
	for _, n := range r.Causes {
		finding(b, n, "")
	}
	for _, n := range r.Notes {
		finding(b, n, "")
	}
	for _, u := range r.Unread {
		fmt.Fprintf(b, "unread %s: %s\n", u.Record.Path, u.Why)
	}
	return b.String()
}

func finding(b *strings.Builder, n *doctor.Node, indent string) {
	nodes := ""
	if len(n.Nodes) > 0 {
		nodes = " [" + strings.Join(n.Nodes, " ") + "]"
	}
	layer := cmp.Or(string(n.Layer), "-")
	fmt.Fprintf(b, "%s%s %s %s %s %s%s: %s\n", indent, n.Severity, n.Certainty, layer, n.Check, n.Subject, nodes, n.Title)
	indent += "  "
	for _, d := range n.Detail {
		fmt.Fprintf(b, "%s%s\n", indent, d)
	}
	list(b, indent+"breaks: ", n.Breaks)
	list(b, indent+"rests on: ", n.RestsOn)
	list(b, indent+"also because of: ", n.Also)
	for _, e := range n.Evidence {
		where := ""
		if e.Node != "" {
			where = " (" + e.Node + ")"
		}
		fmt.Fprintf(b, "%s$ %s%s\n", indent, e.Command, where)
		lines(b, indent+"  ", e.Excerpt)
	}
	for _, r := range n.Remedy {
		fmt.Fprintf(b, "%sremedy: %s\n", indent, r.Text)
		for _, c := range r.Commands {
			lines(b, indent+"  ", c)
		}
	}
	for _, c := range n.Consequences {
		finding(b, c, indent)
	}
}

func list(b *strings.Builder, title string, all []string) {
	if len(all) > 0 {
		fmt.Fprintf(b, "%s%s\n", title, strings.Join(all, "; "))
	}
}

func lines(b *strings.Builder, indent, text string) {
	if text == "" {
		return
	}
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		fmt.Fprintln(b, strings.TrimRight(indent+line, " "))
	}
}
