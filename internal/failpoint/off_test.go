// SPDX-License-Identifier: Apache-2.0

//go:build !failpoints

package failpoint

import "testing"

func TestAnUntaggedBuildHeedsNoEnvironment(t *testing.T) {
	t.Setenv("FAIRLEAD_FAILPOINT", "step")
	t.Setenv("FAIRLEAD_GUARDS_OFF", "guard")
	Hit("step")
	if Off("guard") {
		t.Error("a guard is off")
	}
}
