// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/tools/txtar"
)

// recorder brings the agent from moment to moment. objects are what the API
// says, by kind and name.
type recorder struct {
	agent   *agent
	version string
	objects map[string]object
	samples int
}

// apart is how long a sample waits for the one before.
const apart = 4 * time.Second

func (r *recorder) moment(ctx context.Context, c *cluster, m moment) (*txtar.Archive, error) {
	bundle := &txtar.Archive{}
	comment := bytes.TrimSpace(c.comment)
	if m.name != "" {
		comment = fmt.Appendf(comment, " (%s)", m.name)
	}
	comment = fmt.Appendf(comment, "\n# Recorded from Cilium %s's load balancer on real maps.\n", r.version)
	for _, s := range m.samples {
		if r.samples++; r.samples > 1 {
			time.Sleep(apart)
		}
		if err := r.apply(ctx, s.objects); err != nil {
			return nil, fmt.Errorf("sample %s: %w", s.number, err)
		}
		at := cmp.Or(s.time, time.Now().UTC().Format(time.RFC3339))
		comment = fmt.Appendf(comment, "# time %s: %s\n", s.number, at)
		files, err := r.sample(ctx, s.number, c.node.name)
		if err != nil {
			return nil, fmt.Errorf("sample %s: %w", s.number, err)
		}
		bundle.Files = append(bundle.Files, files...)
	}
	bundle.Comment = comment
	return bundle, nil
}

// apply has the API say what changed, and waits until the agent has put it into
// force.
func (r *recorder) apply(ctx context.Context, changed []object) error {
	for _, o := range changed {
		key := o.kind + " " + o.name
		r.objects[key] = o
		if !slices.Contains(served, o.kind) {
			continue
		}
		file := strings.NewReplacer(" ", "-", "/", "-").Replace(key) + ".yaml"
		if err := os.WriteFile(filepath.Join(r.agent.folder, file), o.text, 0o644); err != nil {
			return err
		}
		if err := r.agent.give(ctx, file); err != nil {
			return err
		}
	}
	return r.settle(ctx)
}

// settle waits until nothing is pending and the maps have not changed for a
// while.
func (r *recorder) settle(ctx context.Context) error {
	const quiet, poll = 6, 100 * time.Millisecond
	before, same := "", 0
	for same < quiet {
		time.Sleep(poll)
		frontends, err := r.agent.show(ctx, "db/show frontends -o")
		if err != nil {
			return err
		}
		dump, err := r.agent.show(ctx, "lb/maps-dump")
		if err != nil {
			return err
		}
		same++
		// The title Error is the last of its line: only a status has spaces after it.
		if dump != before || strings.Contains(frontends, "Pending") || strings.Contains(frontends, "Error  ") || dump == "" {
			same = 0
		}
		before = dump
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("wait for the agent: %w", err)
		}
	}
	return nil
}

// sample returns the files of a sample.
func (r *recorder) sample(ctx context.Context, number, node string) ([]txtar.File, error) {
	files := r.lists(number)
	on := number + "/nodes/" + node + "/"
	files = append(files, txtar.File{Name: on + "cilium-version.txt", Data: fmt.Appendf(nil, "Daemon: %s\n", r.version)})
	for _, d := range []struct{ name, command string }{
		{"dump-cilium-frontends.txt", "db/show frontends -o"},
		{"dump-cilium-backends.txt", "db/show backends -o"},
		{"dump-cilium-maps.txt", "lb/maps-dump"},
	} {
		text, err := r.agent.show(ctx, d.command)
		if err != nil {
			return nil, err
		}
		files = append(files, txtar.File{Name: on + d.name, Data: []byte(text)})
	}
	return files, nil
}

// lists returns the objects: a file for each resource of which there are all,
// and one for the others.
func (r *recorder) lists(number string) []txtar.File {
	texts := map[string][]string{}
	for _, key := range slices.Sorted(maps.Keys(r.objects)) {
		o := r.objects[key]
		resource := o.resource
		if !slices.Contains(served, o.kind) {
			resource = "_others"
		}
		texts[resource] = append(texts[resource], string(o.text))
	}
	var files []txtar.File
	for _, resource := range slices.Sorted(maps.Keys(texts)) {
		files = append(files, txtar.File{
			Name: number + "/objects/" + resource + ".yaml",
			Data: []byte(strings.Join(texts[resource], "---\n")),
		})
	}
	return files
}
