// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// lockPatience is how long a run waits for the janitor of the one before. The
// cgroups are what two clusters would fight for, so that is where they lock.
const lockPatience = 45 * time.Second

// run has the tests run in a cluster of their own, and tells what they said.
func run(ctx context.Context, o options, args []string) error {
	if os.Geteuid() != 0 {
		return errors.New("the cluster takes namespaces and eBPF: run it as root")
	}
	if err := o.check(); err != nil {
		return err
	}
	lock, err := takeLock(ctx, cgroupMount)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := tidy(o.folders); err != nil {
		return fmt.Errorf("tidy up after the run before: %w", err)
	}
	goHome, err := callJanitor(o.folders, lock)
	if err != nil {
		return fmt.Errorf("start the janitor: %w", err)
	}
	err = inNamespaces(ctx, o, args)
	if err := errors.Join(err, goHome()); err != nil {
		return err
	}
	if o.doctor {
		return nil // it has said what it found
	}
	if o.replay.on {
		return publishReplay(o)
	}
	return publish(o)
}

// takeLock makes this the only cluster, after a short wait for one that is
// just ending. The lock is free when the last process that holds the file is
// gone.
func takeLock(ctx context.Context, path string) (*os.File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	err = eventually(ctx, lockPatience, "it is free", func(context.Context) error {
		return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	})
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("a cluster is up on this machine, end it first: lock %s: %w", path, err)
	}
	return file, nil
}

// inNamespaces runs the cluster where it cannot reach the machine, and ends
// all of it when ctx does, or when this process is killed: the kernel ends
// what is in a PID namespace with its process 1.
func inNamespaces(ctx context.Context, o options, args []string) error {
	if err := makeFolders(o.folders); err != nil {
		return err
	}
	if err := copyProgram(o.fairlead(), o.built()); err != nil {
		return err
	}
	if err := raiseLimits(o.folders); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", append([]string{"init", "-cache", o.cache}, args...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		Setsid:     true, // Ctrl-C is for us, not for every program in there
		Pdeathsig:  syscall.SIGKILL,
	}
	// To the kernel, the thread is the parent whose death counts.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Run()
	if ctx.Err() != nil && o.waits() {
		return nil // there is no other end
	}
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	if err != nil {
		return fmt.Errorf("the cluster did not do: %w; logs are in %s", err, o.logs())
	}
	return nil
}

func makeFolders(f folders) error {
	for _, folder := range []string{f.logs(), f.reports()} {
		if err := os.RemoveAll(folder); err != nil {
			return err
		}
	}
	for _, folder := range []string{f.run(), f.logs(), f.reports()} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	return nil
}

func copyProgram(to, from string) error {
	program, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, program, 0o755)
}
