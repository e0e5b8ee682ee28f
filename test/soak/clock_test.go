// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/test/rig"
)

// clock is the wall clock of the agents that are built for it. The machine's
// own is never touched, and the kernel has no namespace for it; a Go program
// asks no library either. So the agent is built from its sources as they are,
// but with a package time whose Now adds the seconds that stand in a file.
// The monotonic clock stays as it is, as it does when someone sets a clock.
type clock struct{ path string }

// newClock makes a clock that is right, and the program that reads it.
func newClock(t *testing.T) (c clock, program string) {
	t.Helper()
	dir := t.TempDir()
	c = clock{filepath.Join(dir, "clock")}
	c.shift(t, 0)
	t.Setenv("FAIRLEAD_TEST_CLOCK", c.path)

	main, err := filepath.Abs("../../cmd/fairlead/shift.go")
	if err != nil {
		t.Fatal(err)
	}
	shift, err := filepath.Abs("testdata/shift.txt")
	if err != nil {
		t.Fatal(err)
	}
	from, shifted := shiftedTime(t, dir)
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {from: shifted, main: shift}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(path, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	return c, rig.Build(t, "-overlay", path)
}

// shiftedTime writes a copy of the file of package time in which Now is, with
// Now changed.
func shiftedTime(t *testing.T, dir string) (from, to string) {
	t.Helper()
	const (
		reads = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
		adds  = reads + "\tif ahead != nil {\n\t\tsec += *ahead\n\t}\n"
		hook  = "\n// ahead is how many seconds Now is ahead.\nvar ahead *int64\n\n// ShiftNow sets where this is written.\nfunc ShiftNow(seconds *int64) { ahead = seconds }\n"
	)
	from = filepath.Join(runtime.GOROOT(), "src", "time", "time.go")
	source, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(source), reads) != 1 {
		t.Fatalf("time.Now in %s does not begin as it did: change what the test replaces", from)
	}
	to = filepath.Join(dir, "time.go")
	if err := os.WriteFile(to, []byte(strings.Replace(string(source), reads, adds, 1)+hook), 0o600); err != nil {
		t.Fatal(err)
	}
	return from, to
}

// shift sets how many seconds the clock is ahead. It takes the same file, which
// processes have mapped.
func (c clock) shift(t *testing.T, seconds int64) {
	t.Helper()
	file, err := os.OpenFile(c.path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(seconds)), 0); err != nil {
		t.Fatal(err)
	}
}

// A certificate of the API servers is valid from an hour before it was made,
// for a day. Within this a clock that is wrong must not matter.
const (
	farthestBack  = 50 * 60
	farthestAhead = 10 * 60 * 60
)

// faults are for agents that are built with a clock of their own.
func (c clock) faults() []action {
	one := func(name string, most, sign int64) action {
		return action{name: name, weight: 2, can: func(w *world) bool { return w.ahead == 0 }, do: func(w *world) func() {
			w.ahead, w.turned = sign*(1+w.rand.Int64N(most)), true
			c.shift(w.t, w.ahead)
			return func() {
				w.ahead = 0
				c.shift(w.t, 0)
			}
		}}
	}
	return []action{one("clock set back", farthestBack, -1), one("clock set ahead", farthestAhead, 1)}
}
