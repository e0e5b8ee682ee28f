// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/drift"
	"github.com/fairlead-io/fairlead/test/lab"
)

// Agent is where a node's agent lives and what it keeps there from one start
// to the next.
type Agent struct {
	Name      string
	NS        *lab.NetNS
	Cgroup    *lab.Cgroup // all processes that the agent serves at their sockets
	Pins      string
	Manifests string // the folder that it follows; several agents may share one
	Socket    string
	StateFile string
	Program   string // what runs as the agent
	API       *api.Client
	Process   *lab.Process // the one started last
}

// NewAgent makes room for the agent of a node; none runs yet.
func NewAgent(t testing.TB, name string, ns *lab.NetNS, manifests string) *Agent {
	t.Helper()
	a := &Agent{
		Name: name, NS: ns, Cgroup: lab.NewCgroup(t), Manifests: manifests,
		Pins: filepath.Join(lab.NewBPFFS(t), "fairlead"), Socket: filepath.Join(t.TempDir(), "agent.sock"),
		StateFile: filepath.Join(t.TempDir(), "fairlead", "state.json"),
		Program:   Program(),
	}
	a.API = api.NewClient(a.Socket)
	return a
}

// Place is where the node's own processes live.
func (a *Agent) Place() lab.Place { return lab.Place{NetNS: a.NS, Cgroup: a.Cgroup} }

// Start starts an agent that follows the manifests, and waits until its
// programs are in force.
func (a *Agent) Start(t testing.TB, flags ...string) {
	t.Helper()
	a.Launch(t, append(slices.Clone(flags), "--manifests", a.Manifests)...)
	a.Ready(t)
}

// Restart kills the agent and starts another one, which has then caught up.
func (a *Agent) Restart(t testing.TB, flags ...string) {
	t.Helper()
	a.Process.Kill()
	a.Start(t, flags...)
	a.Settle(t)
}

// Launch starts an agent, in the cgroup that it serves, as in a cluster.
func (a *Agent) Launch(t testing.TB, flags ...string) {
	t.Helper()
	a.Process = a.Place().Start(t, a.Program, a.Args(flags...)...)
}

// Args are the arguments with which an agent of this node is started.
func (a *Agent) Args(flags ...string) []string {
	return append([]string{
		"agent", "--node-name", a.Name, "--cgroup", a.Cgroup.Path(), "--pin-path", a.Pins, "--socket", a.Socket,
		"--state-file", a.StateFile,
	}, flags...)
}

// Ready waits until the agent started last has written its first lists.
func (a *Agent) Ready(t testing.TB) {
	t.Helper()
	Eventually(t, func() error {
		select {
		case <-a.Process.Done():
			t.Fatalf("the agent ended:\n%s", a.Process.Stderr())
		default:
		}
		s, err := a.API.Status(t.Context())
		if err != nil {
			return err
		}
		if s.PID != a.Process.PID() || !s.Synced {
			return fmt.Errorf("process %d answers, synced: %v; want process %d", s.PID, s.Synced, a.Process.PID())
		}
		return nil
	})
}

// Serve makes a Service what it is now said to be, and returns when the kernel
// has it so.
func (a *Agent) Serve(t testing.TB, s Service, endpoints ...Endpoint) {
	t.Helper()
	a.Write(t, s.Name+".yaml", s.YAML(endpoints))
	a.Settle(t)
}

// Remove deletes Services, and returns when the kernel has forgotten them.
func (a *Agent) Remove(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := os.Remove(filepath.Join(a.Manifests, name+".yaml")); err != nil {
			t.Fatal(err)
		}
	}
	a.Settle(t)
}

// Write replaces a manifest at once, as kubectl and config managers do.
func (a *Agent) Write(t testing.TB, name, text string) {
	t.Helper()
	path := filepath.Join(a.Manifests, name)
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// Settle waits until source, tables and kernel agree.
func (a *Agent) Settle(t testing.TB) {
	t.Helper()
	Eventually(t, func() error { return a.Drift(t) })
}

// Drift is the first difference between the layers.
func (a *Agent) Drift(t testing.TB) error {
	t.Helper()
	wanted, err := a.API.Desired(t.Context())
	if err != nil {
		return err
	}
	rows, err := a.API.Frontends(t.Context())
	if err != nil {
		return err
	}
	kernel, err := a.API.Kernel(t.Context())
	if err != nil {
		return err
	}
	for _, d := range append(drift.Rows(wanted, rows), drift.Kernel(rows, kernel)...) {
		return fmt.Errorf("%+v", d)
	}
	for _, row := range rows {
		if row.Status != api.StatusDone {
			return fmt.Errorf("%s:%d is %s: %s", row.Address, row.Port, row.Status, *row.Error)
		}
	}
	return nil
}

// Row returns the frontend row at an address, port and protocol; the scope of
// traffic from here where there are two.
func (a *Agent) Row(t testing.TB, service string, addr netip.Addr, port uint16, protocol string) api.Frontend {
	t.Helper()
	rows, err := a.API.Frontends(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(rows, func(r api.Frontend) bool {
		return r.Service == "default/"+service && r.Address == addr.String() && r.Port == port && r.Protocol == protocol && r.Scope != "external"
	})
	if i < 0 {
		t.Fatalf("default/%s has no row at %s port %d/%s among %+v", service, addr, port, protocol, rows)
	}
	return rows[i]
}

// Run runs a fairlead command, which must end with the status, and returns
// what it printed.
func (a *Agent) Run(t testing.TB, status int, args ...string) string {
	t.Helper()
	process := a.Place().Start(t, Program(), append(slices.Clone(args), a.where(args)...)...)
	err := process.Wait()
	var exit *exec.ExitError
	got := 0
	if errors.As(err, &exit) {
		got, err = exit.ExitCode(), nil
	}
	if err != nil || got != status {
		t.Fatalf("fairlead %q: status %d, %v; want %d\n%s%s", args, got, err, status, process.Stdout(), process.Stderr())
	}
	return process.Stdout()
}

// where are the flags that lead a command to this node.
func (a *Agent) where(args []string) []string {
	switch {
	case args[0] == "diff":
		return []string{"--socket", a.Socket, "--pin-path", a.Pins}
	case slices.Contains(args, "kernel"), args[0] == "cleanup":
		return []string{"--pin-path", a.Pins}
	}
	return []string{"--socket", a.Socket}
}

// Status is what `fairlead status` rests on.
func (a *Agent) Status(t testing.TB) api.Status {
	t.Helper()
	s, err := a.API.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}
