// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"fmt"
	"slices"
	"testing"
)

func TestEachBatchIsToldOnceItIsInTheTables(t *testing.T) {
	w := newWorld(t, newKernel(t))
	w.list()
	var told []string
	w.tried = func(b Batch) {
		for _, c := range b.Changes {
			told = append(told, fmt.Sprintf("%s deleted=%v failed=%v", c.Row.Name.Name, c.Deleted, b.Failed[c.Row.Name] != nil))
		}
		for _, line := range w.statuses() {
			told = append(told, "  "+line)
		}
		if b.Took <= 0 {
			t.Errorf("a batch took %s", b.Took)
		}
	}
	for _, step := range []struct {
		name string
		do   func()
		want []string
	}{
		{"what was written", func() { w.put(service("a", 1)); w.reconciler.Step() },
			[]string{"a deleted=false failed=false", "  a 10.96.0.1:80/TCP Done"}},
		{"what could not be", func() { w.fails("Publish"); w.put(endpoints("a", 1)); w.reconciler.Step() },
			[]string{"a deleted=false failed=true", "  a 10.96.0.1:80/TCP Error: " + errFault.Error()}},
		{"what went well at last", func() { w.change(func() { w.fault = nil }); w.reconciler.tryAgain() },
			[]string{"a deleted=false failed=false", "  a 10.96.0.1:80/TCP Done"}},
		{"what went", func() { w.remove("a"); w.reconciler.Step() },
			[]string{"a deleted=true failed=false"}},
	} {
		t.Run(step.name, func(t *testing.T) {
			told = nil
			step.do()
			if !slices.Equal(told, step.want) {
				t.Errorf("told %q\nwant %q", told, step.want)
			}
		})
	}
}
