// SPDX-License-Identifier: Apache-2.0

//go:build failpoints

package datapath

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/internal/failpoint/points"
)

// oftenEnough is how many hits of one failpoint on one way are tried: the first
// ones, and the last.
const oftenEnough = 4

// failpointsOn says at which failpoints a writer can die on its way, in order,
// as NAME#N.
func (j *journey) failpointsOn(from, to world) (fails []string) {
	j.t.Helper()
	process, err := j.send(from, to, "?")
	if err != nil {
		j.t.Fatalf("from %s to %s: %v: %s", from.name, to.name, err, process.Stderr())
	}
	all := strings.Split(strings.TrimSpace(process.Stderr()), "\n")
	times, hits := map[string]int{}, map[string]int{}
	for _, name := range all {
		times[name]++
	}
	for _, name := range all {
		hits[name]++
		if hits[name] < oftenEnough || hits[name] == times[name] {
			fails = append(fails, fmt.Sprintf("%s#%d", name, hits[name]))
		}
	}
	return fails
}

// crash lets a writer die on its way, and another one bring it to its end; with
// fail "" the first one gets there itself.
func (j *journey) crash(from, to world, fail string) {
	j.t.Helper()
	process, err := j.send(from, to, fail)
	if fail == "" && err != nil || fail != "" && (err == nil || err.Error() != "signal: killed") {
		j.t.Fatalf("from %s to %s: it ended with %v: %s", from.name, to.name, err, process.Stderr())
	}
	j.finish(from, to)
}

// share leaves each failpoint that is not done yet once, its first hit, on the
// way on which fewer are left.
func share(forth, back []string, done map[string]bool) (f, b []string) {
	for _, fail := range slices.Concat(forth, back) {
		name := nameIn(fail)
		if done[name] {
			continue
		}
		done[name] = true
		first := name + "#1"
		if !slices.Contains(forth, first) || slices.Contains(back, first) && len(b) < len(f) {
			b = append(b, first)
			continue
		}
		f = append(f, first)
	}
	return f, b
}

// nameIn is the name of NAME#N.
func nameIn(fail string) string {
	name, _, _ := strings.Cut(fail, "#")
	return name
}

// Wherever a writer dies, programs find the old sets or the new ones, whole, and
// the next writer makes of what it finds what it would have made of anything
// else (R33, R39). Every failpoint of the package is on one of the passages.
//
// With -short a writer dies once at each failpoint of each passage on which the
// client is served, and at those that only others have; else at more hits of
// each, both ways, on all passages.
func TestAWriterMayDieAnywhere(t *testing.T) {
	seen := map[string]bool{}
	for _, by := range passages {
		t.Run(by.name, func(t *testing.T) {
			j := newJourney(t, by)
			forth := j.failpointsOn(j.a, j.b)
			j.finish(j.a, j.b)
			back := j.failpointsOn(j.b, j.a)
			j.finish(j.b, j.a)
			if testing.Short() {
				done := map[string]bool{}
				if !by.served() {
					done = maps.Clone(seen)
				}
				forth, back = share(forth, back, done)
			}
			for _, fail := range slices.Concat(forth, back) {
				seen[nameIn(fail)] = true
			}
			j.crashAtEach(forth, back)
			t.Logf("killed at %d steps one way and at %d the other", len(forth), len(back))
		})
	}
	all, err := points.In(".")
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, all) {
		t.Errorf("the failpoints on the passages are\n%s\nthose of the package are\n%s", strings.Join(got, "\n"), strings.Join(all, "\n"))
	}
}

// crashAtEach goes to and fro until a writer has died at each failpoint.
func (j *journey) crashAtEach(forth, back []string) {
	j.t.Helper()
	for i := range max(len(forth), len(back)) {
		for _, leg := range []struct {
			from, to world
			fails    []string
		}{{j.a, j.b, forth}, {j.b, j.a, back}} {
			fail := ""
			if i < len(leg.fails) {
				fail = leg.fails[i]
			}
			j.crash(leg.from, leg.to, fail)
			if j.t.Failed() {
				j.t.Fatalf("from %s to %s, killed at %q", leg.from.name, leg.to.name, fail)
			}
		}
	}
}
