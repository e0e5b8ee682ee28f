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
	path := filepath.Join(s.logs, name+".log")
	log, err := os.Create(path)
	if err != nil {
		return err
	}
	defer log.Close()
	if cmd.Stdout == nil {
		cmd.Stdout = log
	}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		s.fail(fmt.Errorf("%s ended: %s: %s", name, outcome(cmd.Wait()), lastLine(path)))
	}()
	return nil
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
