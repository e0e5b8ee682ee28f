// SPDX-License-Identifier: Apache-2.0

// Package demo shows Fairlead at work on one machine, without a cluster: a real
// agent on a scratch cgroup, real servers behind real addresses, connections
// through VIPs, and the first incident played against it.
//
// Everything happens in namespaces that end with the demo, so no packet can
// leave the machine and nothing stays behind.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/cgroup"
)

// stageVariable tells the program that it is the demo's inside.
const stageVariable = "FAIRLEAD_DEMO_INSIDE"

// Inside says whether this process is the part of the demo that Run started
// in namespaces of its own, and that Play is to be called.
func Inside() bool { return os.Getenv(stageVariable) != "" }

// Run makes a scratch cgroup and namespaces, plays the demo in them, and takes
// all of it away again, however the demo ends. The demo is this program with
// the arguments, in which Inside is true. The error says what went wrong, and is
// ErrNotAsTold if it was the demo.
func Run(ctx context.Context, out, errOut io.Writer, args ...string) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("the demo loads eBPF programs and makes namespaces: run it as root")
	}
	// The inside is to die with the thread that started it: keep that thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	work, err := os.MkdirTemp("", "fairlead-demo-")
	if err != nil {
		return fmt.Errorf("make a folder for the demo: %w", err)
	}
	// It goes last: whoever writes to it has ended with the cgroup.
	defer os.RemoveAll(work)
	scratch, err := cgroup.Create("fairlead-demo")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cgroup.Remove(scratch)) }()
	folder, err := os.Open(scratch)
	if err != nil {
		return fmt.Errorf("open the scratch cgroup: %w", err)
	}
	defer folder.Close()

	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program's file: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), stageVariable+"="+work, "FAIRLEAD_DEMO_CGROUP="+scratch)
	cmd.Stdout, cmd.Stderr = out, errOut
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWNET | unix.CLONE_NEWNS,
		UseCgroupFD: true, CgroupFD: int(folder.Fd()),
		Pdeathsig: syscall.SIGKILL,
		// A group of its own: Ctrl-C comes to this process, which ends that one.
		Setpgid: true,
	}
	err = cmd.Run()
	if ctx.Err() != nil {
		return errors.New("interrupted: everything the demo made is removed")
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return ErrNotAsTold
	}
	if err != nil {
		return fmt.Errorf("start the demo in its namespaces: %w", err)
	}
	return nil
}

// ErrNotAsTold says that a demo did not go as it should. It has said what went
// wrong.
var ErrNotAsTold = errors.New("the demo did not go as it should: what went wrong stands above")
