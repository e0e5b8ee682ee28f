// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/lab/traffic"
)

func TestMain(m *testing.M) { lab.Main(checks{m}, traffic.Roles) }

// checks asks for more checks of each property than rapid does by itself;
// -rapid.checks on the command line goes before.
type checks struct{ tests *testing.M }

func (c checks) Run() int {
	if err := flag.Set("rapid.checks", "2000"); err != nil {
		panic(err)
	}
	flag.Parse()
	code := c.tests.Run()
	if err := goleak.Find(); code == 0 && err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		code = 1
	}
	return code
}
