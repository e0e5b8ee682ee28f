// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// tunables are the settings of the whole machine that every kubelet changes.
// Those of the cluster change copies.
var tunables = []string{
	"vm/overcommit_memory", "vm/panic_on_oom",
	"kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

// initialize is process 1: it makes the namespaces a place to live in, starts
// control, and takes leave of those whose parents are gone, such as the shims
// of containers.
func initialize(args []string) error {
	if os.Getpid() != 1 {
		return errors.New("this part is not for people: it wants to be process 1")
	}
	if err := furnishMachine(); err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe", append([]string{"control"}, args...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("wait for control: %w", err)
		case pid == cmd.Process.Pid:
			// It has said what there is to say.
			os.Exit(exitStatus(status))
		}
	}
}

func exitStatus(status unix.WaitStatus) int {
	if status.Exited() {
		return status.ExitStatus()
	}
	return exitBroken
}

// furnishMachine changes mounts that nobody outside sees.
func furnishMachine() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("part from the machine's mounts: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	copies, err := os.MkdirTemp("", "fairlead-e2e-")
	if err != nil {
		return err
	}
	defer os.Remove(copies)
	if err := unix.Mount("tmpfs", copies, "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount a tmpfs: %w", err)
	}
	// The copies live on where they are bound.
	defer unix.Unmount(copies, unix.MNT_DETACH)
	for _, name := range tunables {
		if err := bindCopy(filepath.Join("/proc/sys", name), copies); err != nil {
			return fmt.Errorf("hide %s: %w", name, err)
		}
	}
	return nil
}

func bindCopy(path, folder string) error {
	value, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	dup := filepath.Join(folder, filepath.Base(path))
	if err := os.WriteFile(dup, value, 0o644); err != nil {
		return err
	}
	return unix.Mount(dup, path, "", unix.MS_BIND, "")
}

// checkSealed refuses to act outside the namespaces that init holds.
func checkSealed() error {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	if first, err := os.Readlink("/proc/1/exe"); err != nil || first != self {
		return errors.New("this part is not for people: init starts it")
	}
	return nil
}
