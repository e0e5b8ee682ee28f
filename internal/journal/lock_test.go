// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestOneRecorderAtATimeWritesAJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), appendVariable+"="+path)
	out, err := child.StdoutPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if lines := bufio.NewScanner(out); !lines.Scan() || lines.Text() != "appended" {
		t.Fatal(lines.Text())
	}

	t.Run("a second one is refused, and told who the first is and what to do", func(t *testing.T) {
		_, err := Create(path, Options{Recorder: "second"})
		want := regexp.MustCompile(`^journal \S+/j: another recorder writes it \(first, on host \S+, since \S+Z\): end that one, or name another file$`)
		if !errors.Is(err, ErrHeld) || !want.MatchString(err.Error()) {
			t.Errorf("%v", err)
		}
	})
	t.Run("a reader is not kept out", func(t *testing.T) {
		if n, err := readable(t, path); n == 0 || err != nil {
			t.Errorf("%d events, %v", n, err)
		}
	})
	t.Run("one that is killed keeps nobody out", func(t *testing.T) {
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = child.Wait()
		if err := create(t, path, Options{}).Close(); err != nil {
			t.Error(err)
		}
	})
	t.Run("one that has ended keeps nobody out", func(t *testing.T) {
		for range 2 {
			if err := create(t, path, Options{}).Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestAJournalIsForItsOwnerAloneAndSoIsWhatStandsBesideIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	appendAll(t, create(t, path, Options{}), story()...)
	for _, suffix := range []string{"", "-wal", "-shm"} {
		info, err := os.Stat(path + suffix)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%q: %v, %v", suffix, info, err)
		}
	}
}

func TestAJournalInAFolderThatIsNotThereSaysToMakeIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none", "j")
	if _, err := Create(path, Options{}); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "make one first") {
		t.Error(err)
	}
}
