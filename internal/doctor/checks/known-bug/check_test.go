// SPDX-License-Identifier: Apache-2.0

package knownbug

import (
	"testing"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/bugs"
	"github.com/fairlead-io/fairlead/internal/doctor/doctortest"
)

func TestCheck(t *testing.T) {
	doctortest.Run(t, []doctor.Check{Check()}, "testdata")
}

func TestEveryBugNeedsSomethingThatIsLookedFor(t *testing.T) {
	used := map[string]bool{}
	for _, b := range bugs.All() {
		used[b.Needs] = true
		if b.Check == "" && needs()[b.Needs].look == nil {
			t.Errorf("%s needs %q, which nothing looks for", b.ID, b.Needs)
		}
		if b.Check == "" && severity(b.Severity).String() != b.Severity {
			t.Errorf("%s is of severity %q, which is none", b.ID, b.Severity)
		}
	}
	for name := range needs() {
		if !used[name] {
			t.Errorf("no bug needs %q", name)
		}
	}
}
