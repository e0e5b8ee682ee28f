// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/journal"
)

func TestFollowShowsWhatIsRecordedLaterUntilItIsInterrupted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j.db")
	j, err := journal.Create(path, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	add := func(name string) {
		if err := j.Append(t.Context(), []journal.Event{{Time: time.Now(), Name: name, Type: journal.Added}}); err != nil {
			t.Error(err)
		}
	}
	add("first")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, in := io.Pipe()
	defer out.Close()
	var complaints strings.Builder
	status := make(chan int, 1)
	go func() {
		status <- Main(ctx, []string{"fairlead", "events", path, "--follow", "-o", "json"}, strings.NewReader(""), in, &complaints)
		in.Close()
	}()
	lines := json.NewDecoder(out)
	for _, want := range []string{"first", "second", "third"} {
		var e journal.Event
		if err := lines.Decode(&e); err != nil || e.Name != want {
			t.Fatalf("%v, %v, want %s", e, err, want)
		}
		switch want {
		case "first":
			add("second")
		case "second":
			add("third")
		}
	}
	cancel()
	if got := <-status; got != exitFine || complaints.String() != "" {
		t.Errorf("exit status %d: %s", got, complaints.String())
	}
}

func FuzzReadTime(f *testing.F) {
	for _, text := range []string{"", "1h", "-1h", "2026-11-20T10:00:00Z", "2026-11-20", "9999999h"} {
		f.Add(text)
	}
	now := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		at, err := readTime("--since", text, now)
		if err != nil && (!at.IsZero() || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "--since")) {
			t.Fatalf("%q: %v, %v", text, at, err)
		}
		if ago, wrong := time.ParseDuration(text); wrong == nil && ago >= 0 && (err != nil || now.Sub(at) != ago) {
			t.Fatalf("%q is %v, %v", text, at, err)
		}
	})
}
