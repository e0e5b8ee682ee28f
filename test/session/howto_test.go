// SPDX-License-Identifier: Apache-2.0

package session

import (
	"testing"

	"github.com/fairlead-io/fairlead/test/lab"
)

const howtoPage = "../../docs/howto-incident.md"

// The page needs one machine, on which a recording is made and read.
func TestHowto(t *testing.T) {
	page := readPage(t, howtoPage)
	node := openShell(t, lab.Place{NetNS: lab.NewNetNS(t, "node")}, t.TempDir(), "TZ=UTC")
	page.play(t, func(p part) string {
		if p.machine != "node" {
			t.Fatalf("%s:%d: there is no machine %q", howtoPage, p.line, p.machine)
		}
		return node.run(p.command)
	})
}
