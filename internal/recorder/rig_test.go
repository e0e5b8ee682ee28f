// SPDX-License-Identifier: Apache-2.0

package recorder

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/test/kube"
)

// The variables by which a test runs this program again, as a recorder that it
// may kill.
const (
	kubeconfigVariable = "FAIRLEAD_TEST_RECORD_FROM"
	journalVariable    = "FAIRLEAD_TEST_RECORD_TO"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(journalVariable); path != "" {
		fmt.Fprintln(os.Stderr, recordUntilKilled(os.Getenv(kubeconfigVariable), path))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

func recordUntilKilled(kubeconfig, path string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	r, err := New(Config{REST: config, Path: path, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	return r.Run(context.Background())
}

// patience bounds every wait for something that takes a moment.
const patience = 60 * time.Second

// recording is a recorder at work, and its journal.
type recording struct {
	*Recorder
	journal *journal.Journal
	end     context.CancelFunc
	ended   chan error
	log     *logged
}

// record starts a recorder of an API server that writes a journal.
func record(t *testing.T, server *kube.APIServer, cfg Config) *recording {
	t.Helper()
	if cfg.REST == nil {
		cfg.REST = server.REST
	}
	r := &recording{ended: make(chan error, 1), log: &logged{t: t}}
	if cfg.Path == "" {
		cfg.Path = filepath.Join(t.TempDir(), "journal")
	}
	cfg.Log = slog.New(slog.NewTextHandler(r.log, nil))
	var err error
	if r.Recorder, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	r.look = 200 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	r.end = cancel
	go func() { r.ended <- r.Run(ctx) }()
	t.Cleanup(cancel)
	eventually(t, "the journal", func() error {
		if r.journal == nil {
			r.journal, err = journal.Open(cfg.Path)
		}
		return err
	})
	t.Cleanup(func() { r.journal.Close() })
	return r
}

// stop ends the recorder, which must go well.
func (r *recording) stop(t *testing.T) {
	t.Helper()
	r.end()
	select {
	case err := <-r.ended:
		if err != nil {
			t.Errorf("the recorder ended with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the recorder does not end")
	}
}

// listed waits until some kinds are followed.
func (r *recording) listed(t *testing.T, names ...string) {
	t.Helper()
	eventually(t, "the first lists", func() error {
		followed := map[string]bool{}
		for _, k := range r.Status().Kinds {
			followed[k.Name] = k.Listed && k.Trouble == nil
		}
		for _, name := range names {
			if !followed[name] {
				return fmt.Errorf("%s is not followed: %+v", name, r.Status())
			}
		}
		return nil
	})
}

func (r *recording) events(t *testing.T, f journal.Filter) (events []journal.Event) {
	t.Helper()
	for e, err := range r.journal.Events(t.Context(), f) {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	return events
}

// await returns the first event that a filter picks.
func (r *recording) await(t *testing.T, f journal.Filter) (e journal.Event) {
	t.Helper()
	eventually(t, fmt.Sprintf("%+v", f), func() error {
		events := r.events(t, f)
		if len(events) == 0 {
			return fmt.Errorf("no such event; %+v", r.Status())
		}
		e = events[0]
		return nil
	})
	return e
}

func (r *recording) gaps(t *testing.T, kind string) []journal.Gap {
	t.Helper()
	gaps, err := r.journal.Gaps(t.Context(), journal.Filter{Kinds: []string{kind}})
	if err != nil {
		t.Fatal(err)
	}
	return gaps
}

// lists are those of a kind's resource.
func (r *recording) lists(t *testing.T, resource string) (of []journal.List) {
	t.Helper()
	lists, err := r.journal.Lists(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(lists, func(l journal.List) bool { return l.Kind.Resource != resource })
}

// listEvents are the types and names of what a list brought, in their order.
func (r *recording) listEvents(t *testing.T, l journal.List) (texts []string) {
	t.Helper()
	for _, e := range r.events(t, journal.Filter{}) {
		if e.List == l.ID {
			texts = append(texts, fmt.Sprint(e.Type, " ", e.Name))
		}
	}
	return texts
}

func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: still, after %s: %v", what, patience, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// logged keeps what a recorder logs.
type logged struct {
	t     *testing.T
	lines lines
}

// Write implements io.Writer.
func (l *logged) Write(text []byte) (int, error) {
	l.lines.add(string(text))
	return l.t.Output().Write(text)
}

func (l *logged) count(words string) (n int) {
	for _, line := range l.lines.all() {
		if strings.Contains(line, words) {
			n++
		}
	}
	return n
}
