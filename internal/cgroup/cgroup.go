// SPDX-License-Identifier: Apache-2.0

// Package cgroup finds the cgroup v2 hierarchy and makes cgroups in it that
// hold processes for a while: what the demo and tests attach programs to. It
// changes no cgroup that it did not make.
package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Root returns where cgroup v2 is mounted.
func Root() (string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("find the cgroup v2 mount: %w", err)
	}
	if path, ok := findMount(string(mounts)); ok {
		return path, nil
	}
	return "", errors.New("no cgroup v2 is mounted: mount one (mount -t cgroup2 none /sys/fs/cgroup/unified) or name a folder of one")
}

// findMount finds the first mount of type cgroup2 in the text of a mountinfo
// file. A line reads "… root mount-point options [tags] - type …"
// (proc_pid_mountinfo(5)).
func findMount(mountinfo string) (path string, ok bool) {
	for line := range strings.Lines(mountinfo) {
		mount, kind, _ := strings.Cut(line, " - ")
		fields := strings.Fields(mount)
		if len(fields) >= 5 && strings.HasPrefix(kind, "cgroup2 ") {
			return unescape.Replace(fields[4]), true
		}
	}
	return "", false
}

// unescape undoes what the kernel does to white space in mountinfo.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// Check says whether path is a folder of a cgroup v2 hierarchy.
func Check(path string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return fmt.Errorf("look at the cgroup %s: %w", path, err)
	}
	if uint32(st.Type) != unix.CGROUP2_SUPER_MAGIC {
		return fmt.Errorf("%s is no cgroup of version 2: see `findmnt -t cgroup2`", path)
	}
	return nil
}

// Create makes a cgroup below the root, whose name begins with prefix.
func Create(prefix string) (path string, err error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	path, err = os.MkdirTemp(root, fmt.Sprintf("%s-%d-", prefix, os.Getpid()))
	if err != nil {
		return "", fmt.Errorf("create a cgroup (as root): %w", err)
	}
	if err := os.Chmod(path, 0o755); err != nil {
		return "", fmt.Errorf("create a cgroup: %w", err)
	}
	return path, nil
}

// removeTimeout bounds how long the kernel may take to end what a cgroup
// holds; the folder is busy until the last process is gone.
const removeTimeout = 10 * time.Second

// Remove ends every process in a cgroup without children, and removes it.
func Remove(path string) error {
	if err := os.WriteFile(filepath.Join(path, "cgroup.kill"), []byte("1"), 0); err != nil {
		return fmt.Errorf("end the processes in %s: %w", path, err)
	}
	for deadline := time.Now().Add(removeTimeout); ; time.Sleep(time.Millisecond) {
		err := os.Remove(path)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return fmt.Errorf("remove the cgroup %s: %w", path, err)
		}
	}
}
