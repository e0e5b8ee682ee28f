// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// Tests are those of a package: a testing.M, or what prepares and clears away
// something around it.
type Tests interface{ Run() int }

// roleVariable names the role in the environment of a test binary that plays
// one. Its arguments are the role's, not flags of package testing.
const roleVariable = "FAIRLEAD_LAB_ROLE"

// Role is a function of the test binary that runs as a process of its own. It
// speaks to the test by standard input and output; an error ends the process
// with status 1.
type Role func(args []string) error

// Main runs the tests, or, in a process that StartRole started, the role. A
// package that starts roles has
//
//	func TestMain(m *testing.M) { lab.Main(m, roles) }
func Main(m Tests, roles map[string]Role) {
	name, ok := os.LookupEnv(roleVariable)
	if !ok {
		os.Exit(m.Run())
	}
	role, ok := roles[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "role %q is none of those that this package gives to lab.Main\n", name)
		os.Exit(2)
	}
	if err := role(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// StartRole starts the test binary itself as a process that plays the role.
func (p Place) StartRole(t testing.TB, role string, args ...string) *Process {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatalf("find the test binary: %v", err)
	}
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	return p.start(t, cmd)
}
