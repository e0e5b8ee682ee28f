// SPDX-License-Identifier: Apache-2.0

// Package rights tests on real API servers what becomes of a cluster when somebody
// deletes what others rest on: what `fairlead preflight` foresees, what `fairlead
// doctor` finds, and what `fairlead restore` puts back.
//
// There are no controllers and no kubelets. The objects that they would write
// stand in testdata with their status, and a client with a component's own token
// does what the component would.
//
// With -rewrite, the table of docs/preflight.md is written from the test's.
package rights

import (
	"flag"
	"testing"

	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/rig"
)

var rewrite = flag.Bool("rewrite", false, "write the table into the page")

func TestMain(m *testing.M) {
	rig.Main(m, map[string]lab.Role{agentRole: agent})
}
