// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead-io/fairlead/test/rig"
)

// sizes are those of maps: room for what every run begins with, and some more,
// but not for a flood.
var sizes = []map[string]int{
	{"--max-frontends": 200, "--max-sets": 160, "--max-backends": 1600},
	{"--max-frontends": 400, "--max-sets": 100, "--max-backends": 2000},
	{"--max-frontends": 300, "--max-sets": 300, "--max-backends": 512},
}

// agentsLogged is how many agents a failure lets speak.
const agentsLogged = 4

// launch starts an agent, and does not wait for it.
func (w *world) launch() {
	if w.turned {
		// How long a set has been empty is known from the wall clock alone.
		w.ledger.interrupt(kubernetesKey, apiKey)
	}
	flags := []string{
		"--kubeconfig", w.cluster.LimitedKubeconfig, "--api-server", w.servers[1].URL,
		"--compare-interval", "1s", "--devices", toOther, "--devices", toOutside,
		"--node-ip", nodeAddrs.V4.String(), "--node-ip", nodeAddrs.V6.String(),
	}
	for name, size := range sizes[w.size] {
		flags = append(flags, name, strconv.Itoa(size))
	}
	w.agent.Launch(w.t, flags...)
	w.agents = append(w.agents, w.agent.Process)
	if len(w.agents) > agentsLogged {
		w.agents[0].Forget()
		w.agents = w.agents[1:]
	}
}

// end ends the agent.
func (w *world) end(signal syscall.Signal) {
	w.thaw()
	w.agent.Process.Signal(signal)
	select {
	case <-w.agent.Process.Done():
	case <-time.After(patience):
		w.t.Fatalf("the agent still runs %s after %q", patience, signal)
	}
	w.agent.Process = nil
}

// thaw lets an agent go on that was frozen.
func (w *world) thaw() {
	if w.frozen {
		w.agent.Process.Signal(syscall.SIGCONT)
		w.frozen = false
	}
}

// relaunch starts an agent unless there is one.
func (w *world) relaunch() {
	if !w.agentRuns() {
		w.launch()
	}
}

// restart ends the agent, if there is one, and starts the next.
func (w *world) restart() {
	if w.agentRuns() {
		w.end(syscall.SIGTERM)
	}
	w.launch()
}

// agentFaults are what can happen to the agent's process.
func agentFaults() []action {
	ends := func(name string, weight int, signal syscall.Signal) []action {
		return []action{
			{name: "agent " + name + ", and started at once", weight: weight, can: (*world).agentRuns, do: func(w *world) func() {
				w.end(signal)
				w.launch()
				return nil
			}},
			{name: "agent " + name + ", and started later", weight: weight, can: (*world).agentRuns, do: func(w *world) func() {
				w.end(signal)
				return w.relaunch
			}},
		}
	}
	return append(append(ends("killed", 4, syscall.SIGKILL), ends("stopped", 2, syscall.SIGTERM)...),
		action{name: "agent frozen", weight: 3, can: (*world).agentRuns, do: func(w *world) func() {
			w.frozen = true
			w.agent.Process.Signal(syscall.SIGSTOP)
			return w.thaw
		}},
		action{name: "agent started with maps of other sizes", weight: 2, can: (*world).agentRuns, do: func(w *world) func() {
			w.end(syscall.SIGKILL)
			w.size = w.rand.IntN(len(sizes))
			w.launch()
			return nil
		}},
		action{name: "agent replaced by one that waited for its end", weight: 2, can: (*world).agentRuns, do: func(w *world) func() {
			w.replace()
			return nil
		}},
		action{name: "node rebooted", weight: 2, can: (*world).agentRuns, do: func(w *world) func() {
			w.reboot()
			return nil
		}})
}

// replace starts an agent beside the first one, as a rolling update may, and
// then ends that.
func (w *world) replace() {
	w.thaw()
	first := w.agent.Process
	rig.Eventually(w.t, func() error {
		if !strings.Contains(first.Stderr(), "the agent runs") {
			return errors.New("the first agent is not the writer yet")
		}
		return nil
	})
	w.launch()
	second := w.agent.Process
	rig.Eventually(w.t, func() error {
		if !strings.Contains(second.Stderr(), "waiting") {
			return fmt.Errorf("a second agent does not wait:\n%s", second.Stderr())
		}
		return nil
	})
	w.agent.Process = first
	w.end(syscall.SIGTERM)
	w.agent.Process = second
}

// reboot takes everything from the kernel that a reboot takes, and starts an
// agent. What the state file remembers must soon be there again, whether or not
// an API server can be reached.
func (w *world) reboot() {
	w.ledger.interrupt()
	w.end(syscall.SIGKILL)
	w.agent.Run(w.t, 0, "cleanup")
	remembered := w.remembers()
	w.launch()
	if !remembered || len(w.flood) > 0 {
		return // who is left out of full maps that begin anew is not promised
	}
	k := w.newWatcher()
	rig.Eventually(w.t, func() error {
		entries, err := k.contents()
		if err != nil {
			return err
		}
		if problem := k.judge(w.ledger.begin(kubernetesKey), entries[kubernetesKey]); problem != "" {
			return fmt.Errorf("%s %s", kubernetesKey, problem)
		}
		return nil
	})
}
