// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/evidence"
)

// samples makes a case of which each sample has read what conntrack says on
// the nodes that are given.
func samples(t *testing.T, readIn ...[]string) *facts.Case {
	t.Helper()
	b := &evidence.Bundle{}
	for i, nodes := range readIn {
		for _, node := range nodes {
			b.Records = append(b.Records, evidence.Record{
				Path: fmt.Sprintf("%d/nodes/%s/conntrack.txt", i+1, node), Kind: evidence.Conntrack, Node: node, Sample: i + 1,
				Command: "conntrack", Content: []byte("nf_conntrack_count=1\nnf_conntrack_max=10\n"),
			})
		}
	}
	c := facts.Read(b)
	if len(c.Unread) > 0 {
		t.Fatalf("the case is not read: %v", c.Unread[0].Why)
	}
	return c
}

// shows is a check that finds something on the nodes of each sample.
func shows(certain bool, in map[int][]string) Check {
	return Check{ID: "probe", Sample: func(s *facts.Sample) []Finding {
		var out []Finding
		for _, node := range in[s.Number] {
			out = append(out, Finding{Subject: "x", Nodes: []string{node}, Severity: Warning, Certain: certain,
				Evidence: []Evidence{{Node: node, Command: "conntrack"}}})
		}
		return out
	}}
}

func TestPersistence(t *testing.T) {
	n1, n2 := []string{"n1"}, []string{"n2"}
	for _, test := range []struct {
		name    string
		read    [][]string
		in      map[int][]string
		certain bool
		want    string
	}{
		{"what two samples show is confirmed", [][]string{n1, n1}, map[int][]string{1: n1, 2: n1}, false, "confirmed n1"},
		{"what a single sample shows is suspected", [][]string{n1}, map[int][]string{1: n1}, false, "suspected n1"},
		{"what is gone in the second sample was on its way", [][]string{n1, n1}, map[int][]string{1: n1}, false, ""},
		{"what came with the second sample is a note", [][]string{n1, n1}, map[int][]string{2: n1}, false, "note suspected n1"},
		{"what came and went is nothing", [][]string{n1, n1, n1}, map[int][]string{2: n1}, false, ""},
		{"what came on one node is not joined with what lasts on another", [][]string{{"n1", "n2"}, {"n1", "n2"}}, map[int][]string{1: n1, 2: {"n1", "n2"}}, false, "confirmed n1; note suspected n2"},
		{"a sample that lacks the evidence does not speak against it", [][]string{n1, n2}, map[int][]string{1: n1}, false, "suspected n1"},
		{"what is certain needs one sample", [][]string{n1, n1}, map[int][]string{2: n1}, true, "confirmed n1"},
		{"each node is judged on its own", [][]string{{"n1", "n2"}, {"n1", "n2"}}, map[int][]string{1: {"n1", "n2"}, 2: n1}, false, "confirmed n1"},
		{"two nodes are one finding", [][]string{{"n1", "n2"}, {"n1", "n2"}}, map[int][]string{1: {"n2", "n1"}, 2: {"n1", "n2"}}, false, "confirmed n1,n2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := Examine(samples(t, test.read...), []Check{shows(test.certain, test.in)})
			var got []string
			for _, n := range r.Causes {
				got = append(got, n.Certainty.String()+" "+strings.Join(n.Nodes, ","))
			}
			for _, n := range r.Notes {
				got = append(got, "note "+n.Certainty.String()+" "+strings.Join(n.Nodes, ","))
			}
			if diff := cmp.Diff(test.want, strings.Join(got, "; ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// tree writes findings with their consequences in brackets.
func tree(nodes []*Node) string {
	var out []string
	for _, n := range nodes {
		text := n.Check
		if len(n.Consequences) > 0 {
			text += "(" + tree(n.Consequences) + ")"
		}
		for _, also := range n.Also {
			text += " also " + strings.Fields(also)[0]
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

// known gives one check per finding, of the rank that stands behind its name.
func known(findings ...Finding) (*facts.Case, []Check) {
	var checks []Check
	for _, f := range findings {
		name, rank, _ := strings.Cut(f.Check, "@")
		number := 0
		fmt.Sscan(rank, &number)
		checks = append(checks, Check{ID: name, Rank: Rank(number), Case: func(*facts.Case) []Finding { return []Finding{f} }})
	}
	return &facts.Case{}, checks
}

func TestCausesStandAboveConsequences(t *testing.T) {
	finding := func(check string, severity Severity, rests, breaks string) Finding {
		return Finding{Check: check, Severity: severity, Subject: check, Certain: true, RestsOn: list(rests), Breaks: list(breaks)}
	}
	for _, test := range []struct {
		name, want string
		findings   []Finding
	}{
		{"a chain", "role(forbidden(init(dns)))", []Finding{
			finding("dns@4", Critical, "pods", ""), finding("init@3", Critical, "api", "pods"),
			finding("forbidden@2", Warning, "may", "api"), finding("role@1", Critical, "", "may"),
		}},
		{"the nearest of several causes is the parent", "role(agent(dns also role))", []Finding{
			finding("role@1", Critical, "", "a,b"), finding("agent@2", Critical, "a", "c"), finding("dns@3", Critical, "b,c", ""),
		}},
		{"a defect that took the very thing away comes before what could have", "bug(empty also role) role", []Finding{
			{Check: "bug@0", Severity: Critical, Subject: "a/b", Certain: true, Breaks: list("kept")},
			finding("role@2", Critical, "", "may"),
			{Check: "empty@5", Severity: Critical, Subject: "a/b", Certain: true, RestsOn: list("may,kept")},
		}},
		{"what breaks on all nodes breaks on each", "bug(empty)", []Finding{
			finding("bug@1", Warning, "", "backends of a/b"), finding("empty@2", Critical, "backends of a/b on n1", ""),
		}},
		{"what breaks on one node does not break on another", "empty bug", []Finding{
			finding("bug@1", Warning, "", "backends of a/b on n2"), finding("empty@2", Critical, "backends of a/b on n1", ""),
		}},
		{"a name that another begins with is another one", "empty bug", []Finding{
			finding("bug@1", Warning, "", "backends of a/b"), finding("empty@2", Critical, "backends of a/bc", ""),
		}},
		{"a finding of a higher rank explains what nothing else does", "empty(cut(stale))", []Finding{
			finding("empty@1", Critical, "", "b"), finding("cut@3", Critical, "b", "api"), finding("stale@2", Warning, "api", ""),
		}},
		{"findings that explain each other make no circle", "first(second)", []Finding{
			finding("first@1", Critical, "x", "y"), finding("second@2", Critical, "y", "x"),
		}},
		{"the cause that explains most of the worst is first", "b(c) a d", []Finding{
			finding("a@1", Critical, "", ""), finding("b@1", Warning, "", "x"), finding("c@2", Critical, "x", ""), finding("d@1", Warning, "", ""),
		}},
		{"info is a note, unless it explains something", "i(c)", []Finding{
			finding("i@1", Info, "", "x"), finding("c@2", Warning, "x", ""), finding("note@1", Info, "", ""),
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, checks := known(test.findings...)
			if diff := cmp.Diff(test.want, tree(Examine(c, checks).Causes)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestNodesAreJoinedWhereTheyHaveTheSameRoot(t *testing.T) {
	on := func(node, check, rests, breaks string) Finding {
		f := Finding{Check: check, Severity: Critical, Subject: check, Certain: true, Nodes: []string{node}}
		for _, token := range list(rests) {
			f.RestsOn = append(f.RestsOn, token+" on "+node)
		}
		for _, token := range list(breaks) {
			f.Breaks = append(f.Breaks, token+" on "+node)
		}
		return f
	}
	for _, test := range []struct {
		name, want string
		findings   []Finding
	}{
		{"what has the same cause on two nodes is one finding", "empty n1,n2(cut n1,n2(crash n1,n2))", []Finding{
			on("n1", "empty@1", "", "b"), on("n1", "cut@2", "b", "api"), on("n1", "crash@3", "api", ""),
			on("n2", "empty@1", "", "b"), on("n2", "cut@2", "b", "api"), on("n2", "crash@3", "api", ""),
		}},
		{"a node without the cause stands by itself", "empty n1(cut n1(crash n1)) crash n2", []Finding{
			on("n1", "empty@1", "", "b"), on("n1", "cut@2", "b", "api"), on("n1", "crash@3", "api", ""),
			on("n2", "crash@3", "api", ""),
		}},
		{"another way from the same root makes no other finding", "empty n1(loop n1(cut n1,n2))", []Finding{
			on("n1", "empty@1", "", "b"), on("n1", "cut@3", "b", ""),
			{Check: "loop@2", Severity: Critical, Certain: true, Nodes: []string{"n1"}, RestsOn: []string{"b on n1"}, Breaks: []string{"way"}},
			{Check: "cut@3", Severity: Critical, Subject: "cut@3", Certain: true, Nodes: []string{"n2"}, RestsOn: []string{"way on n2"}},
		}},
		{"causes of causes count", "empty n1(cut n1(crash n1)) cut n2(crash n2)", []Finding{
			on("n1", "empty@1", "", "b"), on("n1", "cut@2", "b", "api"), on("n1", "crash@3", "api", ""),
			on("n2", "cut@2", "b", "api"), on("n2", "crash@3", "api", ""),
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, checks := known(test.findings...)
			var text func([]*Node) string
			text = func(nodes []*Node) string {
				var all []string
				for _, n := range nodes {
					one := n.Check + " " + strings.Join(n.Nodes, ",")
					if len(n.Consequences) > 0 {
						one += "(" + text(n.Consequences) + ")"
					}
					all = append(all, one)
				}
				return strings.Join(all, " ")
			}
			if diff := cmp.Diff(test.want, text(Examine(c, checks).Causes)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// BenchmarkManyFindings has a budget of half a second: on each of 100 nodes 100
// Services have lost their backends, and an agent is cut off.
func BenchmarkManyFindings(b *testing.B) {
	var cut, empty []Finding
	for n := range 100 {
		node := fmt.Sprintf("n%d", n)
		cut = append(cut, Finding{Severity: Critical, Subject: "agent", Nodes: []string{node}, Breaks: []string{Reach("a/b", node)}})
		for s := range 100 {
			name := fmt.Sprintf("shop/s%d", s)
			empty = append(empty, Finding{Severity: Critical, Subject: name, Nodes: []string{node},
				RestsOn: []string{Reach("a/b", node)}, Breaks: []string{Backends(name, node)}})
		}
	}
	checks := []Check{
		{ID: "cut", Rank: RankPermission, Case: func(*facts.Case) []Finding { return cut }},
		{ID: "empty", Rank: RankKernel, Case: func(*facts.Case) []Finding { return empty }},
	}
	c := &facts.Case{}
	for b.Loop() {
		if got := Examine(c, checks); len(got.Causes) != 1 || len(got.Causes[0].Consequences) != 100 {
			b.Fatalf("%d causes", len(got.Causes))
		}
	}
}

func list(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// Whatever findings rest on, each stands in the tree once, and the order in
// which checks run changes nothing.
func TestEveryFindingStandsOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		token := rapid.SampledFrom([]string{"a", "b", "c", "a on n1", "b on n1", "b on n2"})
		var findings []Finding
		for i := range rapid.IntRange(0, 12).Draw(t, "findings") {
			findings = append(findings, Finding{
				Check:   fmt.Sprintf("f%d@%d", i, rapid.IntRange(0, 4).Draw(t, "rank")),
				Subject: fmt.Sprint(i), Certain: true, Severity: Severity(rapid.IntRange(0, 2).Draw(t, "severity")),
				RestsOn: rapid.SliceOfN(token, 0, 3).Draw(t, "rests on"),
				Breaks:  rapid.SliceOfN(token, 0, 3).Draw(t, "breaks"),
			})
		}
		c, checks := known(findings...)
		r := Examine(c, checks)
		var seen []string
		var walk func([]*Node)
		walk = func(nodes []*Node) {
			for _, n := range nodes {
				seen = append(seen, n.Subject)
				walk(n.Consequences)
			}
		}
		walk(r.Causes)
		walk(r.Notes)
		slices.Sort(seen)
		if len(seen) != len(findings) || len(slices.Compact(seen)) != len(findings) {
			t.Fatalf("%d findings, and the tree has %v", len(findings), seen)
		}
		slices.Reverse(checks)
		if diff := cmp.Diff(tree(r.Causes), tree(Examine(c, checks).Causes)); diff != "" {
			t.Fatal("another order of checks gives another tree:", diff)
		}
	})
}
