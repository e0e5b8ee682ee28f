// SPDX-License-Identifier: Apache-2.0

//go:build failpoints

package failpoint

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	failpointVariable = "FAIRLEAD_FAILPOINT"
	guardsVariable    = "FAIRLEAD_GUARDS_OFF"
)

// trace is the name that kills nobody: each step is written to standard error.
const trace = "?"

// target is the step at which the process dies.
type target struct {
	name string
	left atomic.Int64 // hits until then
}

// aim reads the environment once: a process cannot be told otherwise later.
var aim = sync.OnceValue(func() *target {
	name, nth, err := parse(os.Getenv(failpointVariable))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	t := &target{name: name}
	t.left.Store(nth)
	return t
})

// guardsOff are the guards that are taken away.
var guardsOff = sync.OnceValue(func() []string {
	return strings.Split(os.Getenv(guardsVariable), ",")
})

// Hit is a step at which the process may be told to die. It dies as by kill -9:
// nothing that is deferred runs.
func Hit(name string) {
	t := aim()
	if t.name == trace {
		fmt.Fprintln(os.Stderr, name)
		return
	}
	if t.name != name || t.left.Add(-1) != 0 {
		return
	}
	unix.Kill(os.Getpid(), unix.SIGKILL)
	select {} // until the signal arrives
}

// Off says that a guard is taken away.
func Off(guard string) bool { return slices.Contains(guardsOff(), guard) }

// parse reads "NAME" or "NAME#N".
func parse(s string) (name string, nth int64, err error) {
	name, number, ok := strings.Cut(s, "#")
	if !ok {
		return name, 1, nil
	}
	nth, err = strconv.ParseInt(number, 10, 64)
	if err != nil || nth < 1 || name == "" {
		return "", 0, fmt.Errorf("%s=%q: want NAME or NAME#N, N a number from 1", failpointVariable, s)
	}
	return name, nth, nil
}
