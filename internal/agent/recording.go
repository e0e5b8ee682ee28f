// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/apiserver"
	"github.com/fairlead-io/fairlead/internal/recorder"
)

// recordAgain is how long after a recorder has failed the next one begins.
const recordAgain = 30 * time.Second

// recording is the recorder within an agent. Whatever becomes of it, the agent
// goes on.
type recording struct {
	recorder *recorder.Recorder
	log      *slog.Logger
	again    time.Duration

	mu     sync.Mutex
	failed error // why no recorder runs at present
}

// newRecording returns nothing if nothing is to be recorded. It asks where the
// agent asks.
func newRecording(cfg Config, client *apiserver.Client, log *slog.Logger) (*recording, error) {
	if cfg.Journal == "" {
		return nil, nil
	}
	bounds := cfg.JournalBounds
	bounds.Server, bounds.Recorder = client.String(), "fairlead agent "+cfg.Version+" on "+cfg.NodeName
	r, err := recorder.New(recorder.Config{
		REST: client.REST(), Found: client.Found, Path: cfg.Journal, Journal: bounds, Log: log.With("part", "recorder"),
	})
	if err != nil {
		return nil, err
	}
	return &recording{recorder: r, log: log, again: recordAgain}, nil
}

// record is the part that records, if there is to be one.
func (a *Agent) record() []func(context.Context) error {
	if a.recording == nil {
		return nil
	}
	return []func(context.Context) error{a.recording.run}
}

// run never fails, or it would end the agent.
func (r *recording) run(ctx context.Context) error {
	for ctx.Err() == nil {
		err := r.recorder.Run(ctx)
		r.note(err)
		if err != nil && !wait(ctx, r.again) {
			break
		}
	}
	return nil
}

func (r *recording) note(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && (r.failed == nil || r.failed.Error() != err.Error()) {
		r.log.Error("nothing is recorded; Services are served all the same; will try again", "error", err)
	}
	r.failed = err
}

// status is nil if nothing is to be recorded.
func (r *recording) status() *api.Recording {
	if r == nil {
		return nil
	}
	now := r.recorder.Status()
	s := &api.Recording{Journal: now.Path, Kinds: len(now.Kinds), Objects: now.Objects, Events: now.Events, Gaps: now.Gaps, NotFollowed: []string{}}
	for _, k := range now.Kinds {
		if k.Trouble != nil {
			s.NotFollowed = append(s.NotFollowed, fmt.Sprintf("%s: %v", k.Name, k.Trouble))
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Trouble != nil {
		s.Error = now.Trouble.Error()
	}
	if r.failed != nil && !now.Running {
		s.Error = r.failed.Error()
	}
	return s
}

// addRecording says what to know of the recorder. A proxy is well without one.
func addRecording(s *api.Status, r *recording) {
	s.Recording = r.status()
	if s.Recording == nil {
		return
	}
	if s.Recording.Error != "" {
		s.Findings = append(s.Findings, "nothing is recorded at present: "+s.Recording.Error)
	}
	if n := len(s.Recording.NotFollowed); n > 0 {
		s.Findings = append(s.Findings, fmt.Sprintf("%d kinds are not recorded (what the recorder may read is in deploy/recorder.yaml), first %s", n, s.Recording.NotFollowed[0]))
	}
}
