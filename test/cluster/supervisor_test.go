// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
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
