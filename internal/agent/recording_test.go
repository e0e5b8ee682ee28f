// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/apiserver"
	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/recorder"
	"github.com/fairlead-io/fairlead/test/kube"
)

// written is a log that several goroutines write.
type written struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *written) count(words string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Count(w.text.String(), words)
}

// soon waits for the recorder's status.
func (r *recording) soon(t *testing.T, is func(api.Recording) bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(*r.status()); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still %+v", *r.status())
		}
	}
}

// TestAPanicOfTheRecorderNeverEndsTheAgent has it panic as it begins.
func TestAPanicOfTheRecorderNeverEndsTheAgent(t *testing.T) {
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	r, err := recorder.New(recorder.Config{
		REST: &rest.Config{Host: "http://127.0.0.1:1"}, Found: func() <-chan struct{} { panic("on purpose") },
		Path: filepath.Join(t.TempDir(), "journal.db"), Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	a := &Agent{recording: &recording{recorder: r, log: log, again: time.Minute}}
	a.follows(t, a.record()...)
	a.recording.soon(t, func(r api.Recording) bool {
		return strings.Contains(r.Error, "a defect, which the log shows: report it: on purpose")
	})
	s := api.Status{Healthy: true}
	if addRecording(&s, a.recording); !s.Healthy || len(s.Findings) != 1 {
		t.Errorf("healthy: %v, %q", s.Healthy, s.Findings)
	}
}

// TestARecorderNeverEndsTheAgent gives it a file that cannot be a journal, and a
// user who may read next to nothing.
func TestARecorderNeverEndsTheAgent(t *testing.T) {
	cluster := kube.Start(t)
	cluster.Kubectl("apply", "-f", "../../deploy/rbac.yaml")
	cluster.Kubectl("create", "clusterrolebinding", "limited", "--clusterrole=fairlead", "--user="+kube.Limited)
	client, err := apiserver.New(apiserver.Config{Kubeconfig: cluster.LimitedKubeconfig})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	a := &Agent{}
	path := filepath.Join(t.TempDir(), "journal")
	if err := os.WriteFile(path, []byte("something else, and long enough to be told from nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	log := &written{}
	a.recording, err = newRecording(Config{Journal: path, JournalBounds: journal.Options{MaxBytes: 64 << 20}, NodeName: "n1"}, client, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	a.recording.again = 50 * time.Millisecond
	a.follows(t, append(a.record(), client.Run)...)

	t.Run("a file of something else is a finding, said once, and the agent is well", func(t *testing.T) {
		a.recording.soon(t, func(r api.Recording) bool { return r.Error != "" })
		s := api.Status{Healthy: true}
		addRecording(&s, a.recording)
		if !s.Healthy || len(s.Findings) != 1 || !strings.Contains(s.Findings[0], "it is not a journal") {
			t.Errorf("healthy: %v, %q", s.Healthy, s.Findings)
		}
		time.Sleep(10 * a.recording.again)
		if n := log.count("nothing is recorded"); n != 1 {
			t.Errorf("said %d times", n)
		}
	})
	t.Run("once the file is gone it records what it may, and says what it may not", func(t *testing.T) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		a.recording.soon(t, func(r api.Recording) bool { return r.Error == "" && r.Events > 0 && len(r.NotFollowed) >= 6 })
		s := api.Status{Healthy: true}
		addRecording(&s, a.recording)
		want := fmt.Sprintf("%d kinds are not recorded", len(s.Recording.NotFollowed))
		if !s.Healthy || len(s.Findings) != 1 || !strings.Contains(s.Findings[0], want) || !strings.Contains(s.Findings[0], "deploy/recorder.yaml") {
			t.Errorf("healthy: %v, %q", s.Healthy, s.Findings)
		}
	})
}
