// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// FindCgroup returns where cgroup v2 is mounted.
func FindCgroup() (string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("find the cgroup v2 mount: %w", err)
	}
	if path, ok := cgroup2Mount(string(mounts)); ok {
		return path, nil
	}
	return "", errors.New("no cgroup v2 is mounted: mount one (mount -t cgroup2 none /sys/fs/cgroup/unified) or name a folder of one with --cgroup")
}

// cgroup2Mount finds the first mount of type cgroup2 in the text of a
// mountinfo file. A line reads "… root mount-point options [tags] - type …"
// (proc_pid_mountinfo(5)).
func cgroup2Mount(mountinfo string) (path string, ok bool) {
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
