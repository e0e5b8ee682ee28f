// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/evidence"
)

var update = flag.Bool("update", false, "write what is printed to the golden files")

var began = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

// outage is a cause with consequences on many nodes, another cause, a note, and
// something that was not read.
func outage() doctor.Report {
	nodes := []string{}
	for i := range 12 {
		nodes = append(nodes, fmt.Sprintf("n%02d", i+1))
	}
	crash := &doctor.Node{Finding: doctor.Finding{
		Check: "component-crashing", Severity: doctor.Critical, Certainty: doctor.Confirmed, Subject: "kube-system/cilium", Nodes: nodes,
		Title:  "the pods of kube-system/cilium are in CrashLoopBackOff",
		Remedy: []doctor.Remedy{{Text: "They start again by themselves."}},
	}}
	cut := &doctor.Node{Finding: doctor.Finding{
		Check: "cut-off", Severity: doctor.Critical, Certainty: doctor.Confirmed, Layer: doctor.LayerConnection, Subject: "kube-system/cilium", Nodes: nodes,
		Title:  "kube-system/cilium does not reach the API server",
		Detail: []string{"Nothing can tell it that there are backends."},
		Evidence: []doctor.Evidence{{Node: "n01", Command: "kubectl -n kube-system logs cilium-x2x4z", Time: began, Path: "logs/n01/kube-system_cilium-x2x4z_agent.log",
			Excerpt: "dial tcp 10.0.0.9:443: connect: operation not permitted"}},
	}, Consequences: []*doctor.Node{crash}}
	root := &doctor.Node{Finding: doctor.Finding{
		Check: "backends-missing", Severity: doctor.Critical, Certainty: doctor.Confirmed, Layer: doctor.LayerKernel, Subject: "shop/web", Nodes: nodes, Since: began.Add(-time.Hour),
		Title:  "shop/web has no backends in the kernel, and 1 in the API",
		Detail: []string{"Connections to it are refused by every node that is named here, although the API has an endpoint that is ready, and each agent's own table has it as well."},
		Evidence: []doctor.Evidence{
			{Node: "n01", Command: "cilium-dbg bpf lb list", Time: began, Path: "1/nodes/n01/dump-cilium-maps.txt", Excerpt: "SERVICE ADDRESS\tBACKEND ADDRESS\n10.96.0.80:80/TCP (0)\t0.0.0.0:0 (14) (0) [ClusterIP]"},
			{Command: "kubectl get endpointslices -A -o yaml", Time: began, Path: "1/objects/endpointslices.discovery.k8s.io.yaml", Excerpt: strings.Repeat("- addresses: [10.0.1.7]\n", 20)},
		},
		Remedy: []doctor.Remedy{{Text: "Let the agent write it again.", Commands: []string{"kubectl -n kube-system rollout restart daemonset cilium", "kubectl apply -f - <<'EOF'\nkind: List\nitems: []\nEOF"}}},
	}, Consequences: []*doctor.Node{cut}}
	second := &doctor.Node{Finding: doctor.Finding{
		Check: "selector-empty", Severity: doctor.Warning, Certainty: doctor.Suspected, Layer: doctor.LayerAPI, Subject: "shop/old", Title: "shop/old selects no pod",
	}, Also: []string{"duplicate-vip shop/a"}}
	note := &doctor.Node{Finding: doctor.Finding{Check: "known-bug", Severity: doctor.Info, Certainty: doctor.Confirmed, Subject: "kube-proxy", Nodes: []string{"n01"}, Title: "kube-proxy 1.35.4 is known for a defect that does not matter here"}}
	return doctor.Report{
		Causes: []*doctor.Node{root, second}, Notes: []*doctor.Node{note},
		Scope:   doctor.Scope{Services: 42, Layers: []string{"api", "cilium frontends", "cilium kernel"}},
		Samples: []doctor.Span{{From: began, To: began.Add(time.Second)}, {From: began.Add(10 * time.Second), To: began.Add(11 * time.Second)}},
		Nodes:   nodes,
		Checks:  []string{"backends-missing", "component-crashing", "cut-off", "known-bug", "selector-empty", "two-proxies"},
		Unread:  []facts.Unread{{Record: &evidence.Record{Path: "1/nodes/n02/cilium-status.txt", Node: "n02", Command: "cilium-dbg status"}, Why: "command not found"}},
	}
}

func quiet() doctor.Report {
	r := outage()
	r.Causes, r.Notes, r.Unread = nil, nil, nil
	return r
}

// JSON is what the command line writes for -o json.
func jsonText(w io.Writer, r Report) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

func TestEveryFormatIsAsItsGoldenFile(t *testing.T) {
	narrow, wide := View{Width: 80}, View{Width: 80, Wide: true}
	for _, test := range []struct {
		file  string
		of    doctor.Report
		write func(io.Writer, Report) error
	}{
		{"outage.txt", outage(), func(w io.Writer, r Report) error { return Tree(w, r, narrow) }},
		{"outage-wide.txt", outage(), func(w io.Writer, r Report) error { return Tree(w, r, wide) }},
		{"quiet.txt", quiet(), func(w io.Writer, r Report) error { return Tree(w, r, narrow) }},
		{"outage.json", outage(), jsonText},
		{"nothing.json", doctor.Report{}, jsonText},
		{"outage.xml", outage(), JUnit},
		{"outage.prom", outage(), Prometheus},
		{"outage.html", outage(), HTML},
	} {
		t.Run(test.file, func(t *testing.T) {
			var have bytes.Buffer
			if err := test.write(&have, New(test.of)); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", test.file)
			if *update {
				if err := os.WriteFile(path, have.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), have.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestListsAreNeverNull(t *testing.T) {
	for name, from := range map[string]doctor.Report{"nothing": {}, "bare findings": {Causes: []*doctor.Node{{Finding: doctor.Finding{Remedy: []doctor.Remedy{{}}}}}}} {
		var text bytes.Buffer
		if err := jsonText(&text, New(from)); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(text.String(), "null") {
			t.Errorf("%s: %s", name, &text)
		}
	}
}

func TestOnlyWarningsAndWorseCount(t *testing.T) {
	info := &doctor.Node{Finding: doctor.Finding{Severity: doctor.Info}}
	under := func(s doctor.Severity) *doctor.Node {
		return &doctor.Node{Finding: doctor.Finding{Severity: doctor.Info}, Consequences: []*doctor.Node{{Finding: doctor.Finding{Severity: s}}}}
	}
	for _, test := range []struct {
		name string
		of   doctor.Report
		want bool
	}{
		{"nothing", doctor.Report{}, false},
		{"a note", doctor.Report{Notes: []*doctor.Node{info}}, false},
		{"notes that follow from each other", doctor.Report{Causes: []*doctor.Node{under(doctor.Info)}}, false},
		{"a warning that follows from a note", doctor.Report{Causes: []*doctor.Node{under(doctor.Warning)}}, true},
		{"something critical", doctor.Report{Causes: []*doctor.Node{{Finding: doctor.Finding{Severity: doctor.Critical}}}}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := New(test.of)
			if r.Found() != test.want {
				t.Errorf("found: %v", !test.want)
			}
		})
	}
}

func TestSilenceSaysHowFarItGoes(t *testing.T) {
	for _, test := range []struct {
		name  string
		scope doctor.Scope
		want  string
	}{
		{"two layers", doctor.Scope{Services: 2, Layers: []string{"api", "cilium kernel"}}, "2 Services on 12 nodes in 2 layers (api, cilium kernel)"},
		{"the API alone", doctor.Scope{Services: 1, Layers: []string{"api"}}, "1 Service in the API, and no table of any data plane to compare them with"},
		{"no objects", doctor.Scope{Layers: []string{"cilium kernel"}}, "no Services of the API were read, so no data plane was compared with them"},
	} {
		t.Run(test.name, func(t *testing.T) {
			from := quiet()
			from.Scope = test.scope
			r := New(from)
			if want := "Nothing is wrong that 6 checks could see: " + test.want + "."; r.headline() != want {
				t.Errorf("got  %s\nwant %s", r.headline(), want)
			}
		})
	}
}

func TestFindingsWithoutServicesSayThatNoneWereRead(t *testing.T) {
	r := New(doctor.Report{Checks: []string{"cut-off"}, Causes: []*doctor.Node{{Finding: doctor.Finding{Severity: doctor.Critical}}}})
	const want = "1 finding of 1 cause (1 critical). 1 check looked: no Services of the API were read, so no data plane was compared with them."
	if got := r.headline(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestLinesOfATreeKeepToTheWidth(t *testing.T) {
	for _, width := range []int{60, 80, 120} {
		var text bytes.Buffer
		if err := Tree(&text, New(outage()), View{Width: width}); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(text.String()) {
			commands := []string{"$ ", "kubectl -n", "SERVICE ADDRESS", "10.96.0.80:80"}
			bare := slices.ContainsFunc(commands, func(c string) bool { return strings.Contains(line, c) })
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > width && !bare {
				t.Errorf("width %d: %d columns: %s", width, n, line)
			}
		}
	}
}

func TestManyAlikeAreNamedAndNotTold(t *testing.T) {
	many := doctor.Report{}
	for i := range 40 {
		many.Causes = append(many.Causes, &doctor.Node{Finding: doctor.Finding{
			Check: "selector-empty", Severity: doctor.Warning, Subject: fmt.Sprintf("shop/s%02d", i), Title: fmt.Sprintf("shop/s%02d selects no pod", i),
			Remedy: []doctor.Remedy{{Text: "Compare the labels."}},
		}})
	}
	many.Causes = append(many.Causes, &doctor.Node{Finding: doctor.Finding{Check: "map-full", Severity: doctor.Warning, Subject: "map x", Title: "the map x is nearly full"}})
	for _, test := range []struct {
		name         string
		wide         bool
		told, absent string
		remedies     int
	}{
		{"three are told, ten are named, the others are counted", false, "37 more of selector-empty:", "shop/s13", 3},
		{"what is of another check is told after them, too", false, "the map x is nearly full", "shop/s13", 3},
		{"all are told where all is wanted", true, "shop/s39 selects no pod", "more of", 40},
	} {
		t.Run(test.name, func(t *testing.T) {
			var text bytes.Buffer
			if err := Tree(&text, New(many), View{Width: 100, Wide: test.wide}); err != nil {
				t.Fatal(err)
			}
			got := text.String()
			if !strings.Contains(got, test.told) || strings.Contains(got, test.absent) || strings.Count(got, "What to do:") != test.remedies {
				t.Error(got)
			}
		})
	}
}

func TestColoursAreAllThatATerminalGetsMore(t *testing.T) {
	var bare, coloured bytes.Buffer
	r := New(outage())
	if err := Tree(&bare, r, View{Width: 70}); err != nil {
		t.Fatal(err)
	}
	if err := Tree(&coloured, r, View{Width: 70, Colour: true}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(bare.String(), plain(coloured.String())); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(coloured.String(), "\x1b[31mcritical, confirmed:\x1b[0m") {
		t.Error("what is critical is not red")
	}
}
