// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/test/rig"
)

// How rows read.
const (
	served     = "forward 100.64.128.7:60002 active"
	retained   = "forward 100.64.128.7:60002 retained"
	unverified = "forward 100.64.128.7:60002 unverified"
	refusing   = "reject"
)

// lockedOut is how long an agent that has locked itself out is watched while
// the API has the endpoint.
const lockedOut = 5 * time.Second

// play is the incident. An agent runs with these flags; its rows read as
// emptied while default/kubernetes has no endpoint; restarted is called when a
// new agent runs and there still is none.
type play struct {
	flags     []string
	emptied   []string
	restarted func()
}

// attempts bounds how often the endpoint may come back before the new agent
// has met the gap. The server that goes on writes it every ten seconds, and has
// just done so when the other one stops.
const attempts = 3

// play returns those who used the API server all the while, once the API has
// the endpoint again and the server that stopped is gone; and what others found
// in earlier attempts, which count as well.
func (s *stage) play(t *testing.T, p play) (all users, earlier []map[string]tally) {
	t.Helper()
	for range attempts {
		all, inTime := s.attempt(t, p)
		if inTime {
			return all, earlier
		}
		earlier = append(earlier, all.report())
	}
	t.Fatalf("the endpoint came back too early for the play, %d times", attempts)
	return nil, nil
}

func (s *stage) attempt(t *testing.T, p play) (all users, inTime bool) {
	t.Helper()
	stopping := s.server
	s.server = s.cluster.AddAPIServer()
	said := follow(t, s.server)
	said.wait(t, true)
	all = s.startUsers(t)

	stopping.TerminateAPIServer()
	said.wait(t, false)
	s.rows(t, own, p.emptied...)
	s.Process.Kill()
	s.Launch(t, p.flags...)
	p.restarted()
	s.cluster.Kubectl("annotate", "service", "kubernetes-intranet", "--overwrite",
		"service.cloud.tencent.com/sync-begin-time="+time.Now().Format(time.RFC3339Nano))
	inTime = said.is(false) == nil

	said.wait(t, true)
	stopping.StopAPIServer()
	return all, inTime
}

// That default/kubernetes is empty for a while takes nobody's way to the API
// server, this agent's included (R40).
func TestIncident(t *testing.T) {
	s := newStage(t)

	t.Run("without guards the agent locks itself out, and those who need that Service with it", func(t *testing.T) {
		agent := s.Program
		s.Program = rig.WithFailpoints(t)
		defer func() { s.Program = agent }()
		t.Setenv("FAIRLEAD_GUARDS_OFF", "exempt,endpoints,retention")
		// It has to be led to the API server once. From then on what it wrote to
		// the kernel leads it there.
		s.Launch(t, "--kubeconfig", s.kubeconfig(t, servers.String()))
		s.Ready(t)
		s.Process.Kill()
		flags := []string{"--kubeconfig", s.kubeconfig(t, serviceAddress)}
		s.Launch(t, flags...)
		s.Ready(t)

		refused := func() {
			rig.Eventually(t, func() error { return s.refusesItself(t.Context()) })
			s.seesItselfRefused(t)
		}
		all, _ := s.play(t, play{flags, []string{refusing}, refused})

		before := all.report()
		for end := time.Now().Add(lockedOut); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			if err := s.refusesItself(t.Context()); err != nil {
				t.Fatalf("%v; want it locked out", err)
			}
		}
		for what, after := range all.report() {
			failed, tried := after.Failed-before[what].Failed, after.tried()-before[what].tried()
			switch wasLost := strings.HasSuffix(what, serviceAddress); {
			case tried == 0:
				t.Errorf("%s tried nothing", what)
			case wasLost && (failed < tried || !strings.Contains(after.First, "connection refused")):
				t.Errorf("%s failed %d times of %d, first with %q; want all refused", what, failed, tried, after.First)
			case !wasLost && after.Failed > 0:
				t.Errorf("%s: %+v; want no failure, for the slice of that Service never changed", what, after)
			}
		}
	})

	flags := []string{
		"--kubeconfig", s.kubeconfig(t, serviceAddress), "--api-server", servers.String(), "--state-file", s.state,
	}
	t.Run("an agent with guards, started on what that one left, heals it", func(t *testing.T) {
		s.Launch(t, flags...)
		s.Ready(t)
		s.isSound(t)
		s.startUsers(t)
	})

	t.Run("with guards nobody notices", func(t *testing.T) {
		s.Launch(t, flags...)
		s.Ready(t)
		all, earlier := s.play(t, play{flags, []string{retained, unverified}, func() {
			s.Ready(t)
			s.rows(t, own, retained)
			s.rows(t, intranet, served)
			s.diff(t)
		}})
		s.isSound(t)
		// The watches that were with the server that stopped are opened again,
		// and all have seen what the controller wrote.
		all.wait(t, func(got tally) bool { return got.Watches > got.Cut && got.Events > objects })
		for _, found := range append(earlier, all.report()) {
			for what, got := range found {
				if got.Failed > 0 || got.Unheld > 0 {
					t.Errorf("%s: %+v; want no failure", what, got)
				}
				t.Logf("%s: %+v", what, got)
			}
		}
	})

	t.Run("without retention those are refused who dial that Service, and the agent is not", func(t *testing.T) {
		flags := append(flags, "--retain-limit", "0")
		s.Launch(t, flags...)
		s.Ready(t)
		all, _ := s.play(t, play{flags, []string{refusing}, func() {
			s.Ready(t)
			s.rows(t, own, refusing)
			s.rows(t, intranet, served)
			s.diff(t)
		}})
		s.isSound(t)
		for what, got := range all.report() {
			if through := strings.HasSuffix(what, serviceAddress); through != (got.Failed > 0) {
				t.Errorf("%s: %+v; want failures only through %s", what, got, serviceAddress)
			}
		}
	})
}

// objects are the Services that a watch of all tells of to begin with.
const objects = 2

// isSound waits until the agent serves what the API says, and is healthy.
func (s *stage) isSound(t *testing.T) {
	t.Helper()
	s.rows(t, own, served)
	s.rows(t, intranet, served)
	s.diff(t)
	rig.Eventually(t, func() error {
		if status := s.Status(t); !status.Healthy || len(status.Retained) > 0 {
			return fmt.Errorf("healthy: %v, it finds %q and retains %+v", status.Healthy, status.Findings, status.Retained)
		}
		return nil
	})
}

// diff runs the command, which must find nothing.
func (s *stage) diff(t *testing.T) {
	t.Helper()
	if out := s.Run(t, 0, "diff"); !strings.HasPrefix(out, "no drift: api = tables = kernel") {
		t.Errorf("diff says %q", out)
	}
}

// seesItselfRefused waits until the agent tells of a refused connection that was
// its own.
func (s *stage) seesItselfRefused(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
	defer cancel()
	events, err := s.API.Events(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for event, err := range events {
		if err != nil {
			t.Fatal(err)
		}
		if int(event.PID) == s.Process.PID() && event.Service == own && event.Action == refusing {
			return
		}
	}
	t.Fatalf("the agent told of no refusal of its own within %s", rig.Patience)
}

// refusesItself says what is missing for the agent to have locked itself out:
// it could not read anything, and the kernel has what refuses it.
func (s *stage) refusesItself(ctx context.Context) error {
	status, err := s.API.Status(ctx)
	if err != nil {
		return err
	}
	if status.PID != s.Process.PID() || status.Synced {
		return fmt.Errorf("process %d answers, synced: %v", status.PID, status.Synced)
	}
	for _, source := range status.SourceState {
		if !strings.Contains(source.Error, "connection refused") {
			return fmt.Errorf("%s: %q", source.Kind, source.Error)
		}
	}
	entries, err := s.API.Kernel(ctx)
	if err != nil {
		return err
	}
	for _, entry := range entries.Entries {
		if api.HostPort(entry.Address, entry.Port) == serviceAddress && entry.Action != refusing {
			return fmt.Errorf("the kernel has %+v", entry)
		}
	}
	return nil
}
