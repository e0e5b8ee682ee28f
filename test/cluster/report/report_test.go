// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// oneSuite wraps reports of specs as the runner does.
func oneSuite(willRun, reports string) string {
	return `[{"PreRunStats": {"TotalSpecs": 7355, "SpecsThatWillRun": ` + willRun + `}, "SpecReports": [` + reports + `]}]`
}

func TestParse(t *testing.T) {
	for name, c := range map[string]struct {
		report string
		want   []Spec
	}{
		"specs that passed are told by their full name, sorted": {
			oneSuite("2", `
				{"ContainerHierarchyTexts": ["[sig-network] Services"], "LeafNodeType": "It", "LeafNodeText": "should work", "State": "passed"},
				{"ContainerHierarchyTexts": ["[sig-network] DNS", "for pods"], "LeafNodeType": "It", "LeafNodeText": "should work", "State": "passed"}`),
			[]Spec{
				{Name: "[sig-network] DNS for pods should work", State: Passed},
				{Name: "[sig-network] Services should work", State: Passed},
			},
		},
		"specs out of focus are left out": {
			oneSuite("0", `
				{"ContainerHierarchyTexts": null, "LeafNodeType": "It", "LeafNodeText": "other", "State": "skipped"},
				{"ContainerHierarchyTexts": null, "LeafNodeType": "It", "LeafNodeText": "to be written", "State": "pending"}`),
			nil,
		},
		"a spec that does not fit the cluster is skipped with its reason": {
			oneSuite("1", `{"LeafNodeType": "It", "LeafNodeText": "spreads", "State": "skipped",
				"Failure": {"Message": "need at least 3 zones", "Location": {"FileName": "a/b.go", "LineNumber": 3}}}`),
			[]Spec{{Name: "spreads", State: Skipped, Reason: "need at least 3 zones"}},
		},
		"a failure tells its first line and where it comes from": {
			oneSuite("1", `{"LeafNodeType": "It", "LeafNodeText": "answers", "State": "failed",
				"Failure": {"Message": "service is not reachable\nstack\n", "Location": {"FileName": "k8s.io/kubernetes/test/e2e/network/service.go", "LineNumber": 1489}}}`),
			[]Spec{{Name: "answers", State: Failed, Reason: "service is not reachable (service.go:1489)"}},
		},
		"paths of the machine are not told": {
			oneSuite("1", `{"LeafNodeType": "It", "LeafNodeText": "answers", "State": "failed",
				"Failure": {"Message": "error running /home/u/.cache/bin/kubectl --kubeconfig=/home/u/run/admin.kubeconfig exec p -- curl http://10.0.0.1/a/b"}}`),
			[]Spec{{Name: "answers", State: Failed, Reason: "error running kubectl --kubeconfig=admin.kubeconfig exec p -- curl http://10.0.0.1/a/b"}},
		},
		"long messages are cut": {
			oneSuite("1", `{"LeafNodeType": "It", "LeafNodeText": "answers", "State": "failed", "Failure": {"Message": "`+strings.Repeat("ä", 300)+`"}}`),
			[]Spec{{Name: "answers", State: Failed, Reason: strings.Repeat("ä", maxReason) + "…"}},
		},
		"whatever neither passed nor was skipped has failed": {
			oneSuite("3", `
				{"LeafNodeType": "It", "LeafNodeText": "a", "State": "timedout", "Failure": {"Message": "late"}},
				{"LeafNodeType": "It", "LeafNodeText": "b", "State": "panicked", "Failure": {"Message": "nil"}},
				{"LeafNodeType": "It", "LeafNodeText": "c", "State": "a state of tomorrow"}`),
			[]Spec{{"a", Failed, "late"}, {"b", Failed, "nil"}, {"c", Failed, ""}},
		},
		"a step around the specs counts if it failed": {
			oneSuite("0", `
				{"LeafNodeType": "SynchronizedBeforeSuite", "State": "failed", "Failure": {"Message": "no nodes"}},
				{"LeafNodeType": "ReportAfterSuite", "LeafNodeText": "junit", "State": "passed"}`),
			[]Spec{{"[SynchronizedBeforeSuite]", Failed, "no nodes"}},
		},
		"a run that ended early has failed, whatever passed": {
			`[{"SpecialSuiteFailureReasons": ["Suite Timeout Elapsed"], "PreRunStats": {"SpecsThatWillRun": 3}, "SpecReports": [
				{"LeafNodeType": "It", "LeafNodeText": "a", "State": "passed"}]}]`,
			[]Spec{
				{"a", Passed, ""},
				{"the run of all specs", Failed, "Suite Timeout Elapsed"},
				{"the run of all specs", Failed, "2 specs were never started"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parse(strings.NewReader(c.report))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseRefusesWhatIsNoReport(t *testing.T) {
	for _, text := range []string{"", "{", `"text"`, `{"SpecReports": []}`, `[{"SpecReports": 1}]`} {
		if specs, err := Parse(strings.NewReader(text)); err == nil {
			t.Errorf("Parse(%q) = %v, want an error", text, specs)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(oneSuite("1", `{"LeafNodeType": "It", "LeafNodeText": "a", "State": "failed", "Failure": {"Message": "x /a/b/c"}}`))
	f.Add(oneSuite("-1", `{"ContainerHierarchyTexts": ["", "b"], "State": "skipped"}`))
	f.Fuzz(func(t *testing.T, text string) {
		specs, err := Parse(strings.NewReader(text))
		if err != nil {
			return
		}
		r := Result{Proxy: "p", Set: "s", Specs: specs}
		if r.Count(Passed)+r.Count(Failed)+r.Count(Skipped) != len(specs) {
			t.Errorf("a spec is in no state, or in two: %v", specs)
		}
		for _, s := range specs {
			if strings.Contains(s.Reason, "\n") {
				t.Errorf("a reason of several lines: %q", s.Reason)
			}
		}
		for line := range strings.Lines(Page([]Result{r})) {
			if strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "# Conformance") &&
				!strings.HasPrefix(line, "## Failed: s with p") && !strings.HasPrefix(line, "## Skipped: s with p") {
				t.Errorf("a heading that nobody wrote: %q", line)
			}
		}
	})
}
