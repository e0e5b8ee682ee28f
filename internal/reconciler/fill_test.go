// SPDX-License-Identifier: Apache-2.0

package reconciler_test

import (
	"context"
	"log/slog"
	"net/netip"
	"path/filepath"
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
			writer := follow(t, func() error { close(filled); return nil })
			writer.Events(events)
			for _, kind := range []reflector.Kind{reflector.KindService, reflector.KindEndpointSlice, reflector.KindNode} {
				writer.Listed(kind)
			}
			select {
			case <-filled:
			case <-time.After(10 * time.Second):
				t.Error("the fill is not over")
			}
		})
	}
}

// follow runs a writer and a reconciler on real maps until the test ends.
func follow(t *testing.T, filled func() error) *tables.Writer {
	t.Helper()
	rows, err := tables.New()
	if err != nil {
		t.Fatal(err)
	}
	cfg := datapath.Config{
		PinPath: filepath.Join(lab.NewBPFFS(t), "fairlead"), Cgroup: lab.NewCgroup(t).Path(),
		SocketMode: datapath.SocketOff, Node: "n1", Sizes: datapath.DefaultSizes(),
	}
	kernel, err := datapath.Open(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kernel.Close() })
	r, err := reconciler.New(reconciler.Config{
		Tables: rows, Datapath: kernel, Log: slog.New(slog.DiscardHandler), CompareInterval: time.Hour, Filled: filled,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := rows.Start(ctx); err != nil {
		t.Fatal(err)
	}
	writer := tables.NewWriter(rows, model.Node{Name: "n1", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}, model.Options{})
	done := make(chan struct{}, 2)
	go func() { writer.Run(ctx); done <- struct{}{} }()
	go func() { r.Run(ctx); done <- struct{}{} }()
	t.Cleanup(func() {
		cancel()
		<-done
		<-done
	})
	return writer
}
