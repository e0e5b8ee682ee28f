// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestThePageAboutTheDoctorShowsWhatItPrints(t *testing.T) {
	page, err := os.ReadFile("../../docs/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, begins := strings.Cut(string(page), "```console\n$ fairlead ")
	command, rest, _ := strings.Cut(rest, "\n")
	want, _, ends := strings.Cut(rest, "```")
	if !begins || !ends {
		t.Fatal("the page shows nothing")
	}
	_, out, _ := fairlead(t, "", strings.Fields(strings.ReplaceAll(command, "examples/", examplesDir+"/"))...)
	for line := range strings.Lines(want) {
		// A line of dots stands for any lines, and dots in a line for any text.
		if strings.TrimSpace(line) == "…" {
			continue
		}
		pattern := "(?m)^" + strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSuffix(line, "\n")), "…", ".*") + "$"
		at := regexp.MustCompile(pattern).FindStringIndex(out)
		if at == nil {
			t.Fatalf("%q is not printed, or not in this order; what was left:\n%s", line, out)
		}
		out = out[at[1]:]
	}
}
