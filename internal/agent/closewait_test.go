// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestCloseWaitIsOnlyRaised(t *testing.T) {
	for name, c := range map[string]struct {
		before string
		raised time.Duration
		after  string
	}{
		"the kernel's minute becomes an hour": {"60\n", time.Minute, "3600"},
		"an hour stays":                       {"3600\n", 0, "3600"},
		"two hours stay":                      {"7200\n", 0, "7200"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "close_wait")
			if err := os.WriteFile(file, []byte(c.before), 0o600); err != nil {
				t.Fatal(err)
			}
			before, err := raiseCloseWait(file, time.Hour)
			if err != nil || before != c.raised {
				t.Errorf("raised from %s, %v; want from %s", before, err, c.raised)
			}
			after, err := os.ReadFile(file)
			if err != nil || strings.TrimSpace(string(after)) != c.after {
				t.Errorf("it is %q, %v; want %s", after, err, c.after)
			}
		})
	}

	t.Run("a kernel that tracks no connections has nothing to raise", func(t *testing.T) {
		if before, err := raiseCloseWait(filepath.Join(t.TempDir(), "none"), time.Hour); err != nil || before != 0 {
			t.Errorf("raised from %s, %v", before, err)
		}
	})

	t.Run("what is no number is an error", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "close_wait")
		if err := os.WriteFile(file, []byte("soon"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := raiseCloseWait(file, time.Hour); err == nil {
			t.Error("it was taken for a number")
		}
	})
}

func TestACloseWaitThatCannotBeSetIsAFinding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "close_wait")
		write := func(text string) {
			t.Helper()
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("soon")
		found := newTroubles(slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go keepCloseWait(ctx, file, time.Hour, found)
		synctest.Wait()
		if f := found.findings(); len(f) != 1 || !strings.HasPrefix(f[0], string(closeWaitShort)) {
			t.Errorf("findings %q", f)
		}
		write("60")
		sleep(closeWaitRefresh)
		if f := found.findings(); len(f) != 0 {
			t.Errorf("it can be set, and yet %q", f)
		}
		if after, err := os.ReadFile(file); err != nil || string(after) != "3600" {
			t.Errorf("it is %q, %v", after, err)
		}
	})
}
