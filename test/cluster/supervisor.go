// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"
)

// supervisor starts programs that live as long as the cluster. If one of them
// ends before, it cancels the context with the reason.
type supervisor struct {
	logs string
	fail context.CancelCauseFunc
}

// start starts a program whose log has the given name. The caller may have
// taken its standard output.
func (s supervisor) start(name, program string, args ...string) error {
	return s.startCommand(name, exec.Command(program, args...))
}

func (s supervisor) startCommand(name string, cmd *exec.Cmd) error {
	ended, err := s.launch(name, cmd)
	if err != nil {
		return err
	}
	go func() { s.fail(<-ended) }()
	return nil
}

// keep starts a program, and starts it again whenever it is killed. Any other
// end is a failure, as it is of every program.
func (s supervisor) keep(name, program string, args ...string) error {
	cmd := exec.Command(program, args...)
	ended, err := s.launch(name, cmd)
	if err != nil {
		return err
	}
	go func() {
		reason := <-ended
		if !wasKilled(cmd.ProcessState) {
			s.fail(reason)
			return
		}
		if err := s.keep(name, program, args...); err != nil {
			s.fail(err)
		}
	}()
	return nil
}

func wasKilled(state *os.ProcessState) bool {
	status, ok := state.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// task is a program that may end once it is asked to.
type task struct {
	process *os.Process
	asked   atomic.Bool
	done    chan struct{} // closed when it has ended
}

// startTask starts a program that fails the cluster only if it ends unasked.
func (s supervisor) startTask(name, program string, args ...string) (*task, error) {
	cmd := exec.Command(program, args...)
	ended, err := s.launch(name, cmd)
	if err != nil {
		return nil, err
	}
	t := &task{process: cmd.Process, done: make(chan struct{})}
	go func() {
		if reason := <-ended; !t.asked.Load() {
			s.fail(reason)
		}
		close(t.done)
	}()
	return t, nil
}

// terminate asks the program to end, and does not wait for that.
func (t *task) terminate() error {
	t.asked.Store(true)
	return t.process.Signal(syscall.SIGTERM)
}

// launch starts a program, and tells how it ended. What one of the same name
// said before stays in the log.
func (s supervisor) launch(name string, cmd *exec.Cmd) (ended <-chan error, err error) {
	path := filepath.Join(s.logs, name+".log")
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	if cmd.Stdout == nil {
		cmd.Stdout = log
	}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	end := make(chan error, 1)
	go func() {
		end <- fmt.Errorf("%s ended: %s: %s", name, outcome(cmd.Wait()), lastLine(path))
	}()
	return end, nil
}

func outcome(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}

// lastLine is the last thing that a program said.
func lastLine(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(lines[len(lines)-1])
}

// runCommand runs a program to its end and returns what it printed. If it is
// the context that ends it, the reason is the context's.
func runCommand(ctx context.Context, stdin []byte, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	var out, complaint bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &complaint
	err := cmd.Run()
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return "", cause
	}
	if err != nil {
		return "", fmt.Errorf("%s %q: %w: %s", filepath.Base(program), args, err, bytes.TrimSpace(complaint.Bytes()))
	}
	return out.String(), nil
}

// eventually tries until it works, at most for a time, and not when something
// else has failed.
func eventually(ctx context.Context, limit time.Duration, what string, try func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	last := errors.New("no answer")
	for {
		err := try(limited)
		if err == nil {
			return nil
		}
		if limited.Err() == nil {
			last = err // else it says no more than that there is no time
		}
		select {
		case <-limited.Done():
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("%s: not within %s: %w", what, limit, last)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
