// SPDX-License-Identifier: Apache-2.0

//go:build failpoints

package failpoint

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// The environment of the process is read once, when it starts.
var (
	chosen = parse(os.Getenv("FAIRLEAD_FAILPOINT"))
	off    = strings.Split(os.Getenv("FAIRLEAD_GUARDS_OFF"), ",")
)

// point is the step at which the process ends.
type point struct {
	name string
	left *atomic.Int64 // hits until then
}

// parse reads "name" or "name#N". What a test misspells must not pass for a
// process that survived.
func parse(text string) point {
	name, number, counted := strings.Cut(text, "#")
	p := point{name, new(atomic.Int64)}
	p.left.Store(1)
	if !counted {
		return p
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 1 {
		panic(fmt.Sprintf("FAIRLEAD_FAILPOINT=%q: write name or name#N with N from 1", text))
	}
	p.left.Store(n)
	return p
}

// Hit kills the process if this is the step, and the time, that a test chose.
func Hit(name string) {
	if name != chosen.name || chosen.left.Add(-1) != 0 {
		return
	}
	// SIGKILL leaves no deferred call, and no other goroutine, the time to tidy up.
	if err := unix.Kill(os.Getpid(), unix.SIGKILL); err != nil {
		panic(err)
	}
	select {}
}

// Off says whether a test has switched a guard off.
func Off(guard string) bool { return slices.Contains(off, guard) }
