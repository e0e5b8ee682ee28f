// SPDX-License-Identifier: Apache-2.0

//go:build failpoints

package failpoint

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"
)

// walkVariable lets the test binary walk over steps, and say each that it has
// passed.
const walkVariable = "FAILPOINT_TEST_WALK"

func TestMain(m *testing.M) {
	if os.Getenv(walkVariable) == "" {
		os.Exit(m.Run())
	}
	defer fmt.Println("deferred")
	for i := range 3 {
		Hit("first")
		Hit("second")
		fmt.Println(i, Off("here"), Off("there"))
	}
}

func TestAProcessDiesAtItsStep(t *testing.T) {
	const whole = "0 false false\n1 false false\n2 false false\ndeferred\n"
	for name, c := range map[string]struct {
		failpoint, guards string
		killed            bool
		status            int
		output, stderr    string
	}{
		"none is named":                    {output: whole},
		"the first time":                   {failpoint: "second", killed: true},
		"the second time":                  {failpoint: "first#2", killed: true, output: "0 false false\n"},
		"the third time":                   {failpoint: "second#3", killed: true, output: "0 false false\n1 false false\n"},
		"a time that does not come":        {failpoint: "second#4", output: whole},
		"a step that does not come":        {failpoint: "third", output: whole},
		"each step is written":             {failpoint: "?", output: whole, stderr: strings.Repeat("first\nsecond\n", 3)},
		"a guard is off":                   {guards: "here", output: strings.ReplaceAll(whole, "false false", "true false")},
		"two guards are off":               {guards: "here,there", output: strings.ReplaceAll(whole, "false", "true")},
		"no number":                        {failpoint: "first#x", status: 2, stderr: "NAME#N"},
		"a number that is none of a visit": {failpoint: "first#0", status: 2, stderr: "NAME#N"},
	} {
		t.Run(name, func(t *testing.T) {
			child := exec.Command(os.Args[0])
			child.Env = append(os.Environ(), walkVariable+"=1", failpointVariable+"="+c.failpoint, guardsVariable+"="+c.guards)
			var stdout, stderr bytes.Buffer
			child.Stdout, child.Stderr = &stdout, &stderr
			err := child.Run()
			if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			status := child.ProcessState.Sys().(syscall.WaitStatus)
			if killed := status.Signaled() && status.Signal() == syscall.SIGKILL; killed != c.killed || !killed && status.ExitStatus() != c.status {
				t.Errorf("it ended with %v, want killed: %v, else status %d", child.ProcessState, c.killed, c.status)
			}
			if stdout.String() != c.output || !strings.Contains(stderr.String(), c.stderr) {
				t.Errorf("it said %q and %q, want %q and something about %q", stdout.String(), stderr.String(), c.output, c.stderr)
			}
		})
	}
}

func TestANameAndItsNumberAreReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.StringMatching(`[a-z]+: [a-z ]+`).Draw(t, "name")
		n := rapid.Int64Range(1, 1<<40).Draw(t, "times")
		if name, nth, err := parse(fmt.Sprintf("%s#%d", want, n)); name != want || nth != n || err != nil {
			t.Fatalf("%s#%d reads %q, %d, %v", want, n, name, nth, err)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "a", "a#1", "#1", "a#0", "a#-1", "a#1#2", "a#99999999999999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name, nth, err := parse(s)
		if err == nil && (nth < 1 || !strings.HasPrefix(s, name)) {
			t.Fatalf("%q reads %q, %d", s, name, nth)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Fatalf("%q: an error of several lines", s)
		}
	})
}
