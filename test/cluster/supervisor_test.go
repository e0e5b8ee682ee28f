// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestAProgramThatEndsIsTheReason(t *testing.T) {
	for name, c := range map[string]struct {
		program string
		args    []string
		want    string
	}{
		"with what it said last":  {"sh", []string{"-c", "echo first; echo last words >&2; exit 3"}, "etcd ended: exit status 3: last words"},
		"although all seems well": {"sh", []string{"-c", "echo bye"}, "etcd ended: exit status 0: bye"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, fail := context.WithCancelCause(t.Context())
			if err := (supervisor{t.TempDir(), fail}).start("etcd", c.program, c.args...); err != nil {
				t.Fatal(err)
			}
			waiting := func(ctx context.Context) error {
				_, err := runCommand(ctx, nil, "sleep", "60")
				return err
			}
			if err := eventually(ctx, time.Minute, "it answers", waiting); err == nil || err.Error() != c.want {
				t.Errorf("the wait ended with %v, want %q", err, c.want)
			}
		})
	}
}

func TestAProgramThatMayBeKilledIsStartedAgain(t *testing.T) {
	ctx, fail := context.WithCancelCause(t.Context())
	s := supervisor{t.TempDir(), fail}
	// It kills itself the first time, and ends otherwise the second.
	err := s.keep("proxy", "sh", "-c", `cd "$0"; if [ -e again ]; then echo again; exit 3; fi; touch again; echo first; kill -9 $$`, s.logs)
	if err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	if got := context.Cause(ctx).Error(); got != "proxy ended: exit status 3: again" {
		t.Errorf("the second end: %s", got)
	}
	if log, err := os.ReadFile(filepath.Join(s.logs, "proxy.log")); err != nil || string(log) != "first\nagain\n" {
		t.Errorf("the log of both: %q, %v", log, err)
	}
}

func TestATaskMayEndWhenItIsAsked(t *testing.T) {
	ctx, fail := context.WithCancelCause(t.Context())
	s := supervisor{t.TempDir(), fail}
	asked, err := s.startTask("asked", "sleep", "60")
	if err != nil {
		t.Fatal(err)
	}
	if err := asked.terminate(); err != nil {
		t.Fatal(err)
	}
	<-asked.done
	if ctx.Err() != nil {
		t.Errorf("the end that was asked for fails the cluster: %v", context.Cause(ctx))
	}
	if _, err := s.startTask("unasked", "sh", "-c", "echo bye"); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	if got := context.Cause(ctx).Error(); got != "unasked ended: exit status 0: bye" {
		t.Errorf("the end that nobody asked for: %s", got)
	}
}

func TestEventually(t *testing.T) {
	refused := errors.New("refused")
	tries := 0
	err := eventually(t.Context(), time.Minute, "it answers", func(context.Context) error {
		if tries++; tries < 2 {
			return refused
		}
		return nil
	})
	if err != nil || tries != 2 {
		t.Errorf("%v after %d tries", err, tries)
	}
	err = eventually(t.Context(), 300*time.Millisecond, "it answers", func(ctx context.Context) error {
		if tries++; tries > 3 {
			<-ctx.Done()
			return ctx.Err()
		}
		return refused
	})
	if !errors.Is(err, refused) || !strings.HasPrefix(err.Error(), "it answers: not within 300ms: refused") {
		t.Errorf("a wait in vain ended with %v, want the last reason", err)
	}
}
