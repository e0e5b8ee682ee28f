// SPDX-License-Identifier: Apache-2.0

package reconciler_test

import (
	"context"
	"log/slog"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/datapath"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reconciler"
	"github.com/fairlead-io/fairlead/internal/reflector"
	"github.com/fairlead-io/fairlead/internal/tables"
)

// agent is the whole of an agent between the source and the kernel. Its rows
// are made by the script's own goroutine, so that they are there when a
// command returns.
type agent struct {
	tables     *tables.Tables
	writer     *tables.Writer
	reconciler *reconciler.Reconciler
	stop       func()
}

// start brings up an agent whose source tells of the manifests in its first
// lists.
func (s *scene) start(ts *testscript.TestScript, _ bool, args []string) {
	if s.agent != nil {
		ts.Fatalf("an agent runs already: shut it down")
	}
	sizes, compare := datapath.DefaultSizes(), time.Hour
	var first []string
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok {
			first = append(first, arg)
			continue
		}
		switch name {
		case "max-backends":
			n, err := strconv.ParseUint(value, 10, 32)
			ts.Check(err)
			sizes.Backends = uint32(n)
		case "max-frontends":
			n, err := strconv.ParseUint(value, 10, 32)
			ts.Check(err)
			sizes.Frontends = uint32(n)
		case "compare":
			var err error
			compare, err = time.ParseDuration(value)
			ts.Check(err)
		default:
			ts.Fatalf("start: what is %s?", arg)
		}
	}
	a, err := s.open(sizes, compare)
	ts.Check(err)
	s.agent = a
	a.tell(ts, first, true)
	for _, kind := range []reflector.Kind{reflector.KindService, reflector.KindEndpointSlice, reflector.KindNode} {
		a.writer.Listed(kind)
	}
	a.writer.Flush()
	a.await(ts, "the first lists are in force", a.reconciler.Stats.Filled.Load)
	a.await(ts, "every row was tried", a.tried)
}

func (s *scene) open(sizes datapath.Sizes, compare time.Duration) (*agent, error) {
	log := slog.New(slog.DiscardHandler)
	kernel, err := datapath.Open(datapath.Config{
		PinPath: s.pinPath, Cgroup: s.cgroup, SocketMode: datapath.SocketOff, Node: "n1", Sizes: sizes,
	}, log)
	if err != nil {
		return nil, err
	}
	rows, err := tables.New()
	if err != nil {
		return nil, err
	}
	r, err := reconciler.New(reconciler.Config{Tables: rows, Datapath: kernel, Log: log, CompareInterval: compare, Filled: kernel.Attach})
	if err != nil {
		return nil, err
	}
	node := model.Node{Name: "n1", Zone: "a", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.10")}}
	a := &agent{tables: rows, writer: tables.NewWriter(rows, node, model.Options{}), reconciler: r}
	ctx, cancel := context.WithCancel(context.Background())
	if err := rows.Start(ctx); err != nil {
		cancel()
		return nil, err
	}
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	a.stop = func() {
		cancel()
		running.Wait()
		kernel.Close()
	}
	return a, nil
}

// apply tells of the objects of manifests, and waits for what comes of it.
func (a *agent) apply(ts *testscript.TestScript, files []string, there bool) {
	a.tell(ts, files, there)
	a.writer.Flush()
	a.await(ts, "every row was tried", a.tried)
}

// tell queues the objects of manifests as events.
//
// A headless Service comes with every batch: it has no frontends, and its row
// is reached when everything of the batch was, deletes too.
func (a *agent) tell(ts *testscript.TestScript, files []string, there bool) {
	mark := &model.Service{Name: model.Name{Namespace: "script", Name: "mark"}}
	events := []reflector.Event{{Kind: reflector.KindService, Name: mark.Name, Service: mark}}
	paths := make([]string, len(files))
	for i, f := range files {
		paths[i] = ts.MkAbs(f)
	}
	objects, problems, err := reflector.ReadFiles(paths, nil)
	ts.Check(err)
	if len(problems) > 0 {
		ts.Fatalf("%v", problems)
	}
	for _, o := range objects.Services {
		e := reflector.Event{Kind: reflector.KindService, Name: o.Name}
		if there {
			e.Service = o
		}
		events = append(events, e)
	}
	for _, o := range objects.Slices {
		e := reflector.Event{Kind: reflector.KindEndpointSlice, Name: o.Name}
		if there {
			e.Slice = o
		}
		events = append(events, e)
	}
	a.writer.Events(events)
}

// tried says that no row is pending, done that each is written.
func (a *agent) tried() bool { return a.none(api.StatusPending) }
func (a *agent) done() bool  { return a.none(api.StatusPending) && a.none(api.StatusError) }

func (a *agent) none(status string) bool {
	snapshot := a.tables.Snapshot()
	for row := range snapshot.Services() {
		if state, _, _ := snapshot.Status(row, model.FrontendKey{}); state == status {
			return false
		}
		for _, c := range row.Compiled.Claims {
			if state, _, _ := snapshot.Status(row, c.Key); state == status {
				return false
			}
		}
	}
	return true
}

func (a *agent) await(ts *testscript.TestScript, what string, is func() bool) {
	for deadline := time.Now().Add(patience); !is(); {
		if time.Now().After(deadline) {
			ts.Fatalf("waited in vain until %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}
