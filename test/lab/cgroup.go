// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead-io/fairlead/internal/cgroup"
)

// Cgroup is a cgroup (version 2) of the test's own, without any process until
// one is started in it. Programs attached to it see that process and what it
// starts, and nothing else on the machine.
type Cgroup struct {
	path string
}

// NewCgroup returns a new cgroup below the root of the machine's hierarchy.
func NewCgroup(t testing.TB) *Cgroup {
	t.Helper()
	path, err := cgroup.Create("fairlead-test")
	if err != nil {
		t.Fatal(err)
	}
	c := &Cgroup{path: path}
	t.Cleanup(func() {
		if err := cgroup.Remove(c.path); err != nil {
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
		if err := cgroup.Remove(child.path); err != nil {
			t.Errorf("remove cgroup: %v", err)
		}
	})
	return child
}
