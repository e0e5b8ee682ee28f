// SPDX-License-Identifier: Apache-2.0

package statefile

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/failpoint/points"
)

// buildWriter builds a program that writes a state file and heeds failpoints.
func buildWriter(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "writer")
	out, err := exec.Command("go", "build", "-buildvcs=false", "-tags=failpoints", "-o", program, "./testdata/crash").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// writeAndDie runs the program, which must be killed at the step.
func writeAndDie(t *testing.T, program, path, step string, c Content) {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, path)
	cmd.Env = append(os.Environ(), "FAIRLEAD_FAILPOINT="+step)
	cmd.Stdin = bytes.NewReader(text)
	out, err := cmd.CombinedOutput()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || !exit.Sys().(syscall.WaitStatus).Signaled() || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("%v instead of a kill at %q\n%s", err, step, out)
	}
}

func TestAKilledWriteLeavesTheOldFileOrTheNewOne(t *testing.T) {
	program := buildWriter(t)
	before, during, after := some(), some(), some()
	during.Saved = before.Saved.Add(time.Minute)
	during.Endpoints = before.Endpoints[:1]
	after.Saved = before.Saved.Add(time.Hour)
	steps, err := points.In(".")
	if err != nil || len(steps) < 5 {
		t.Fatalf("failpoints %q, %v", steps, err)
	}
	for _, step := range steps {
		t.Run(step, func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "fairlead")
			path := filepath.Join(folder, "state.json")
			first := step == "statefile: folder made" // which happens once only
			if !first {
				if err := Write(path, before); err != nil {
					t.Fatal(err)
				}
			}
			writeAndDie(t, program, path, step, during)
			got, err := Read(path)
			switch want := map[bool]Content{false: before, true: during}[step == "statefile: renamed"]; {
			case first && !errors.Is(err, os.ErrNotExist):
				t.Errorf("%v instead of no file", err)
			case !first && err != nil:
				t.Error(err)
			case !first && !cmp.Equal(want, got, exact):
				t.Errorf("(-want +got)\n%s", cmp.Diff(want, got, exact))
			}
			if err := Write(path, after); err != nil {
				t.Fatal(err)
			}
			if got, err := Read(path); err != nil || !cmp.Equal(after, got, exact) {
				t.Errorf("after the next write: %v, %+v", err, got)
			}
			left, err := os.ReadDir(folder)
			if err != nil || len(left) != 1 {
				t.Errorf("left over: %v, %v", left, err)
			}
		})
	}
}

func TestLeftoversOfOthersStay(t *testing.T) {
	folder := t.TempDir()
	theirs := []string{".other.json.writing-1", "state.json.writing-1", ".state.json"}
	for _, name := range theirs {
		if err := os.WriteFile(filepath.Join(folder, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := Write(filepath.Join(folder, "state.json"), some()); err != nil {
		t.Fatal(err)
	}
	for _, name := range theirs {
		if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
			t.Error(err)
		}
	}
}
