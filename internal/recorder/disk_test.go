// SPDX-License-Identifier: Apache-2.0

package recorder

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/journal"
)

// smallDisk is a file system with room for so many bytes.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	path := t.TempDir()
	if err := unix.Mount("tmpfs", path, "tmpfs", 0, "size="+size); err != nil {
		t.Fatalf("mount a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return path
}

func TestAFullDiskHoldsUpTheRecorderUntilThereIsRoomAndLosesNothing(t *testing.T) {
	disk := smallDisk(t, "4m")
	path := filepath.Join(disk, "j")
	j, err := journal.Create(path, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	filler := filepath.Join(disk, "filler")
	if err := os.WriteFile(filler, bytes.Repeat([]byte{1}, 3<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	log := &logged{t: t}
	s := newSink(j, slog.New(slog.NewTextHandler(log, nil)))
	done := make(chan error, 1)
	go func() { done <- s.run(t.Context()) }()

	const all = 1000
	content := bytes.Repeat([]byte("x"), 1000)
	for range all {
		e := journal.Event{Time: time.Now(), Kind: servicesKind, Name: "web", Type: journal.Modified, Content: content}
		s.put(t.Context(), item{stored: stored{event: e}})
	}
	eventually(t, "the line that says so", func() error {
		if log.count("the disk is full") == 0 {
			return errGone
		}
		return nil
	})
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	close(s.items)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err := range j.Events(t.Context(), journal.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != all || log.count("takes nothing") != 1 {
		t.Errorf("%d of %d events are there; %q", n, all, log.lines.all())
	}
}
