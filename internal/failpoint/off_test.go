// SPDX-License-Identifier: Apache-2.0

//go:build !failpoints

package failpoint

import (
	"os"
	"os/exec"
	"testing"
)

func TestNothingHappensWithoutTheTag(t *testing.T) {
	const name = "FAIRLEAD_FAILPOINT"
	if os.Getenv(name) != "" {
		Hit("step")
		if Off("guard") {
			os.Exit(3)
		}
		os.Exit(0)
	}
	child := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	child.Env = append(os.Environ(), name+"=step", "FAIRLEAD_GUARDS_OFF=guard")
	if output, err := child.CombinedOutput(); err != nil {
		t.Errorf("a process that comes to the step: %v\n%s", err, output)
	}
}

func TestAStepCostsNoMemory(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { Hit("step") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
