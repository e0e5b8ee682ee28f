// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// namespace is an open network namespace.
type namespace struct {
	inode uint32
	file  *os.File
}

func (n namespace) String() string { return fmt.Sprintf("network namespace net:[%d]", n.inode) }

// do runs f in the namespace, on a thread that ends with it.
func (n namespace) do(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: nobody else is to find himself there
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter the namespace (this takes CAP_SYS_ADMIN): %w", err)
			return
		}
		done <- f()
	}()
	return <-done
}

// namespaces are open network namespaces by inode.
type namespaces map[uint32]namespace

func (all namespaces) close() {
	for _, n := range all {
		n.file.Close()
	}
}

// openNamespaces opens those of the wanted namespaces in which a process of
// /proc lives; in a pod these are all of the node's processes only with
// hostPID. Others are left out.
func openNamespaces[V any](wanted map[uint32]V) (namespaces, error) {
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list the processes: %w", err)
	}
	found := namespaces{}
	missing := func(inode uint32) bool {
		_, ok := wanted[inode]
		_, have := found[inode]
		return ok && !have
	}
	for _, process := range processes {
		if len(found) == len(wanted) {
			break
		}
		if _, err := strconv.Atoi(process.Name()); err != nil {
			continue
		}
		// What fails is of a process that has ended, or is out of our reach.
		path := filepath.Join("/proc", process.Name(), "ns/net")
		var st unix.Stat_t
		if unix.Stat(path, &st) != nil || !missing(uint32(st.Ino)) {
			continue
		}
		file, err := os.Open(path)
		if err != nil {
			continue
		}
		// Another process may have the number by now.
		if unix.Fstat(int(file.Fd()), &st) != nil || !missing(uint32(st.Ino)) {
			file.Close()
			continue
		}
		found[uint32(st.Ino)] = namespace{uint32(st.Ino), file}
	}
	return found, nil
}
