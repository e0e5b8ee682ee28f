// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/test/rig"
)

// The variables of a run. A failure says how to repeat it.
const (
	seedVariable     = "FAULT_SEED"     // a number; drawn if empty
	stepsVariable    = "FAULT_STEPS"    // as many steps; no limit if empty
	durationVariable = "FAULT_DURATION" // at most this long, such as 1h; shortRun if both limits are empty
	longVariable     = "FAULT_LONG"     // on: with what takes minutes to build, or long to wait for
)

// shortRun fits, with what goes before and after it, into a minute.
const shortRun = 25 * time.Second

// run is how long a run is, and what it draws from.
type run struct {
	seed     uint64
	steps    int           // 0: no limit
	duration time.Duration // 0: no limit
	long     bool
}

func readRun(t *testing.T) run {
	t.Helper()
	r := run{seed: uint64(rand.Uint32())}
	read := func(name string, parse func(string) error) {
		if text := os.Getenv(name); text != "" {
			if err := parse(text); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	read(seedVariable, func(text string) (err error) { r.seed, err = strconv.ParseUint(text, 10, 64); return err })
	read(stepsVariable, func(text string) (err error) { r.steps, err = strconv.Atoi(text); return err })
	read(durationVariable, func(text string) (err error) { r.duration, err = time.ParseDuration(text); return err })
	r.long = os.Getenv(longVariable) == "on"
	if r.steps == 0 && r.duration == 0 {
		r.duration = shortRun
	}
	return r
}

func TestFaults(t *testing.T) {
	r := readRun(t)
	t.Run("Services outlive faults (R9, R31, R33, R35, R39)", func(t *testing.T) {
		w := newWorld(t, r)
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("failed at step %d of seed %d; repeat it with\n%s=%d %s=%d %s=%s go test -count 1 -timeout 0 -run TestFaults ./test/soak\nthe last steps:\n%s",
					w.report.steps, r.seed, seedVariable, r.seed, stepsVariable, w.report.steps, longVariable, os.Getenv(longVariable), strings.Join(w.last, "\n"))
			}
		})
		w.play(r)
		fmt.Println(w.report.markdown())
		w.proveSight()
	})
}

// proveSight breaks promises in a world without an agent, which the clients and
// the watcher must see: a suite that cannot fail says nothing.
func (w *world) proveSight() {
	w.t.Helper()
	w.proving.Store(true)
	w.end(syscall.SIGKILL)
	for _, fault := range []struct {
		name   string
		breaks func()
		says   []string
	}{
		{"servers end", func() {
			for _, b := range w.backends {
				for _, server := range b.Servers {
					server.Close()
				}
			}
		}, []string{"held open", "a new connection to"}},
		{"a Service is taken from the kernel", func() { w.spoil(w.services[0], deleteFrontend) }, []string{"in the kernel default/steady"}},
	} {
		fault.breaks()
		seen := ""
		rig.Eventually(w.t, func() error {
			seen += strings.Join(w.ledger.breaches(), "\n")
			for _, text := range fault.says {
				if !strings.Contains(seen, text) {
					return fmt.Errorf("%s, and no client says %q:\n%s", fault.name, text, seen)
				}
			}
			return nil
		})
	}
}

// play steps on until the run is over, and ends at a quiet point.
func (w *world) play(r run) {
	w.t.Helper()
	for began := time.Now(); ; {
		for range 8 + w.rand.IntN(8) {
			if r.steps > 0 && w.report.steps >= r.steps || r.duration > 0 && time.Since(began) > r.duration {
				w.quietPoint()
				return
			}
			w.takeStep()
		}
		w.quietPoint()
	}
}

func (w *world) quietPoint() {
	w.t.Helper()
	w.log("quiet point")
	w.quiet()
	w.expectNoBreach()
}

// takeStep makes something happen, or ends a fault, and gives it some time.
func (w *world) takeStep() {
	w.t.Helper()
	w.report.steps++
	if len(w.active) > 0 && w.rand.IntN(4) == 0 {
		w.healOne()
	} else {
		w.act()
	}
	time.Sleep(time.Duration(w.rand.IntN(150)) * time.Millisecond)
	if err := w.alive(); err != nil {
		w.t.Fatal(err)
	}
	w.expectNoBreach()
}

func (w *world) healOne() {
	a := w.takeActive(w.rand.IntN)
	w.log("end of: " + a.name)
	a.heal()
}

func (w *world) act() {
	var possible []action
	total := 0
	for _, a := range w.actions {
		if a.can == nil || a.can(w) {
			possible = append(possible, a)
			total += a.weight
		}
	}
	at := w.rand.IntN(total)
	for _, a := range possible {
		if at -= a.weight; at >= 0 {
			continue
		}
		w.log(a.name)
		w.report.actions[a.name]++
		if heal := a.do(w); heal != nil {
			w.active = append(w.active, active{a, heal})
		}
		return
	}
}

// log keeps the last steps, for a failure to show.
func (w *world) log(what string) {
	const kept = 40
	w.last = append(w.last, fmt.Sprintf("%s step %d: %s", time.Now().Format("15:04:05.000"), w.report.steps, what))
	w.last = w.last[max(0, len(w.last)-kept):]
}

// expectNoBreach fails once a promise was broken.
func (w *world) expectNoBreach() {
	w.t.Helper()
	if breaches := w.ledger.breaches(); len(breaches) > 0 {
		w.t.Fatalf("broken promises:\n%s", strings.Join(breaches, "\n"))
	}
}
