// SPDX-License-Identifier: Apache-2.0

package reconciler_test

import (
	"context"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/datapath"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reconciler"
	"github.com/fairlead-io/fairlead/internal/reflector"
	"github.com/fairlead-io/fairlead/internal/tables"
	"github.com/fairlead-io/fairlead/test/lab"
)

// The end of the first list may come without any change, or after the last
// one was written; the programs must not wait for the next change (R33).
func TestFill(t *testing.T) {
	one := newWorld(1, 1).events()
	for name, events := range map[string][]reflector.Event{
		"an empty cluster is complete as soon as it is listed":                       nil,
		"the fill is over when the lists are, though their rows were written before": one,
	} {
		t.Run(name, func(t *testing.T) {
			filled := make(chan struct{})
			writer, _ := follow(t, filled)
			writer.Events(events)
			list(writer)
			select {
			case <-filled:
			case <-time.After(patience):
				t.Error("the fill is not over")
			}
		})
	}
}

// A frontend goes from scope "all" to "internal" and back with the policy, and
// stands at one place in the kernel all the time (R12).
func TestTrafficPolicyChange(t *testing.T) {
	world := newWorld(1, 1)
	web := *world.services[0]
	web.Type, web.Ports = model.ServiceNodePort, slices.Clone(web.Ports)
	web.Ports[0].NodePort = 30080
	filled := make(chan struct{})
	writer, pinPath := follow(t, filled)
	writer.Events(world.events())
	list(writer)
	<-filled

	for _, policy := range []model.TrafficPolicy{model.PolicyCluster, model.PolicyLocal, model.PolicyCluster} {
		service := web
		service.ExternalTrafficPolicy = policy
		writer.Events([]reflector.Event{{Kind: reflector.KindService, Name: web.Name, Service: &service}})
		want := []string{"0.0.0.0 internal", web.ClusterIPs[0].String() + " internal"}
		if policy == model.PolicyLocal {
			want = slices.Insert(want, 1, "0.0.0.0 external")
		}
		slices.Sort(want)
		deadline := time.Now().Add(patience)
		for got := entries(t, pinPath); !slices.Equal(got, want); got = entries(t, pinPath) {
			if time.Now().After(deadline) {
				t.Fatalf("externalTrafficPolicy %d: the kernel holds %q, want %q", policy, got, want)
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// entries are the addresses and scopes of the frontends in the kernel, sorted.
func entries(t *testing.T, pinPath string) []string {
	t.Helper()
	reader, err := datapath.OpenReader(pinPath)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	kernel, err := reader.Kernel()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range kernel.Entries {
		all = append(all, e.Address+" "+e.Scope)
	}
	slices.Sort(all)
	return all
}

// patience bounds every wait for what takes milliseconds.
const patience = 10 * time.Second

// list says that all first lists are complete.
func list(writer *tables.Writer) {
	for _, kind := range []reflector.Kind{reflector.KindService, reflector.KindEndpointSlice, reflector.KindNode} {
		writer.Listed(kind)
	}
}

// follow runs a writer and a reconciler on real maps until the test ends, and
// closes filled when the first lists are in force.
func follow(t *testing.T, filled chan<- struct{}) (writer *tables.Writer, pinPath string) {
	t.Helper()
	cfg := datapath.Config{
		PinPath: filepath.Join(lab.NewBPFFS(t), "fairlead"), Cgroup: lab.NewCgroup(t).Path(),
		SocketMode: datapath.SocketOff, Node: "n1", Sizes: datapath.DefaultSizes(),
	}
	writer, stop := run(t, cfg, slog.New(slog.DiscardHandler), filled, nil)
	t.Cleanup(stop)
	return writer, cfg.PinPath
}

// run is follow with a choice, and an end of its own. Prepare, unless nil, has
// its say before anything runs.
func run(t *testing.T, cfg datapath.Config, log *slog.Logger, filled chan<- struct{}, prepare func(*tables.Writer, *reconciler.Config)) (writer *tables.Writer, stop func()) {
	t.Helper()
	rows, err := tables.New()
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := datapath.Open(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	writer = tables.NewWriter(rows, model.Node{Name: "n1", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}, model.Options{})
	settings := reconciler.Config{
		Tables: rows, Datapath: kernel, Log: log, CompareInterval: time.Hour,
		Filled: func() error {
			defer close(filled)
			return kernel.Attach()
		},
	}
	if prepare != nil {
		prepare(writer, &settings)
	}
	r, err := reconciler.New(settings)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := rows.Start(ctx); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { writer.Run(ctx) })
	running.Go(func() { r.Run(ctx) })
	return writer, func() {
		cancel()
		running.Wait()
		kernel.Close()
	}
}

// lines passes on what a logger writes.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// A node's agent starts with smaller maps than its predecessor had. What does
// not fit would be lost; so the predecessor's maps stay in force until it does.
func TestMapsThatAreTooSmall(t *testing.T) {
	cfg := datapath.Config{
		PinPath: filepath.Join(lab.NewBPFFS(t), "fairlead"), Cgroup: lab.NewCgroup(t).Path(),
		SocketMode: datapath.SocketAll, Node: "n1", Sizes: datapath.DefaultSizes(),
	}
	world := newWorld(4, 1)
	filled := make(chan struct{})
	writer, stop := run(t, cfg, slog.New(slog.DiscardHandler), filled, nil)
	writer.Events(world.events())
	list(writer)
	<-filled
	stop()
	before := entries(t, cfg.PinPath)

	cfg.Sizes.Frontends = 3
	filled, logged := make(chan struct{}), make(lines, 100)
	writer, stop = run(t, cfg, slog.New(slog.NewTextHandler(logged, nil)), filled, nil)
	defer stop()
	writer.Events(world.events())
	list(writer)
	for said := ""; !strings.Contains(said, "stay in force"); {
		select {
		case said = <-logged:
		case <-filled:
			t.Fatal("the maps without room have taken over")
		case <-time.After(patience):
			t.Fatal("nothing is said about it")
		}
		if strings.Contains(said, "stay in force") && !strings.Contains(said, "--max-frontends") {
			t.Errorf("the log does not say what to do: %s", said)
		}
	}
	if got := entries(t, cfg.PinPath); !slices.Equal(got, before) {
		t.Errorf("in force are %q, want %q", got, before)
	}

	gone := world.services[0].Name
	writer.Events([]reflector.Event{{Kind: reflector.KindService, Name: gone}})
	select {
	case <-filled:
	case <-time.After(patience):
		t.Fatal("the maps have not taken over although everything fits")
	}
	if got := entries(t, cfg.PinPath); len(got) != 3 {
		t.Errorf("in force are %q, want three", got)
	}
}
