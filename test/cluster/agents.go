// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/test/cluster/judge"
)

const (
	lookInterval = 50 * time.Millisecond
	lookTimeout  = time.Second
	// agentTimeout is for an agent that starts.
	agentTimeout = time.Minute
)

// agents are the Fairlead agents of all nodes, seen from control.
type agents struct {
	nodes    map[string]int // each node's first process, by its name
	fairlead string

	mu    sync.Mutex
	looks []judge.Look
	saw   map[string]judge.Saw // the last of them
}

func newAgents(nodes map[string]int, fairlead string) *agents {
	return &agents{nodes: nodes, fairlead: fairlead, saw: map[string]judge.Saw{}}
}

func (a *agents) names() []string { return slices.Sorted(maps.Keys(a.nodes)) }

// client asks the agent of a node, whose files are those of its first process.
func (a *agents) client(node string) *api.Client {
	return api.NewClient(fmt.Sprintf("/proc/%d/root%s", a.nodes[node], api.DefaultSocket))
}

// watch looks at the row of default/kubernetes on each node, all the time.
func (a *agents) watch(ctx context.Context) {
	for _, node := range a.names() {
		client := a.client(node)
		go func() {
			for ticker := time.NewTicker(lookInterval); ; {
				a.look(ctx, node, client)
				select {
				case <-ctx.Done():
					return
				case <-ticker.C:
				}
			}
		}()
	}
}

func (a *agents) look(ctx context.Context, node string, client *api.Client) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	look := judge.Look{Node: node, Time: time.Now(), Saw: judge.SawNobody}
	if rows, err := client.Frontends(ctx); err == nil {
		look.Saw = whatIsSeen(rows)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.looks = append(a.looks, look)
	a.saw[node] = look.Saw
}

// whatIsSeen reads the row of the ClusterIP of default/kubernetes.
func whatIsSeen(rows []api.Frontend) judge.Saw {
	i := slices.IndexFunc(rows, func(r api.Frontend) bool { return r.Service == "default/kubernetes" && r.Type == "ClusterIP" })
	if i < 0 {
		return judge.SawNothing
	}
	if len(rows[i].Backends) == 0 {
		return judge.SawRefusing
	}
	has := func(state string) bool {
		return slices.ContainsFunc(rows[i].Backends, func(b api.Backend) bool { return b.State == state })
	}
	switch {
	case has("unverified"):
		return judge.SawUnverified
	case has("retained"):
		return judge.SawRetained
	}
	return judge.SawForwarding
}

// allSee says whether that is what was seen last on each node.
func (a *agents) allSee(saw judge.Saw) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, node := range a.names() {
		if a.saw[node] != saw {
			return false
		}
	}
	return true
}

func (a *agents) allLooks() []judge.Look {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.looks)
}

// processes are those of the agents, by node.
func (a *agents) processes(ctx context.Context) (map[string]int, error) {
	found := map[string]int{}
	for _, node := range a.names() {
		status, err := a.client(node).Status(ctx)
		if err != nil {
			return nil, fmt.Errorf("ask the agent of %s: %w", node, err)
		}
		found[node] = status.PID
	}
	return found, nil
}

// replace kills the agents, and returns once others are at work.
func (a *agents) replace(ctx context.Context, before map[string]int) error {
	for node, pid := range before {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			return fmt.Errorf("kill the agent of %s: %w", node, err)
		}
	}
	return eventually(ctx, agentTimeout, "other agents are at work", func(ctx context.Context) error {
		return a.follow(ctx, before)
	})
}

// follow says whether each node has an agent other than before, which knows
// what the API has.
func (a *agents) follow(ctx context.Context, before map[string]int) error {
	for _, node := range a.names() {
		status, err := a.client(node).Status(ctx)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", node, err)
		case status.PID == before[node]:
			return fmt.Errorf("%s: the agent is still the one before", node)
		case !status.Synced:
			return fmt.Errorf("%s: the agent does not know the objects yet", node)
		}
	}
	return nil
}

// complaint is what an agent and its kernel say that is not right; mostly it
// is empty.
func (a *agents) complaint(ctx context.Context, node string) string {
	status, err := a.client(node).Status(ctx)
	switch {
	case err != nil:
		return err.Error()
	case !status.Healthy:
		return "the agent is not healthy: " + strings.Join(status.Findings, "; ")
	}
	diff := exec.CommandContext(ctx, "nsenter", "--target="+strconv.Itoa(a.nodes[node]), "--mount", "--net", "--uts", "--", a.fairlead, "diff")
	if out, err := diff.CombinedOutput(); err != nil {
		return fmt.Sprintf("diff: %v: %s", err, strings.TrimSpace(string(out)))
	}
	return ""
}
