// SPDX-License-Identifier: Apache-2.0

package recorder

import (
	"context"
	"database/sql"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/fairlead-io/fairlead/internal/journal"
)

// held is a journal that another process writes, for as long as the test likes.
func held(t *testing.T, path string) (release func()) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	conn, err := db.Conn(t.Context())
	if err == nil {
		_, err = conn.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if _, err := conn.ExecContext(context.Background(), "ROLLBACK"); err != nil {
			t.Error(err)
		}
	}
}

func TestAJournalThatTakesNothingHoldsUpWhoReadsAndLosesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	j, err := journal.Create(path, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	log := &logged{t: t}
	s := newSink(j, slog.New(slog.NewTextHandler(log, nil)))
	release := held(t, path)
	done := make(chan error, 1)
	go func() { done <- s.run(t.Context()) }()

	const all = 2 * (queued + batch + batch)
	fed := make(chan int, 1)
	go func() {
		n := 0
		for range all {
			if s.put(t.Context(), item{stored: stored{event: journal.Event{Time: time.Now(), Kind: servicesKind, Name: "web", Type: journal.Modified}}}) {
				n++
			}
		}
		fed <- n
	}()
	eventually(t, "the line that says so", func() error {
		if log.count("takes nothing") == 0 {
			return errGone
		}
		return nil
	})
	if len(fed) > 0 || s.events.Load() > 0 {
		t.Error("it goes on reading")
	}
	release()
	if n := <-fed; n != all {
		t.Errorf("%d of %d were fed", n, all)
	}
	close(s.items)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if s.events.Load() != all || log.count("takes nothing") != 1 || log.count("takes events again") != 1 {
		t.Errorf("%d of %d events, %q", s.events.Load(), all, log.lines.all())
	}
}

func TestWhatIsForgottenForWantOfRoomIsReadBackFromTheJournal(t *testing.T) {
	r := newBench(t)
	r.states.room = &room{limit: 10 << 10}
	const objects, revisions = 20, 3
	for n := range objects * revisions {
		fields, err := decodeObject(sliceJSON(n%objects, 10, n/objects))
		if err != nil {
			t.Fatal(err)
		}
		r.see(t, fields)
		// What is not in the journal yet cannot be forgotten.
		eventually(t, "the journal", func() error {
			if r.sink.events.Load() <= int64(n) {
				return errGone
			}
			return nil
		})
	}
	if used := r.states.room.used.Load(); used > 15<<10 {
		t.Errorf("%d bytes of contents are kept", used)
	}
	r.end(t)
	n := 0
	for e, err := range r.states.journal.Events(t.Context(), journal.Filter{Types: []journal.Type{journal.Modified}}) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; len(e.Diff) != 4 {
			t.Fatalf("%s", diffText(e))
		}
	}
	if n != objects*(revisions-1) {
		t.Errorf("%d changes", n)
	}
}
