// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test binary is its own child: these variables tell it what to do.
const (
	appendVariable = "JOURNAL_TEST_APPEND" // append to this journal until killed
	nobodyVariable = "JOURNAL_TEST_NOBODY" // open this journal as a user without rights
	// migrateVariable has it migrate this journal, and not commit that.
	migrateVariable = "JOURNAL_TEST_MIGRATE"
	batch           = 50
)

func TestMain(m *testing.M) {
	if path := os.Getenv(appendVariable); path != "" {
		fmt.Println(appendForever(path))
		os.Exit(1)
	}
	if path := os.Getenv(nobodyVariable); path != "" {
		fmt.Println(openAsNobody(path))
		os.Exit(0)
	}
	if path := os.Getenv(migrateVariable); path != "" {
		fmt.Println(migrateForGood(path))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// appendForever says each batch that is in the journal.
func appendForever(path string) error {
	j, err := Create(path, Options{Recorder: "first"})
	if err != nil {
		return err
	}
	for n := 0; ; n += batch {
		if err := j.Append(context.Background(), load(n, batch, 10, 500)); err != nil {
			return err
		}
		fmt.Println("appended")
	}
}

func openAsNobody(path string) error {
	if err := syscall.Setuid(65534); err != nil {
		return err
	}
	_, err := Open(path)
	_, createErr := Create(path, Options{})
	return errors.Join(err, createErr)
}

func TestAKilledRecorderLosesNoBatchThatItAppendedAndLeavesNoHalfOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	appended := 0
	for round := range 8 {
		child := exec.CommandContext(t.Context(), os.Args[0])
		child.Env = append(os.Environ(), appendVariable+"="+path)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; n < 1+round*5 && lines.Scan(); n++ {
			if lines.Text() != "appended" {
				t.Fatal(lines.Text())
			}
			appended++
		}
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // what it said before it died
			appended++
		}
		_ = child.Wait()
		j, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		events := collect(t, j, Filter{})
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		// One batch may be in without a word about it.
		if len(events) != appended*batch && len(events) != (appended+1)*batch {
			t.Fatalf("round %d: %d events, though %d batches of %d were appended", round, len(events), appended, batch)
		}
		appended = len(events) / batch
	}
}

// whole makes a journal of 5000 events, closed.
func whole(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "j")
	j := create(t, path, Options{})
	appendAll(t, j, load(0, 5000, 50, 500)...)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// readable opens a journal, counts the events before the first error, and
// checks that what it says fits a line.
func readable(t *testing.T, path string) (n int, err error) {
	t.Helper()
	j, err := Open(path)
	if err == nil {
		defer j.Close()
		for _, e := range j.Events(t.Context(), Filter{}) {
			if err = e; err != nil {
				break
			}
			n++
		}
	}
	if err != nil && (strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), path)) {
		t.Errorf("no line that names the file: %q", err)
	}
	return n, err
}

func TestATruncatedJournalGivesItsBeginning(t *testing.T) {
	path := whole(t)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, info.Size()*3/4); err != nil {
		t.Fatal(err)
	}
	n, err := readable(t, path)
	if !errors.Is(err, ErrTorn) || n < 1000 || n == 5000 || !strings.Contains(err.Error(), fmt.Sprintf("%d events", n)) {
		t.Errorf("%d events and %v, want a good part of 5000, and ErrTorn that says so", n, err)
	}
	if j, err := Create(path, Options{}); !errors.Is(err, ErrTorn) {
		t.Errorf("%v, %v: a torn journal must not be written to", j, err)
	}
}

func TestBehindALostPageTheRestIsRead(t *testing.T) {
	path := whole(t)
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteAt(make([]byte, 8192), info.Size()/2/4096*4096); err != nil {
		t.Fatal(err)
	}
	if n, err := readable(t, path); !errors.Is(err, ErrTorn) || n < 4900 || n == 5000 {
		t.Errorf("%d events and %v, want nearly 5000 and ErrTorn", n, err)
	}
}

func TestATornWALGivesWhatWasWholeBeforeIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	j := create(t, path, Options{})
	for n := range 10 {
		appendAll(t, j, load(n*100, 100, 10, 500)...)
	}
	copied := filepath.Join(t.TempDir(), "copy")
	for _, suffix := range []string{"", "-wal"} {
		text, err := os.ReadFile(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if suffix == "-wal" {
			text = text[:len(text)*3/4]
		}
		if err := os.WriteFile(copied+suffix, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := readable(t, copied); err != nil || n%100 != 0 || n < 500 || n == 1000 {
		t.Errorf("%d events and %v, want most of ten batches of 100", n, err)
	}
}

func TestAFileThatIsNoJournalIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	foreign, text, empty := filepath.Join(dir, "foreign"), filepath.Join(dir, "text"), filepath.Join(dir, "empty")
	execute(t, foreign, "CREATE TABLE t (x); INSERT INTO t VALUES (1)")
	if err := errors.Join(os.WriteFile(text, []byte(strings.Repeat("no database\n", 1000)), 0o600), os.WriteFile(empty, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	newer := whole(t)
	execute(t, newer, fmt.Sprintf("PRAGMA user_version = %d", format+1))
	for name, c := range map[string]struct {
		path string
		want error
	}{
		"a SQLite file of something else": {foreign, ErrForeign},
		"a text":                          {text, ErrForeign},
		"a later format":                  {newer, ErrNewer},
		"a folder":                        {dir, nil},
		"no file":                         {filepath.Join(dir, "none"), fs.ErrNotExist},
		"a file that is empty":            {empty, errEmpty},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := readable(t, c.path); err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("opened: %v, want %v", err, c.want)
			}
			before, _ := os.ReadFile(c.path)
			j, err := Create(c.path, Options{})
			if fresh := c.path == empty || errors.Is(c.want, fs.ErrNotExist); fresh {
				if err != nil || j.Close() != nil {
					t.Errorf("created: %v", err)
				}
				return
			}
			if err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("created: %v, want %v", err, c.want)
			}
			if after, _ := os.ReadFile(c.path); string(before) != string(after) {
				t.Error("the file was changed")
			}
		})
	}
}

func execute(t *testing.T, path, statements string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(statements); err != nil {
		t.Fatal(err)
	}
}

func TestWhoMayNotReadIsToldSo(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "journal")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "j")
	if err := create(t, path, Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), nobodyVariable+"="+path)
	out, err := child.CombinedOutput()
	if want := fmt.Sprintf("journal %s: permission denied\n", path); err != nil || string(out) != want+want {
		t.Errorf("it said %q, %v, want twice %q", out, err, want)
	}
}

func TestAFullDiskFailsOneAppendAndKeepsTheRest(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("journal", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}()
	path := filepath.Join(dir, "j")
	j := create(t, path, Options{})
	appended, err := 0, error(nil)
	for ; err == nil && appended < 100; appended++ {
		err = j.Append(t.Context(), load(appended*batch, batch, 10, 1000))
	}
	if err == nil || !strings.Contains(err.Error(), "disk is full") || strings.Contains(err.Error(), "\n") {
		t.Fatalf("%v after %d batches on 2 MiB", err, appended)
	}
	if got := len(collect(t, j, Filter{})); got != (appended-1)*batch {
		t.Errorf("%d events are left of %d whole batches of %d", got, appended-1, batch)
	}
	if err := j.Close(); err != nil {
		t.Logf("closing on the full disk: %v", err)
	}
}

func TestAJournalOnAReadOnlyDiskIsRead(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("journal", dir, "tmpfs", 0, "size=8m"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}()
	path := filepath.Join(dir, "j")
	j := create(t, path, Options{})
	appendAll(t, j, story()...)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if n, err := readable(t, path); n != 4 || err != nil {
		t.Errorf("%d events, %v", n, err)
	}
}

func FuzzOpen(f *testing.F) {
	path := filepath.Join(f.TempDir(), "j")
	j := create(f, path, Options{})
	appendAll(f, j, load(0, 40, 5, 200)...)
	if err := j.Close(); err != nil {
		f.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint32(0), []byte("x"), uint32(1<<20))
	f.Add(uint32(18), []byte{9}, uint32(1<<20))
	f.Add(uint32(8192), make([]byte, 4096), uint32(9000))
	f.Fuzz(func(t *testing.T, at uint32, damage []byte, size uint32) {
		bad := append([]byte(nil), good...)
		copy(bad[int(at)%len(bad):], damage)
		broken := filepath.Join(t.TempDir(), "j")
		if err := os.WriteFile(broken, bad[:min(int(size), len(bad))], 0o600); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		n, err := readable(t, broken)
		if n > 10_000 || time.Since(began) > time.Minute {
			t.Fatalf("%d events, %v, after %s", n, err, time.Since(began))
		}
	})
}
