// SPDX-License-Identifier: Apache-2.0

// Package session plays pages of docs: the commands of a page run in their
// order, each on the machine whose prompt stands before it, and must print what
// the page shows. The machines of docs/session.md are network namespaces around
// a real API server, with a real agent on each node; docs/howto-incident.md
// reads a recording, which it makes on real API servers itself.
//
// What is shown stands on the page, and nowhere in here: this package knows
// machines and how to type, and nothing of Services.
package session

import (
	"testing"

	"github.com/fairlead-io/fairlead/test/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }
