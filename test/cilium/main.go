// SPDX-License-Identifier: Apache-2.0

// Command record has the load balancer of Cilium, in the version that this module names,
// serve the objects of a cluster on real eBPF maps, and writes down what its
// tables and maps hold at each moment: a bundle of two samples for the doctor.
//
// Nothing is attached to anything: the maps are filled, and no connection meets
// them. They are pinned below /sys/fs/bpf, which must be a file system of this
// process alone: see README.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/tools/txtar"
)

func main() {
	out := flag.String("out", ".", "folder for the bundles")
	version := flag.String("version", "", "Cilium's version")
	flag.Parse()
	if flag.NArg() != 1 || *version == "" {
		fmt.Fprintln(os.Stderr, "usage: record -version VERSION [-out DIR] CLUSTER.txtar")
		os.Exit(2)
	}
	if err := record(flag.Arg(0), *out, *version); err != nil {
		fmt.Fprintf(os.Stderr, "record %s: %v\n", flag.Arg(0), err)
		os.Exit(1)
	}
}

func record(file, out, version string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := preparePins(); err != nil {
		return err
	}
	archive, err := txtar.ParseFile(file)
	if err != nil {
		return err
	}
	c, err := readCluster(archive)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "record-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	a, err := newAgent(c.node.name, folder)
	if err != nil {
		return err
	}
	if err := a.start(ctx, c.node.labels, c.node.addresses); err != nil {
		return err
	}
	r := recorder{agent: a, version: version, objects: map[string]object{}}
	name := strings.TrimSuffix(filepath.Base(file), ".txtar")
	for _, m := range c.moments {
		bundle, err := r.moment(ctx, c, m)
		if err != nil {
			return fmt.Errorf("moment %q: %w", m.name, err)
		}
		path := filepath.Join(out, strings.TrimSuffix(name+"-"+m.name, "-")+".txtar")
		if err := os.WriteFile(path, txtar.Format(bundle), 0o644); err != nil {
			return err
		}
	}
	return a.stop()
}

// pins is where Cilium pins its maps.
const pins = root + "/tc/globals"

const root = "/sys/fs/bpf"

// preparePins refuses to meet maps of anybody else: Cilium takes the first BPF
// file system that it finds for its own, and removes maps from it that are not
// as it wants them.
func preparePins() error {
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("bpf"))
	if err != nil {
		return fmt.Errorf("list the mounts: %w", err)
	}
	if len(mounts) != 1 || mounts[0].Mountpoint != root {
		return fmt.Errorf("there are %d BPF file systems, want one, on %s, which nobody else sees: start record by record.sh", len(mounts), root)
	}
	if _, err := os.Stat(pins); err == nil {
		return fmt.Errorf("%s exists already: start record by record.sh", pins)
	}
	if err := os.MkdirAll(pins, 0o700); err != nil {
		return fmt.Errorf("make the folder of the maps: %w", err)
	}
	return nil
}
