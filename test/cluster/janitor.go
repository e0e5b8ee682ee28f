// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// The machine gives a cluster three things that do not end with its
// namespaces: a folder, cgroups, and a higher limit. The janitor takes them
// back when run has ended, in whatever way.

// callJanitor starts the janitor, which holds the lock as well. The function
// that is returned sends it to work and waits for it.
func callJanitor(f folders, lock *os.File) (goHome func() error, err error) {
	cmd := exec.Command("/proc/self/exe", "janitor")
	cmd.ExtraFiles = []*os.File{lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	orders, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if err := json.NewEncoder(orders).Encode(f.cache); err != nil {
		return nil, err
	}
	return func() error {
		orders.Close()
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("clean up: %w: %s", err, complaint.Bytes())
		}
		return nil
	}, nil
}

// janitor waits for the end of the one who gave the orders.
func janitor(orders io.Reader) error {
	var cache string
	decoder := json.NewDecoder(orders)
	if err := decoder.Decode(&cache); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, orders); err != nil {
		return err
	}
	return tidy(folders{cache: cache})
}

// tidy removes what a cluster leaves. It may run at any time when none is up.
func tidy(f folders) error {
	return errors.Join(removeCgroups(), restoreLimits(f), removeAll(f.run()))
}

// tidyTimeout bounds how long the last processes of a killed cluster take to
// be gone.
const tidyTimeout = 30 * time.Second

// removeAll tries until nothing writes to the folder any more.
func removeAll(folder string) error {
	for end := time.Now().Add(tidyTimeout); ; time.Sleep(100 * time.Millisecond) {
		err := os.RemoveAll(folder)
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

// inotifyInstances is how many file watchers three nodes take, with a margin.
// The limit counts for all of root's processes.
const (
	inotifyLimit     = "/proc/sys/fs/inotify/max_user_instances"
	inotifyInstances = 1024
)

// raiseLimits notes what was before it changes it.
func raiseLimits(f folders) error {
	before, err := readInt(inotifyLimit)
	if err != nil || before >= inotifyInstances {
		return err
	}
	if err := os.WriteFile(f.run("inotify"), []byte(strconv.Itoa(before)), 0o644); err != nil {
		return err
	}
	return os.WriteFile(inotifyLimit, []byte(strconv.Itoa(inotifyInstances)), 0o644)
}

// restoreLimits leaves alone what somebody else has changed since.
func restoreLimits(f folders) error {
	before, err := readInt(f.run("inotify"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	now, err := readInt(inotifyLimit)
	if err != nil || now != inotifyInstances {
		return err
	}
	return os.WriteFile(inotifyLimit, []byte(strconv.Itoa(before)), 0o644)
}

func readInt(path string) (int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(bytes.TrimSpace(text)))
}
