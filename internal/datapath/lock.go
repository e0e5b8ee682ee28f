// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// lockPinPath creates the folder, makes sure that it is on a bpffs, and takes
// the lock that makes its holder the one writer.
func lockPinPath(path string) (f *os.File, err error) {
	if err := checkBPFFS(path); err != nil {
		return nil, err
	}
	// A cleanup may remove the folder between any two steps.
	const tries = 1000
	for range tries {
		f, err = lockFolder(path)
		if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrExist) {
			return f, err
		}
	}
	return nil, err
}

// lockFolder tries once. A lock on a folder that was removed meanwhile keeps
// nobody out, and is os.ErrNotExist.
func lockFolder(path string) (*os.File, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("create the pin path: %w", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the pin path: %w", err)
	}
	if err := lockOpen(f, path); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func lockOpen(f *os.File, path string) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("%w on %s: %s", ErrHeld, path, writerOf(path))
	}
	if err != nil {
		return fmt.Errorf("lock the pin path %s: %w", path, err)
	}
	locked, err := f.Stat()
	if err != nil {
		return fmt.Errorf("look at the pin path: %w", err)
	}
	now, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("look at the pin path: %w", err)
	}
	if !os.SameFile(locked, now) {
		return fmt.Errorf("lock the pin path %s: %w", path, os.ErrNotExist)
	}
	return nil
}

// writerOf names the writer that signed the current maps.
func writerOf(path string) string {
	g, err := openGeneration(path, unix.PROT_READ)
	if err != nil || g == nil {
		return "it has not written its name yet"
	}
	defer g.close()
	return fmt.Sprintf("process %d, since %s", g.meta.PID, time.Unix(int64(g.meta.Started), 0).UTC().Format(time.RFC3339))
}

// checkBPFFS looks at the nearest folder that exists.
func checkBPFFS(path string) error {
	var st unix.Statfs_t
	dir := path
	for {
		err := unix.Statfs(dir, &st)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.ENOENT) || dir == filepath.Dir(dir) {
			return fmt.Errorf("look at the file system of %s: %w", dir, err)
		}
		dir = filepath.Dir(dir)
	}
	if uint32(st.Type) != unix.BPF_FS_MAGIC {
		return fmt.Errorf("the pin path %s is not on a bpffs: mount one (mount -t bpf bpf /sys/fs/bpf) or name another with --pin-path", path)
	}
	return nil
}
