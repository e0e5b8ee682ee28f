// SPDX-License-Identifier: Apache-2.0

// Package wire tests the packet path from end to end: the real agent, real
// programs on real devices, and clients that see nothing of a node but what
// it puts on the wire.
//
// A client stands behind a router, so that it shares no link with a node; the
// nodes share one, and carry each other's pods in one of several ways. All of
// them are network namespaces, and no way leads out of them.
package wire

import (
	"testing"

	"github.com/fairlead-io/fairlead/test/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }
