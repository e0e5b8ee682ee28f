// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ path, want string }{
		"the root of the hierarchy is one":      {root, ""},
		"another file system is none":           {"/proc", "no cgroup of version 2"},
		"a folder that does not exist is named": {"/proc/nothing", "/proc/nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Check(c.path)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("Check(%s) = %v, want %q", c.path, err, c.want)
			}
		})
	}
}

func TestFindMount(t *testing.T) {
	const v1 = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
	for name, c := range map[string]struct {
		mountinfo, path string
		ok              bool
	}{
		"the unified hierarchy is found where it is": {
			"25 30 0:23 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n", "/sys/fs/cgroup", true},
		"the hybrid hierarchy is found behind version 1": {
			v1 + "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n", "/sys/fs/cgroup/unified", true},
		"white space in the path is read as the kernel writes it": {
			`41 31 0:38 / /a\040b\134c rw - cgroup2 none rw`, `/a b\c`, true},
		"version 1 alone is none":                       {v1, "", false},
		"a source that is called cgroup2 is not a type": {"32 31 0:29 / /x rw - tmpfs cgroup2 rw\n", "", false},
		"a line cut short is passed over":               {"32 31 - cgroup2 none rw\n", "", false},
		"an empty file has none":                        {"", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			path, ok := findMount(c.mountinfo)
			if path != c.path || ok != c.ok {
				t.Errorf("findMount = %q, %v; want %q, %v", path, ok, c.path, c.ok)
			}
		})
	}
}

func FuzzFindMount(f *testing.F) {
	f.Add("41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n")
	f.Add("x - cgroup2 ")
	f.Fuzz(func(t *testing.T, mountinfo string) {
		path, ok := findMount(mountinfo)
		if ok != (path != "") {
			t.Errorf("path %q, ok %v", path, ok)
		}
	})
}
