// SPDX-License-Identifier: Apache-2.0

// Package rig runs the real program in the lab, as its users do: an agent that
// follows manifests, Services in a short form, and clients that say who
// answered them. It is what the end-to-end tests have in common, whichever
// path they test.
//
// It knows the agent by flags, manifests, commands and the socket, and imports
// nothing that decides.
package rig

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/lab/traffic"
)

// Patience bounds every wait for something that takes milliseconds on a
// machine with nothing else to do.
const Patience = 15 * time.Second

// Program is the path of the program under test, once Main has built it.
func Program() string { return os.Getenv(programVariable) }

// programVariable tells the tests where Main has put the program.
const programVariable = "FAIRLEAD_TEST_PROGRAM"

// Main is the TestMain of a package that runs the program, clients of package
// traffic, and what roles the package has of its own. It builds the program
// once and removes it afterwards.
func Main(m *testing.M, own ...map[string]lab.Role) {
	roles := maps.Clone(traffic.Roles)
	for _, r := range own {
		maps.Copy(roles, r)
	}
	lab.Main(suite{m}, roles)
}

type suite struct{ *testing.M }

func (s suite) Run() int {
	dir, err := os.MkdirTemp("", "fairlead-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "make a folder for the program:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "fairlead")
	if err := build(program); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	os.Setenv(programVariable, program)
	return s.M.Run()
}

// WithFailpoints builds the program with what only tests may switch in it, and
// returns its path.
func WithFailpoints(t testing.TB) string {
	t.Helper()
	return Build(t, "-tags", "failpoints")
}

// Build builds the program with flags of `go build`, and returns its path.
func Build(t testing.TB, flags ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "fairlead")
	if err := build(program, flags...); err != nil {
		t.Fatal(err)
	}
	return program
}

func build(program string, flags ...string) error {
	args := append(append([]string{"build"}, flags...), "-o", program, "../../cmd/fairlead")
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("build the program: %w\n%s", err, out)
	}
	return nil
}

// Eventually tries until there is no error, or patience is over.
func Eventually(t testing.TB, try func() error) {
	t.Helper()
	deadline := time.Now().Add(Patience)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still, after %s: %v", Patience, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
