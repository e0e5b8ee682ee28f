// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
