// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// killTimeout bounds how long the kernel may take to end what a cgroup holds.
const killTimeout = 10 * time.Second

// Cgroup is a cgroup (version 2) of the test's own, without any process until
// one is started in it. Programs attached to it see that process and what it
// starts, and nothing else on the machine.
type Cgroup struct {
	path string
}

// NewCgroup returns a new cgroup below the root of the machine's hierarchy.
func NewCgroup(t testing.TB) *Cgroup {
	t.Helper()
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatalf("find the cgroup2 mount: %v", err)
	}
	root, ok := cgroup2Mount(string(mountinfo))
	if !ok {
		t.Fatal("no cgroup2 is mounted: mount one with `mount -t cgroup2 none DIR`")
	}
	path, err := os.MkdirTemp(root, fmt.Sprintf("fairlead-test-%d-", os.Getpid()))
	if err != nil {
		t.Fatalf("create a cgroup: %v (tests of the datapath run as root)", err)
	}
	c := &Cgroup{path: path}
	t.Cleanup(func() {
		if err := c.remove(); err != nil {
			t.Errorf("remove cgroup: %v", err)
		}
	})
	return c
}

// Path is the cgroup's folder.
func (c *Cgroup) Path() string { return c.path }

// Child returns a new cgroup below c, as a pod's lies below its node's.
func (c *Cgroup) Child(t testing.TB, name string) *Cgroup {
	t.Helper()
	child := &Cgroup{path: filepath.Join(c.path, name)}
	if err := os.Mkdir(child.path, 0o755); err != nil {
		t.Fatalf("create a cgroup: %v", err)
	}
	t.Cleanup(func() {
		if err := child.remove(); err != nil {
			t.Errorf("remove cgroup: %v", err)
		}
	})
	return child
}

// remove kills what still runs in the cgroup. The folder is busy until the
// last of it has ended.
func (c *Cgroup) remove() error {
	if err := os.WriteFile(filepath.Join(c.path, "cgroup.kill"), []byte("1"), 0); err != nil {
		return err
	}
	for deadline := time.Now().Add(killTimeout); ; time.Sleep(time.Millisecond) {
		err := os.Remove(c.path)
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return err
		}
	}
}

// cgroup2Mount finds the first mount of type cgroup2 in the text of a
// mountinfo file. A line reads "… root mount-point options [tags] - type …".
func cgroup2Mount(mountinfo string) (path string, ok bool) {
	for line := range strings.Lines(mountinfo) {
		mount, kind, _ := strings.Cut(line, " - ")
		fields := strings.Fields(mount)
		if len(fields) < 5 || !strings.HasPrefix(kind, "cgroup2 ") {
			continue
		}
		return unescape.Replace(fields[4]), true
	}
	return "", false
}

// unescape undoes what the kernel does to white space in mountinfo.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
