// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"
)

const pageHead = `# Conformance

What upstream's own end-to-end tests find on a cluster of three nodes with Fairlead as Service proxy, and with
kube-proxy in its nftables mode for comparison. ` + "`make e2e`" + ` runs them and writes this page; ` + "`test/cluster`" + ` says how.

Left out are specs that upstream marks as slow, disruptive, serial, or as of a feature that is not always there, and
those of cloud load balancers.

| set | proxy | specs | passed | failed | skipped |
| --- | --- | ---: | ---: | ---: | ---: |
`

// Page tells people about results.
func Page(results []Result) string {
	results = slices.Clone(results)
	// The set that is about Services alone comes first.
	slices.SortStableFunc(results, func(a, b Result) int { return strings.Compare(b.Set, a.Set) })

	var text strings.Builder
	text.WriteString(pageHead)
	for _, r := range results {
		fmt.Fprintf(&text, "| %s | %s | %d | %d | %d | %d |\n",
			r.Set, r.Proxy, len(r.Specs), r.Count(Passed), r.Count(Failed), r.Count(Skipped))
	}
	for _, r := range results {
		writeSpecs(&text, fmt.Sprintf("Failed: %s with %s", r.Set, r.Proxy), r.in(Failed))
		writeSpecs(&text, fmt.Sprintf("Skipped: %s with %s", r.Set, r.Proxy), r.in(Skipped))
	}
	return text.String()
}

func writeSpecs(text *strings.Builder, title string, specs []Spec) {
	if len(specs) == 0 {
		return
	}
	fmt.Fprintf(text, "\n## %s\n\n", title)
	for _, s := range specs {
		fmt.Fprintf(text, "- %s\n", plain(s.Name))
		if s.Reason != "" {
			fmt.Fprintf(text, "  — %s\n", plain(s.Reason))
		}
	}
}

// plain keeps Markdown from seeing marks of its own in somebody else's words.
var plain = strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "<", `\<`, ">", `\>`, "[", `\[`, "]", `\]`, "|", `\|`, "\n", " ").Replace
