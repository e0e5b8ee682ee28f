// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"testing"

	"golang.org/x/sys/unix"
)

// NewBPFFS mounts a BPF file system of the test's own and returns its folder.
// What is pinned there is gone after the test.
func NewBPFFS(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("bpf", dir, "bpf", 0, ""); err != nil {
		t.Fatalf("mount a BPF file system on %s: %v (tests of the datapath run as root)", dir, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}
