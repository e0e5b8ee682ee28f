// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// report counts what a run did. The clients and the watcher count, too.
type report struct {
	seed    uint64
	began   time.Time
	steps   int
	actions map[string]int // by name
	quiet   int            // quiet points
	slowest time.Duration  // from the end of all faults until all was well

	held, opened, lost, glances atomic.Int64
}

func newReport(seed uint64) *report {
	return &report{seed: seed, began: time.Now(), actions: map[string]int{}}
}

// healed notes a quiet point, and how long it took to be one.
func (r *report) healed(took time.Duration) {
	r.quiet++
	r.slowest = max(r.slowest, took)
}

// markdown is the report as the page about reliability shows it.
func (r *report) markdown() string {
	var b strings.Builder
	row := func(what string, value any) { fmt.Fprintf(&b, "| %s | %v |\n", what, value) }
	fmt.Fprintf(&b, "| what | seed %d |\n| --- | ---: |\n", r.seed)
	row("time", time.Since(r.began).Round(time.Second))
	row("steps", r.steps)
	row("quiet points, at which everything was as the objects say", r.quiet)
	row("longest way from the end of all faults to a quiet point", r.slowest.Round(10*time.Millisecond))
	row("connections held through Services", r.held.Load())
	row("connections opened to Services that had to answer", r.opened.Load())
	row("connections lost, refused, or answered by the wrong endpoint", r.lost.Load())
	row("looks at the kernel's maps", r.glances.Load())
	fmt.Fprintf(&b, "\n| step | times |\n| --- | ---: |\n")
	byCount := func(x, y string) int {
		return cmp.Or(cmp.Compare(r.actions[y], r.actions[x]), cmp.Compare(x, y))
	}
	for _, name := range slices.SortedFunc(maps.Keys(r.actions), byCount) {
		row(name, r.actions[name])
	}
	return b.String()
}
