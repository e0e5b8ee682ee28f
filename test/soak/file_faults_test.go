// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"errors"
	"os"
	"syscall"
)

// fileFaults are what can happen to the agent's files.
func fileFaults() []action {
	return []action{
		{name: "socket deleted", weight: 1, can: (*world).agentRuns, do: func(w *world) func() {
			if err := os.Remove(w.agent.Socket); err != nil && !errors.Is(err, os.ErrNotExist) {
				w.t.Fatal(err)
			}
			// Nothing but a start makes another one.
			return func() {
				if w.agentRuns() {
					w.end(syscall.SIGTERM)
				}
				w.relaunch()
			}
		}},
	}
}
