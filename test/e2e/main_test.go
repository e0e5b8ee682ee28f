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
	"testing"

	"github.com/fairlead-io/fairlead/test/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }
