// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"fairlead":         runProgram,
		"kubectl-fairlead": runProgram,
	})
}

func runProgram() {
	os.Exit(Main(context.Background(), os.Args, os.Stdin, os.Stdout, os.Stderr))
}

// fairlead runs a command in this process.
func fairlead(t *testing.T, stdin string, args ...string) (status int, out, errOut string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status = Main(t.Context(), append([]string{"fairlead"}, args...), strings.NewReader(stdin), &stdout, &stderr)
	return status, stdout.String(), stderr.String()
}
