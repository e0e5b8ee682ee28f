// SPDX-License-Identifier: Apache-2.0

//go:build failpoints

package failpoint

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// The test binary is also the process that gets killed: it takes five steps of
// each of two names, and tells of each before it does.
func TestMain(m *testing.M) {
	if os.Getenv("FAILPOINT_TEST_CHILD") == "" {
		os.Exit(m.Run())
	}
	for i := range 5 {
		fmt.Println("one", i+1)
		Hit("step: one")
		fmt.Println("two", i+1)
		Hit("step: two")
	}
	fmt.Println("exempt", Off("exempt"), "retention", Off("retention"))
}

// child runs the process and returns the last line that it wrote.
func child(t *testing.T, environment ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(append(os.Environ(), "FAILPOINT_TEST_CHILD=1"), environment...)
	out, err := cmd.CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1], err
}

func TestATaggedProcessDiesAtTheChosenStep(t *testing.T) {
	for point, last := range map[string]string{
		"step: one":   "one 1",
		"step: two":   "two 1",
		"step: one#1": "one 1",
		"step: two#4": "two 4",
	} {
		got, err := child(t, "FAIRLEAD_FAILPOINT="+point)
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL || got != last {
			t.Errorf("%s: ended with %v after %q, want a kill after %q", point, err, got, last)
		}
	}
}

func TestATaggedProcessSurvivesOtherSteps(t *testing.T) {
	for _, point := range []string{"", "step", "step: three", "step: one#6"} {
		if got, err := child(t, "FAIRLEAD_FAILPOINT="+point); err != nil || !strings.HasPrefix(got, "exempt false") {
			t.Errorf("%q: %v after %q", point, err, got)
		}
	}
}

func TestAMisspeltStepIsNotPassedOver(t *testing.T) {
	for _, point := range []string{"step: one#", "step: one#0", "step: one#x"} {
		if got, err := child(t, "FAIRLEAD_FAILPOINT="+point); err == nil {
			t.Errorf("%q: survived with %q", point, got)
		}
	}
}

func TestGuardsAreSwitchedOffByName(t *testing.T) {
	for names, want := range map[string]string{
		"":                           "exempt false retention false",
		"retention":                  "exempt false retention true",
		"exempt,endpoints,retention": "exempt true retention true",
	} {
		if got, err := child(t, "FAIRLEAD_GUARDS_OFF="+names); err != nil || got != want {
			t.Errorf("%q: %v, %q, want %q", names, err, got, want)
		}
	}
}
