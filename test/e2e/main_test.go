// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the socket path from end to end: the real agent follows
// manifests or a real API server, and real processes open sockets to Service
// addresses.
//
// A node is a network namespace in which an agent runs, pods are namespaces
// cabled to it. Nothing here leads out of the lab: whatever dials a Service's
// address lives in a namespace that has no way to the machine's own network.
// The tests know the agent by what a user knows: flags, manifests, commands
// and the socket. They import nothing that decides.
package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/lab/traffic"
)

// programVariable tells the tests where TestMain has put the program.
const programVariable = "FAIRLEAD_E2E_PROGRAM"

func TestMain(m *testing.M) { lab.Main(suite{m}, traffic.Roles) }

// suite builds the program once and removes it afterwards.
type suite struct{ *testing.M }

func (s suite) Run() int {
	dir, err := os.MkdirTemp("", "fairlead-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "make a folder for the program:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "fairlead")
	if out, err := exec.Command("go", "build", "-o", program, "../../cmd/fairlead").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the program: %v\n%s", err, out)
		return 1
	}
	os.Setenv(programVariable, program)
	return s.M.Run()
}
