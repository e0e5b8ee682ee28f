// SPDX-License-Identifier: Apache-2.0

package recorder

import (
	"errors"
	"log/slog"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/test/kube"
)

// TestAPanicEndsTheRecorderAndNothingElse lets each of its goroutines panic by
// way of what it calls.
func TestAPanicEndsTheRecorderAndNothingElse(t *testing.T) {
	cluster := kube.Start(t)
	for name, cfg := range map[string]Config{
		"while it asks which kinds there are": {REST: &rest.Config{Host: "http://127.0.0.1:1"}, Found: func() <-chan struct{} { panic("found") }},
		"while it follows a kind":             {REST: cluster.REST, Servers: func([]netip.AddrPort) { panic("servers") }},
	} {
		t.Run(name, func(t *testing.T) {
			log := &logged{t: t}
			cfg.Path, cfg.Log = filepath.Join(t.TempDir(), "j"), slog.New(slog.NewTextHandler(log, nil))
			r, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Run(t.Context()); !errors.Is(err, ErrDefect) || r.Status().Running || log.count("stack=") != 1 {
				t.Errorf("%v, %+v, %q", err, r.Status(), log.lines.all())
			}
			// What was open is closed: another one may begin.
			j, err := journal.Create(cfg.Path, journal.Options{})
			if err != nil || j.Close() != nil {
				t.Error(err)
			}
		})
	}
	t.Run("while it compares two states", func(t *testing.T) {
		r := newBench(t)
		broken := stored{event: journal.Event{Time: time.Now(), Kind: servicesKind, Name: "web", Type: journal.Modified, Content: []byte("{")}, old: []byte(`{"a":1`)}
		for range queued + 2*batch {
			r.sink.put(t.Context(), item{stored: broken})
		}
		close(r.sink.items)
		if err := <-r.done; !errors.Is(err, ErrDefect) {
			t.Error(err)
		}
	})
}
