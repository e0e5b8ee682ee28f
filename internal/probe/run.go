// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/cgroup"
)

// wholeTime bounds a run, with whatever hangs in it.
const wholeTime = 6 * time.Second

// Options say from where to try, and where the data plane is.
type Options struct {
	Targets []Target
	// Backends are how many each Service has in all: see Wanted.
	Backends map[string]int
	// Host is a path to the host's network namespace; "" is that of the caller.
	Host string
	// Pods are other namespaces from which to try.
	Pods []Namespace
	// Cgroup is the one to which the data plane's programs are attached; "" is the
	// root of the hierarchy.
	Cgroup string
	// PinPath is where Fairlead's maps are pinned; "" if it does not run here.
	PinPath string
	// Program is a command line that calls Serve with its standard input and
	// output.
	Program []string
}

// Namespace is a network namespace to try from.
type Namespace struct {
	Name string // pod NAMESPACE/NAME | namespace PATH
	Path string
}

// place is where one process dials.
type place struct {
	from, namespace, cgroup, pinPath string
}

// Run dials every target from every place at once, and says who answered. What
// could not be tried is in its results as well. It needs the rights to make
// cgroups and to enter namespaces; without them only the place of the caller is
// tried.
func Run(ctx context.Context, o Options) []Result {
	ctx, cancel := context.WithTimeout(ctx, wholeTime)
	defer cancel()
	s := newSurroundings(o)
	defer s.close()
	before := s.count()
	places := s.places()
	tried := make([][]Result, len(places))
	var all sync.WaitGroup
	for i, p := range places {
		all.Go(func() { tried[i] = o.from(ctx, p) })
	}
	all.Wait()
	var results []Result
	for _, list := range tried {
		results = append(results, list...)
	}
	return Judge(results, s.around(before))
}

// from dials from one place.
func (o Options) from(ctx context.Context, p place) []Result {
	r := request{From: p.from, PinPath: p.pinPath}
	for _, t := range o.Targets {
		if t.Purpose == Gateway && !strings.HasPrefix(p.from, FromPod) {
			continue // that of the node is no part of the cluster
		}
		r.Targets = append(r.Targets, t)
	}
	begin := time.Now().UTC()
	results, err := o.start(ctx, p, r)
	if err == nil && len(results) != len(r.Targets) {
		err = fmt.Errorf("%d results came for %d targets", len(results), len(r.Targets))
	}
	if err == nil {
		return results
	}
	results = nil
	for _, t := range r.Targets {
		results = append(results, Result{
			Purpose: t.Purpose, Target: t.String(), Service: t.Service, From: p.from, Time: begin,
			Outcome: Failed, Error: cut(err.Error()), Because: []string{},
		})
	}
	return results
}

// start has a process answer a request.
func (o Options) start(ctx context.Context, p place, r request) ([]Result, error) {
	question, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("write what to dial: %w", err)
	}
	var out, complaints bytes.Buffer
	cmd := exec.CommandContext(ctx, o.Program[0], o.Program[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(question), &out, &complaints
	cmd.WaitDelay = time.Second
	if p.cgroup != "" {
		folder, err := os.Open(p.cgroup)
		if err != nil {
			return nil, fmt.Errorf("open the cgroup to dial from: %w", err)
		}
		defer folder.Close()
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(folder.Fd())}
	}
	if err := inNamespace(p.namespace, cmd.Start); err != nil {
		return nil, fmt.Errorf("start a process that dials from %s: %w", p.from, err)
	}
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("the process that dials from %s: %w", p.from, errors.Join(err, complaint(&complaints)))
	}
	var results []Result
	if err := json.Unmarshal(out.Bytes(), &results); err != nil {
		return nil, fmt.Errorf("read what came of dialling from %s: %w", p.from, err)
	}
	return results, nil
}

func complaint(b *bytes.Buffer) error {
	if b.Len() == 0 {
		return nil
	}
	return errors.New(cut(b.String()))
}

// inNamespace runs f on a thread that lives in a network namespace and ends
// with it; what f starts lives there too.
func inNamespace(path string, f func() error) error {
	if path == "" {
		return f()
	}
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open the network namespace: %w", err)
	}
	defer file.Close()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: nobody else is to find himself there
		if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter the network namespace %s (this takes CAP_SYS_ADMIN): %w", path, err)
			return
		}
		done <- f()
	}()
	return <-done
}

// surroundings are what a run finds of the data plane, and the cgroups that it
// makes beside it.
type surroundings struct {
	options         Options
	cgroup          string // the data plane's; "" if there is no hierarchy
	inside, outside string // made for processes; "" if there is none
	nothingOutside  string
	programs        []Program
	programsKnown   bool
}

func newSurroundings(o Options) *surroundings {
	s := &surroundings{options: o}
	root, err := cgroup.Root()
	if err != nil {
		s.nothingOutside = err.Error()
		return s
	}
	s.cgroup = o.Cgroup
	if s.cgroup == "" {
		s.cgroup = root
	}
	s.programs, s.programsKnown = findPrograms(root, s.cgroup)
	if s.inside, err = scratch(s.cgroup); err != nil {
		s.nothingOutside = err.Error()
		return s
	}
	if filepath.Clean(s.cgroup) == filepath.Clean(root) {
		s.nothingOutside = "the data plane's programs are attached to the root of the cgroups, so nothing is outside of them"
		return s
	}
	if s.outside, err = scratch(filepath.Dir(s.cgroup)); err != nil {
		s.nothingOutside = err.Error()
	}
	return s
}

// scratch makes a cgroup for the length of a run.
func scratch(parent string) (string, error) {
	path, err := os.MkdirTemp(parent, "fairlead-probe-")
	if err != nil {
		return "", fmt.Errorf("make a cgroup to dial from: %w", err)
	}
	return path, nil
}

// close removes the cgroups; their processes have ended.
func (s *surroundings) close() {
	for _, path := range []string{s.inside, s.outside} {
		if path != "" {
			_ = cgroup.Remove(path) // an empty one is in nobody's way
		}
	}
}

func (s *surroundings) places() []place {
	places := []place{{from: FromHost, namespace: s.options.Host, cgroup: s.inside}}
	if s.outside != "" {
		places = append(places, place{from: FromOutside, namespace: s.options.Host, cgroup: s.outside})
	}
	if s.options.PinPath != "" {
		places = append(places, place{from: FromExempt, namespace: s.options.Host, cgroup: s.inside, pinPath: s.options.PinPath})
	}
	for _, pod := range s.options.Pods {
		places = append(places, place{from: pod.Name, namespace: pod.Path, cgroup: s.inside})
	}
	return places
}
