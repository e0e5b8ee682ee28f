// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// quiet heals every fault, waits until all is well, and makes sure of it.
func (w *world) quiet() {
	w.t.Helper()
	for len(w.active) > 0 {
		w.takeActive(func(int) int { return 0 }).heal()
	}
	if !w.agentRuns() {
		w.launch()
	}
	began := time.Now()
	for {
		err := w.well()
		if err == nil {
			break
		}
		if time.Since(began) > patience {
			w.t.Fatalf("%s after all faults have ended: %v", patience, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	w.report.healed(time.Since(began))
	for command, want := range map[string]string{"diff": "no drift: api = tables = kernel", "status": ""} {
		if out := w.agent.Run(w.t, 0, command); !strings.HasPrefix(out, want) {
			w.t.Fatalf("%s says %q", command, out)
		}
	}
	w.ledger.settle()
	w.turned = false
	w.expectRounds()
}

// well says what is not yet as it must be.
func (w *world) well() error {
	if err := w.alive(); err != nil {
		return err
	}
	status, err := w.agent.API.Status(w.t.Context())
	if err != nil {
		return err
	}
	if status.PID != w.agent.Process.PID() || !status.Healthy {
		return fmt.Errorf("process %d is healthy: %v, with findings %q; want process %d", status.PID, status.Healthy, status.Findings, w.agent.Process.PID())
	}
	if err := w.agent.Drift(w.t); err != nil {
		return err
	}
	if err := w.asWritten(); err != nil {
		return err
	}
	if w.remembers() {
		w.tampered = false
	} else if !w.tampered {
		return fmt.Errorf("%s does not remember default/kubernetes", w.agent.StateFile)
	}
	return w.reachesAPI()
}

// alive says whether the agent has ended by itself.
func (w *world) alive() error {
	if !w.agentRuns() {
		return nil
	}
	select {
	case <-w.agent.Process.Done():
		return fmt.Errorf("the agent has ended:\n%s", w.agent.Process.Stderr())
	default:
		return nil
	}
}

// asWritten compares the kernel with all that the test has written.
func (w *world) asWritten() error {
	watcher := w.newWatcher()
	entries, err := watcher.contents()
	if err != nil {
		return err
	}
	for name, usable := range w.ledger.wanted() {
		if name == apiKey {
			continue // it is no Service
		}
		if len(usable) > 0 && len(entries[name]) != frontends(name) {
			return fmt.Errorf("%s has %d frontends in the kernel, want %d", name, len(entries[name]), frontends(name))
		}
		for _, e := range entries[name] {
			if servers := watcher.servers(e); !slices.Equal(servers, usable) || e.Problem != "" {
				return fmt.Errorf("%s at %s port %d/%s has the backends %q in the kernel, want %q; %s", name, e.Address, e.Port, e.Protocol, servers, usable, e.Problem)
			}
		}
	}
	return nil
}

// reachesAPI says whether a pod reaches the API server by its Service.
func (w *world) reachesAPI() error {
	var err error
	w.write("read default/kubernetes", func(ctx context.Context, c kubernetes.Interface) error {
		slice, failed := c.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
		if failed == nil && len(slice.Endpoints) == 0 {
			err = errors.New("default/kubernetes has no endpoints yet")
		}
		return failed
	})
	if err != nil {
		return err
	}
	if reply := w.connectAPI(); reply.Error != "" {
		return fmt.Errorf("a pod connects to default/kubernetes: %s", reply)
	}
	return nil
}

// expectRounds waits until every client has used all that it holds after now.
func (w *world) expectRounds() {
	w.t.Helper()
	for _, c := range w.clients {
		began, deadline := c.rounds.Load(), time.Now().Add(patience)
		for c.rounds.Load() < began+2 {
			if time.Now().After(deadline) {
				w.t.Fatalf("client %s hangs", c.name)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}
