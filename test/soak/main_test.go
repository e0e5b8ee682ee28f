// SPDX-License-Identifier: Apache-2.0

// Package soak breaks whatever can break around the real agent, at random and
// again and again, while clients hold connections through Services and open
// new ones.
//
// A run is a list of steps that follows from its seed: ordinary life of
// Services, faults, and their ends. A ledger knows every object that the test
// wrote, and so what each client may meet at each moment. From time to time all
// faults are healed, and everything must be as the objects say.
//
// The package knows the agent by what a user knows: flags, commands, the
// socket, files and pinned maps. It imports nothing that decides.
package soak

import (
	"testing"

	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/test/rig"
)

func TestMain(m *testing.M) {
	// The API server's own endpoints are of a kind that it warns of each time.
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	rig.Main(m)
}
