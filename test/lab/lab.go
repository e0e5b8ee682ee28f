// SPDX-License-Identifier: Apache-2.0

// Package lab makes the surroundings that a test of the datapath needs from
// the real kernel: network namespaces that stand for nodes and pods, cgroups,
// BPF file systems, and processes that live in them.
//
// A test names what it wants and gets it, or fails; all of it goes away with
// the test. The package never changes the namespaces, cgroup or mounts that
// the test process itself stands in, and uses no program of the machine's but
// the kernel. It knows nothing of Services; what the processes say to each other
// is package traffic's business.
//
// Tests that use it run as root.
package lab

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// onOwnThread runs fn on a thread that serves nothing else and is destroyed
// when fn is done, so fn may change what belongs to a thread, such as its
// network namespace. It reports whether fn returned, and did not leave by
// runtime.Goexit.
//
// The main thread is held back: the process is known by its namespaces, and
// the Go runtime could not destroy it.
func onOwnThread(fn func()) (returned bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread()
			returned = onOwnThread(fn)
			return
		}
		fn()
		returned = true
	}()
	<-done
	return returned
}
