// SPDX-License-Identifier: Apache-2.0

// Package replay plays the first of the two incidents against the real program
// on real API servers: replicas behind one address, one of which takes that
// address out of default/kubernetes as it stops, and an agent that starts again
// before the address is back.
//
// It is played with the agent as it is, and with an agent whose guards are
// switched off, which must lock itself out: the test can fail. Nothing here
// leads out of the lab.
package replay

import (
	"testing"

	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/rig"
)

func TestMain(m *testing.M) { rig.Main(m, map[string]lab.Role{roleUser: useAPI}) }
