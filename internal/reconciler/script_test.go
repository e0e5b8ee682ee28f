// SPDX-License-Identifier: Apache-2.0

package reconciler_test

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/cilium/ebpf"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/datapath"
	"github.com/fairlead-io/fairlead/test/lab"
)

var update = flag.Bool("update", false, "write the expected output of scripts anew")

// TestScripts plays manifests to the agent between the source and the kernel,
// on real maps. Besides the usual commands a script has:
//
//	start [SETTING...] FILE...  a new agent on the pinned maps, whose source lists the objects of
//	                            manifests; max-backends=N, max-frontends=N, compare=DURATION
//	shutdown                    end it; the maps stay pinned
//	apply FILE...               the objects of manifests are there, in one batch
//	delete FILE...              they are gone
//	await done                  until every row is written
//	await repaired N            until N entries were repaired
//	frontends                   print the rows
//	kernel                      print what the maps hold
//	kernel -ids                 with sets, owners, generations and extents
//	foreign-delete ADDRESS:PORT delete a frontend behind the agent's back
//
// start, apply and delete return when every row was tried.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/scripts/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			s := &scene{pinPath: filepath.Join(lab.NewBPFFS(t), "fairlead"), cgroup: lab.NewCgroup(t).Path()}
			t.Cleanup(s.end)
			testscript.Run(t, testscript.Params{Files: []string{file}, Cmds: s.commands(), UpdateScripts: *update})
		})
	}
}

// scene is one pin path, and the agent that runs on it.
type scene struct {
	pinPath, cgroup string
	agent           *agent
}

func (s *scene) end() {
	if s.agent != nil {
		s.agent.stop()
		s.agent = nil
	}
}

func (s *scene) commands() map[string]func(*testscript.TestScript, bool, []string) {
	running := func(do func(*testscript.TestScript, *agent, []string)) func(*testscript.TestScript, bool, []string) {
		return func(ts *testscript.TestScript, _ bool, args []string) {
			if s.agent == nil {
				ts.Fatalf("no agent runs: start one")
			}
			do(ts, s.agent, args)
		}
	}
	return map[string]func(*testscript.TestScript, bool, []string){
		"start":          s.start,
		"shutdown":       running(func(*testscript.TestScript, *agent, []string) { s.end() }),
		"apply":          running(func(ts *testscript.TestScript, a *agent, args []string) { a.apply(ts, args, true) }),
		"delete":         running(func(ts *testscript.TestScript, a *agent, args []string) { a.apply(ts, args, false) }),
		"await":          running(awaitState),
		"frontends":      running(printFrontends),
		"kernel":         s.printKernel,
		"foreign-delete": s.foreignDelete,
	}
}

func awaitState(ts *testscript.TestScript, a *agent, args []string) {
	switch {
	case len(args) == 1 && args[0] == "done":
		a.await(ts, "every row is written", a.done)
	case len(args) == 2 && args[0] == "repaired":
		n, err := strconv.ParseUint(args[1], 10, 64)
		ts.Check(err)
		a.await(ts, args[1]+" entries are repaired", func() bool { return a.reconciler.Stats.Repaired.Load() >= n })
	default:
		ts.Fatalf("usage: await done | await repaired N")
	}
}

// printFrontends prints a line per row: what it is, what becomes of it, and
// whether the kernel has it.
func printFrontends(ts *testscript.TestScript, a *agent, _ []string) {
	snapshot := a.tables.Snapshot()
	var rows []api.Frontend
	for row := range snapshot.Services() {
		for i, f := range api.Frontends(row.Name, &row.Compiled) {
			state, message, _ := snapshot.Status(row, row.Compiled.Claims[i].Key)
			f.Status, f.Error = state, &message
			rows = append(rows, f)
		}
	}
	api.SortFrontends(rows)
	table(ts.Stdout(), func(line func(...string)) {
		for _, f := range rows {
			line(hostPort(f.Address, f.Port)+"/"+f.Protocol, f.Type, f.Scope, f.Service, outcome(f.Action, f.Reason, backends(f.Backends), backends(f.Draining)),
				strings.TrimSpace(f.Status+" "+*f.Error))
		}
	})
}

func (s *scene) printKernel(ts *testscript.TestScript, _ bool, args []string) {
	reader, err := datapath.OpenReader(s.pinPath)
	ts.Check(err)
	defer reader.Close()
	kernel, err := reader.Kernel()
	ts.Check(err)
	ids := slices.Contains(args, "-ids")
	table(ts.Stdout(), func(line func(...string)) {
		for _, e := range kernel.Entries {
			cells := []string{hostPort(e.Address, e.Port) + "/" + e.Protocol, e.Scope, e.Service + ":" + e.PortName, e.Role}
			if ids {
				cells = append(cells, fmt.Sprintf("set %d owner %d generation %d base %d", e.Set, e.Owner, e.Generation, e.Base))
			}
			line(append(cells, outcome(e.Action, e.Problem, e.Backends, e.Draining)+extras(e))...)
		}
		for _, e := range kernel.UnusedSets {
			line("no frontend", "", e.Service+":"+e.PortName, e.Role, outcome(e.Action, e.Problem, e.Backends, e.Draining))
		}
	})
}

func extras(e api.KernelEntry) string {
	text := ""
	if e.AffinitySeconds > 0 {
		text += fmt.Sprintf(", affinity %d s", e.AffinitySeconds)
	}
	if len(e.SourceRanges) > 0 {
		text += ", only from " + strings.Join(e.SourceRanges, " ")
	}
	return text
}

// foreignDelete deletes an element through the pinned map, as a person with
// the wrong tool would.
func (s *scene) foreignDelete(ts *testscript.TestScript, _ bool, args []string) {
	want := netip.MustParseAddrPort(args[0])
	m, err := ebpf.LoadPinnedMap(filepath.Join(s.pinPath, "current", "fairlead_frontends"), nil)
	ts.Check(err)
	defer m.Close()
	address := want.Addr().As16()
	port := []byte{byte(want.Port() >> 8), byte(want.Port())}
	key, value := make([]byte, m.KeySize()), make([]byte, m.ValueSize())
	for entries := m.Iterate(); entries.Next(&key, &value); {
		if string(key[:16]) == string(address[:]) && string(key[16:18]) == string(port) {
			ts.Check(m.Delete(key))
			return
		}
	}
	ts.Check(errors.New("no frontend " + args[0] + " is pinned"))
}

func table(w io.Writer, fill func(line func(...string))) {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fill(func(cells ...string) { fmt.Fprintln(out, strings.Join(cells, "\t")) })
	out.Flush()
}

func hostPort(address string, port uint16) string {
	return netip.AddrPortFrom(netip.MustParseAddr(address), port).String()
}

func outcome(action, reason string, to, draining []api.KernelBackend) string {
	text := action
	for _, b := range to {
		text += " " + hostPort(b.Address, b.Port)
	}
	if reason != "" {
		text += ": " + reason
	}
	if len(draining) == 0 {
		return text
	}
	text += ", draining"
	for _, b := range draining {
		text += " " + hostPort(b.Address, b.Port)
	}
	return text
}

func backends(all []api.Backend) []api.KernelBackend {
	list := make([]api.KernelBackend, len(all))
	for i, b := range all {
		list[i] = api.KernelBackend{Address: b.Address, Port: b.Port}
	}
	return list
}
