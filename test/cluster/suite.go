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
	"regexp"
	"slices"
	"strings"
	"time"
)

// set is a part of upstream's end-to-end tests.
type set struct {
	name  string
	focus string        // what the names of its specs match
	limit time.Duration // of all its specs together
}

func sets() []set {
	return []set{
		{"services", `\[sig-network\] Services`, 30 * time.Minute},
		{"more", `\[sig-network\] (Connectivity Pod Lifecycle|Conntrack|DNS|EndpointSlice|Endpoints|HostPort|KubeProxy|` +
			`Networking Granular Checks: Services|Proxy|Service CIDRs|Service endpoints latency|Topology Hints|Traffic Distribution)`, 30 * time.Minute},
	}
}

// skipped are specs for other clusters: of clouds, with features switched on,
// or that want a cluster for themselves.
const skipped = `\[Slow\]|\[Disruptive\]|\[Serial\]|\[Feature:|LoadBalancer`

// specProcesses is how many specs run at once. Mostly they wait.
const specProcesses = 6

// findSets takes names with commas between them, in their order; an empty text
// names none.
func findSets(names string) ([]set, error) {
	var found []set
	all := sets()
	for name := range strings.FieldsFuncSeq(names, func(r rune) bool { return r == ',' || r == ' ' }) {
		i := slices.IndexFunc(all, func(s set) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("the set %q is not known; there are %s", name, setNames(all))
		}
		found = append(found, all[i])
	}
	return found, nil
}

func setNames(sets []set) string {
	var names []string
	for _, s := range sets {
		names = append(names, s.name)
	}
	return strings.Join(names, ", ")
}

// report is where the specs of a set leave what they found, as JSON.
func (o options) report(s set) string {
	return filepath.Join(o.reports(), o.proxy.name+"-"+s.name+".json")
}

const (
	progressInterval = 30 * time.Second
	// graceAfterLimit is for the specs to take down what they put up.
	graceAfterLimit = 3 * time.Minute
)

// runSet runs the specs of a set. That some fail is no error here.
func (c *controller) runSet(ctx context.Context, s set) error {
	report := c.report(s)
	output := strings.TrimSuffix(report, ".json") + ".log"
	log, err := os.Create(output)
	if err != nil {
		return err
	}
	defer log.Close()

	limited, cancel := context.WithTimeoutCause(ctx, s.limit+graceAfterLimit, fmt.Errorf("the set %s did not end: see %s", s.name, output))
	defer cancel()
	cmd := exec.CommandContext(limited, c.program("ginkgo"), c.suiteFlags(s, report)...)
	cmd.Stdout, cmd.Stderr = log, log
	done := make(chan error, 1)
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { done <- cmd.Wait() }()

	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	for {
		select {
		case err := <-done:
			if cause := context.Cause(limited); cause != nil {
				return cause
			}
			c.say("%s: %s", s.name, progress(output))
			return checkEnd(err, report, output)
		case <-ticker.C:
			c.say("%s: %s", s.name, progress(output))
		}
	}
}

func (c *controller) suiteFlags(s set, report string) []string {
	focus := s.focus
	if c.focus != "" {
		focus += ".*(" + c.focus + ")"
	}
	return []string{
		fmt.Sprintf("--procs=%d", specProcesses), "--focus=" + focus, "--skip=" + skipped, "--timeout=" + s.limit.String(),
		"--no-color", "--silence-skips", "--output-dir=" + filepath.Dir(report), "--json-report=" + filepath.Base(report),
		c.program("e2e.test"), "--",
		"--provider=local", "--kubeconfig=" + c.kubeconfig(c.admin.name), "--kubectl-path=" + c.program("kubectl"),
		fmt.Sprintf("--num-nodes=%d", nodeCount), "--node-os-distro=debian", "--minStartupPods=0", "--allowed-not-ready-nodes=0",
	}
}

// checkEnd tells specs that failed, which the report says, from a run that did
// not come to a report.
func checkEnd(err error, report, output string) error {
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return err
	}
	if _, statErr := os.Stat(report); statErr != nil {
		return fmt.Errorf("upstream's tests left no report (%s): %s; see %s", outcome(err), lastLine(output), output)
	}
	return nil
}

var (
	willRun = regexp.MustCompile(`(?m)^Will run (\d+) of`)
	// A line of its own for a spec with something to say, a mark for each of
	// the others.
	marks = regexp.MustCompile(`(?m)^([•S]+$|[•S] \[)`)
	fails = regexp.MustCompile(`(?m)^• \[(FAILED|PANICKED|TIMEDOUT|INTERRUPTED|ABORTED)\]`)
)

// progress says how far the specs are, from what their runner wrote so far.
func progress(output string) string {
	text, err := os.ReadFile(output)
	if err != nil {
		return err.Error()
	}
	total := willRun.FindSubmatch(text)
	if total == nil {
		return "the specs are about to start"
	}
	done := 0
	for _, m := range marks.FindAll(text, -1) {
		done += bytes.Count(m, []byte("•")) + bytes.Count(m, []byte("S"))
	}
	return fmt.Sprintf("%d of %s specs done, %d failed", done, total[1], len(fails.FindAll(text, -1)))
}
