// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/fairlead-io/fairlead/internal/statefile"
	"github.com/fairlead-io/fairlead/internal/tables"
)

// fileFaults are what can happen to the agent's files.
func fileFaults() []action {
	return []action{
		{name: "socket deleted", weight: 1, can: (*world).agentRuns, do: func(w *world) func() {
			w.must(os.Remove(w.agent.Socket))
			// Nothing but a start makes another one.
			return w.restart
		}},
		tampers("state file deleted", func(path string, _ float64) error { return os.Remove(path) }),
		tampers("state file cut off", func(path string, where float64) error {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			return os.Truncate(path, int64(where*float64(info.Size())))
		}),
		tampers("state file damaged", func(path string, where float64) error {
			text, err := os.ReadFile(path)
			if err != nil || len(text) == 0 {
				return err
			}
			text[int(where*float64(len(text)))] ^= 1
			return os.WriteFile(path, text, 0o600)
		}),
		tampers("state file's folder deleted", func(path string, _ float64) error { return os.RemoveAll(filepath.Dir(path)) }),
		{name: "folder in the place of the state file", weight: 1, can: func(w *world) bool { return !w.obstructed }, do: func(w *world) func() {
			w.tamper()
			w.obstructed = true
			w.must(os.Remove(w.agent.StateFile))
			w.must(os.MkdirAll(w.agent.StateFile, 0o700))
			return func() {
				w.must(os.Remove(w.agent.StateFile))
				w.obstructed = false
			}
		}},
	}
}

// tamper notes that the state file may have lost what it remembers. As long as
// the node is not rebooted, the maps have that as well.
func (w *world) tamper() { w.tampered = true }

// tampers does something to the state file, at a place that is drawn.
func tampers(name string, do func(path string, where float64) error) action {
	return action{name: name, weight: 1, can: func(w *world) bool { return !w.obstructed }, do: func(w *world) func() {
		w.tamper()
		// Whether the agent has written it yet, the next draws are the same.
		where := w.rand.Float64()
		w.must(do(w.agent.StateFile, where))
		return nil
	}}
}

// must fails for any error but that there is nothing to spoil.
func (w *world) must(err error) {
	w.t.Helper()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.t.Fatal(err)
	}
}

// remembers says whether the state file has what a reboot needs.
func (w *world) remembers() bool {
	content, err := statefile.Read(w.agent.StateFile)
	return err == nil && slices.ContainsFunc(content.Memory.Services, func(s tables.RememberedService) bool {
		return s.Object.Name.String() == kubernetesKey && slices.ContainsFunc(s.Sets, func(set tables.RememberedSet) bool {
			return len(set.Backends) > 0 && set.Ended == tables.NotEnded
		})
	})
}
