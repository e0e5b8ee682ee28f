// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/cgroup"
)

const cgroupMount = "/sys/fs/cgroup"

// cgroupName is that of the cluster's cgroup; each node has one below it.
const cgroupName = "fairlead-e2e"

// hierarchies returns the roots of all cgroup hierarchies: a single one, or
// version 1's controllers each with its own beside version 2's.
func hierarchies() ([]string, error) {
	if _, err := os.Stat(filepath.Join(cgroupMount, "cgroup.controllers")); err == nil {
		return []string{cgroupMount}, nil
	}
	entries, err := os.ReadDir(cgroupMount)
	if err != nil {
		return nil, fmt.Errorf("find the cgroup hierarchies: %w", err)
	}
	var roots []string
	for _, e := range entries {
		if e.IsDir() { // others are links to these
			roots = append(roots, filepath.Join(cgroupMount, e.Name()))
		}
	}
	return roots, nil
}

// nodeCgroup is how the kubelet of a node names the node's cgroup.
func nodeCgroup(node string) string { return "/" + cgroupName + "/" + node }

// proxyCgroup is the folder of the node's cgroup in the hierarchy to which
// eBPF programs are attached.
func proxyCgroup(node string) (string, error) {
	root, err := cgroup.Root()
	return filepath.Join(root, nodeCgroup(node)), err
}

// joinCgroup moves this process, and so what it starts, to a leaf of the
// node's cgroup, beside those of the pods.
func joinCgroup(node string) error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		leaf, err := makeLeaf(root, node)
		if err != nil {
			return fmt.Errorf("make a cgroup for node %s in %s: %w", node, root, err)
		}
		if err := os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
			return fmt.Errorf("join the cgroup %s: %w", leaf, err)
		}
	}
	return nil
}

func makeLeaf(root, node string) (leaf string, err error) {
	cluster := filepath.Join(root, cgroupName)
	leaf = filepath.Join(cluster, node, "system")
	for _, path := range []string{cluster, filepath.Dir(leaf), leaf} {
		if err := makeCgroup(path); err != nil {
			return "", err
		}
	}
	if root != cgroupMount {
		return leaf, nil // version 1, or a version 2 that controls nothing
	}
	if err := enableControllers(root); err != nil {
		return "", err
	}
	return leaf, enableControllers(cluster)
}

// enableControllers gives the children of a cgroup of version 2 all the
// controllers that it has itself, for a kubelet wants to find them in its own.
func enableControllers(path string) error {
	names, err := os.ReadFile(filepath.Join(path, "cgroup.controllers"))
	if err != nil {
		return err
	}
	var enable strings.Builder
	for name := range strings.FieldsSeq(string(names)) {
		enable.WriteString("+" + name + " ")
	}
	return os.WriteFile(filepath.Join(path, "cgroup.subtree_control"), []byte(enable.String()), 0)
}

// makeCgroup gives a new one of version 1's cpuset what its parent has, for an
// empty set takes no process.
func makeCgroup(path string) error {
	if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if !isCpusetV1(path) {
		return nil
	}
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		inherited, err := os.ReadFile(filepath.Join(filepath.Dir(path), name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(path, name), inherited, 0); err != nil {
			return err
		}
	}
	return nil
}

// isCpusetV1 knows version 1 by a file that version 2 does not have.
func isCpusetV1(path string) bool {
	_, err := os.Stat(filepath.Join(path, "cpuset.memory_migrate"))
	return err == nil
}

// removeCgroups removes the cluster's cgroups as soon as nothing lives there.
func removeCgroups() error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		if err := removeTree(filepath.Join(root, cgroupName)); err != nil {
			return fmt.Errorf("remove cgroups: %w", err)
		}
	}
	return nil
}

func removeTree(root string) error {
	var folders []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			folders = append(folders, path)
		}
		return ignoreGone(err)
	})
	if err != nil {
		return err
	}
	slices.Reverse(folders) // children before their parents
	for _, folder := range folders {
		if err := removeEmpty(folder); err != nil {
			return err
		}
	}
	return nil
}

func removeEmpty(folder string) error {
	for end := time.Now().Add(tidyTimeout); ; time.Sleep(20 * time.Millisecond) {
		err := ignoreGone(os.Remove(folder))
		if !errors.Is(err, unix.EBUSY) || time.Now().After(end) {
			return err
		}
	}
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
