// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/test/lab"
)

// stage is a real agent on a scratch cgroup, a BPF file system and a folder of
// manifests of the test's own.
type stage struct {
	manifests, pinPath string
	cgroup             *lab.Cgroup
}

func newStage(t *testing.T) stage {
	t.Helper()
	folder := t.TempDir()
	s := stage{
		manifests: filepath.Join(folder, "manifests"),
		pinPath:   filepath.Join(lab.NewBPFFS(t), "fairlead"),
		cgroup:    lab.NewCgroup(t),
	}
	if err := os.CopyFS(s.manifests, os.DirFS(examplesDir)); err != nil {
		t.Fatal(err)
	}
	t.Setenv(socketEnv, filepath.Join(folder, "agent.sock"))
	return s
}

// output collects what a command prints while it runs.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// running is a command that goes on until it is interrupted.
type running struct {
	out, err output
	cancel   context.CancelFunc
	status   chan int
}

func start(t *testing.T, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{cancel: cancel, status: make(chan int, 1)}
	go func() {
		r.status <- Main(ctx, append([]string{"fairlead"}, args...), strings.NewReader(""), &r.out, &r.err)
	}()
	t.Cleanup(cancel)
	return r
}

// interrupt ends the command as Ctrl-C does, which is no failure.
func (r *running) interrupt(t *testing.T) {
	t.Helper()
	r.cancel()
	select {
	case status := <-r.status:
		if status != exitFine {
			t.Errorf("an interrupted command left exit status %d: %s", status, r.err.String())
		}
	case <-time.After(10 * time.Second):
		t.Fatal("an interrupted command goes on")
	}
}

func (s stage) startAgent(t *testing.T, more ...string) *running {
	t.Helper()
	args := []string{"agent", "--node-name", kernelNode, "--manifests", s.manifests,
		"--pin-path", s.pinPath, "--cgroup", s.cgroup.Path(), "--cluster-cidr", "10.0.0.0/16",
		// The agent runs beside the tests, where the devices are the machine's.
		"--packet-path", "off",
		// The machine is not the test's to listen on: these are none of its addresses.
		"--nodeport-addresses", "192.0.2.0/24,2001:db8::/32", "--healthz-bind-address", "", "--metrics-bind-address", "", "--conntrack-tcp-timeout-close-wait", "0"}
	r := start(t, append(args, more...)...)
	eventually(t, "the agent is healthy", func() bool {
		status, _, _ := fairlead(t, "", "status")
		return status == exitFine
	})
	return r
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

// expect runs a command against the agent and looks for words in what it says.
func expect(t *testing.T, want int, words []string, args ...string) {
	t.Helper()
	status, out, errOut := fairlead(t, "", args...)
	if status != want {
		t.Errorf("fairlead %s: exit status %d, want %d: %s", strings.Join(args, " "), status, want, errOut)
	}
	for _, word := range words {
		if !strings.Contains(out, word) {
			t.Errorf("fairlead %s: no %q in\n%s", strings.Join(args, " "), word, out)
		}
	}
}

func TestAnAgentAnswersEveryCommand(t *testing.T) {
	s := newStage(t)
	agent := s.startAgent(t)

	expect(t, exitFine, []string{"Healthy:", "yes", s.pinPath, "fairlead_frontends"}, "status", "-o", "wide")
	expect(t, exitFine, []string{"shop/web", "http=80/TCP"}, "get", "services", "-n", "shop")
	expect(t, exitFine, []string{"10.96.0.80:80/TCP", "forward", "10.0.1.7:8080,10.0.2.7:8080", "Done"}, "get", "frontends", "shop/web")
	expect(t, exitFine, []string{"held by team-b/relay"}, "get", "frontends", "team-a/mail", "-o", "wide")
	expect(t, exitFine, []string{"10.0.1.7:8080/TCP", "active"}, "get", "backends", "shop/web")
	expect(t, exitFine, []string{"10.96.0.80:80/TCP", "internal"}, "get", "kernel", "--pin-path", s.pinPath)
	expect(t, exitFine, []string{"Service shop/web", "EndpointSlice shop/web-q8d2k", "generation 1", "verdict", "Transitions"}, "explain", "shop/web")
	expect(t, exitFine, []string{"Service kube-system/kube-dns"}, "explain", "10.96.0.10:53/UDP")
	expect(t, exitFailed, nil, "explain", "shop/absent")
	expect(t, exitFailed, nil, "release", "shop/web")
	expect(t, exitFine, []string{"forward to 10.0.1.7:8080 or 10.0.2.7:8080"}, "trace", "--from", "10.0.1.20", "--to", "10.96.0.80:80")
	expect(t, exitFine, []string{"no drift: api = tables = kernel ("}, "diff", "--pin-path", s.pinPath)
	expect(t, exitFine, []string{"no drift: api = tables = kernel ("}, "diff", "--pin-path", s.pinPath, "-f", s.manifests)

	agent.interrupt(t)
	expect(t, exitFailed, nil, "status")
	expect(t, exitFine, []string{"10.96.0.80:80/TCP"}, "get", "kernel", "--pin-path", s.pinPath)

	s.startAgent(t).interrupt(t)
	expect(t, exitFine, []string{"10.96.0.80:80/TCP"}, "get", "kernel", "--pin-path", s.pinPath)
}

func TestAWatchFollowsTheAgent(t *testing.T) {
	s := newStage(t)
	agent := s.startAgent(t)
	defer agent.interrupt(t)
	watch := start(t, "get", "frontends", "-w", "shop/web")
	eventually(t, "the watch shows the first backends", func() bool { return strings.Contains(watch.out.String(), "10.0.2.7:8080") })

	file := filepath.Join(s.manifests, "clusterip.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, bytes.ReplaceAll(text, []byte("10.0.2.7"), []byte("10.0.2.70")), 0o644); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the watch shows the changed backends", func() bool { return strings.Contains(watch.out.String(), "10.0.2.70:8080") })
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the watch says that the row is gone", func() bool { return strings.Contains(watch.out.String(), "(gone)") })
	watch.interrupt(t)
	if headers := strings.Count(watch.out.String(), "ADDRESS"); headers != 1 {
		t.Errorf("%d headers in\n%s", headers, watch.out.String())
	}
}

func TestAStatusWatchPrintsOnlyChanges(t *testing.T) {
	s := newStage(t)
	agent := s.startAgent(t)
	defer agent.interrupt(t)
	watch := start(t, "status", "-w")
	pages := func() int { return strings.Count(watch.out.String(), "Healthy:") }
	eventually(t, "the watch shows the status", func() bool { return pages() == 1 })
	if err := os.Remove(filepath.Join(s.manifests, "sctp.yaml")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the watch shows that a Service went", func() bool { return pages() >= 2 })
	watch.interrupt(t)
}

func TestMonitorShowsARefusedConnection(t *testing.T) {
	s := newStage(t)
	agent := s.startAgent(t)
	defer agent.interrupt(t)
	monitor := start(t, "monitor", "-o", "json", "--service", "shop/idle")
	eventually(t, "a refused connection shows", func() bool {
		// The shell's own words about it are of no interest here.
		_ = lab.Place{Cgroup: s.cgroup}.Start(t, "bash", "-c", "exec 3<>/dev/tcp/10.96.0.95/80").Wait()
		return strings.Contains(monitor.out.String(), "\n")
	})
	monitor.interrupt(t)
	line, _, _ := strings.Cut(monitor.out.String(), "\n")
	var event api.Event
	if err := json.Unmarshal([]byte(line), &event); err != nil {
		t.Fatal(err)
	}
	if event.Event != api.EventRefused || event.Address != "10.96.0.95" || event.Port != 80 || event.Service != "shop/idle" || event.Action != "reject" {
		t.Errorf("got %s", line)
	}
}
