// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// quiet is how long nothing must happen for a change to count as complete.
	quiet = 20 * time.Millisecond
	// longestBurst bounds the wait for quiet while files change all the time.
	longestBurst = 200 * time.Millisecond
	// emptyGrace is how long a file may be empty on its way to new content.
	emptyGrace = time.Second
	// recheck is the interval of reading the folder without being told to.
	recheck = 10 * time.Second
	// retry is the interval of looking for a folder that went away.
	retry = 500 * time.Millisecond
)

// folder follows a folder of manifests.
type folder struct {
	dir      string
	nodeName string
	log      *slog.Logger
}

// NewFolder returns a source that follows the manifests in a folder: files
// that end in .yaml, .yml or .json, not those in folders below it. Of Nodes
// only the one of the given name is passed on.
func NewFolder(dir, nodeName string, log *slog.Logger) Source {
	return &folder{dir: filepath.Clean(dir), nodeName: nodeName, log: log}
}

// String implements Source.
func (f *folder) String() string { return f.dir }

// List implements Source.
func (f *folder) List(context.Context) (Objects, []Problem, error) {
	objects, problems, err := ReadFiles([]string{f.dir}, nil)
	if err != nil {
		return Objects{}, nil, err
	}
	var own []*Node
	for _, node := range objects.Nodes {
		if node.Name == f.nodeName {
			own = append(own, node)
		}
	}
	objects.Nodes = own
	return objects, problems, nil
}

// Run implements Source. The first sign of a change is acted upon at once, but
// then only what is certain: files that were replaced as a whole, and nothing
// taken away. The rest waits until the folder is quiet, because a file that
// is being written looks shorter than it is, and an object on its way from one
// file to another looks gone.
func (f *folder) Run(ctx context.Context, h Handler) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching the folder %s: %w", f.dir, explain(err))
	}
	defer watcher.Close()
	w := &watched{dir: f.dir, watcher: watcher}
	if err := w.attach(); err != nil {
		return err
	}
	parse, err := newParser()
	if err != nil {
		return err
	}
	c := newContent(f, parse, h)
	c.refresh(true)
	if !c.listed {
		return c.trouble
	}
	f.loop(ctx, w, c)
	return nil
}

func (f *folder) loop(ctx context.Context, w *watched, c *content) {
	settle, check := time.NewTimer(quiet), time.NewTimer(recheck)
	defer settle.Stop()
	defer check.Stop()
	settle.Stop()
	var began time.Time // when the burst of changes in progress began; zero in between
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-w.watcher.Events:
			if !w.concerns(event) {
				continue
			}
			if began.IsZero() {
				began = time.Now()
				c.refresh(false)
			}
			settle.Reset(min(quiet, time.Until(began.Add(longestBurst))))
		case <-w.watcher.Errors:
			// Events were lost. What they would have said is found by reading.
			settle.Reset(quiet)
		case <-settle.C:
			began = time.Time{}
			if f.sync(w, c) {
				settle.Reset(emptyGrace)
			}
		case <-check.C:
			if began.IsZero() && f.sync(w, c) {
				settle.Reset(emptyGrace)
			}
		}
		check.Reset(c.interval())
	}
}

// sync reads the folder that the name now stands for. It says whether there is
// a file to look at again before long.
func (f *folder) sync(w *watched, c *content) (again bool) {
	if err := w.attach(); err != nil {
		c.fail(err)
		return false
	}
	return c.refresh(true)
}

// watched is a folder under inotify.
type watched struct {
	dir     string
	watcher *fsnotify.Watcher
	seen    os.FileInfo // the folder the watch is on; nil = none
}

// attach watches the folder that the name now stands for, which need not be
// the one it stood for before.
func (w *watched) attach() error {
	info, err := os.Stat(w.dir)
	if err != nil {
		return fmt.Errorf("watching the folder of manifests: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("watching the folder of manifests: %s is not a folder", w.dir)
	}
	if w.seen != nil && os.SameFile(w.seen, info) {
		return nil
	}
	// There may be no watch to remove; adding a new one tells what matters.
	_ = w.watcher.Remove(w.dir)
	if err := w.watcher.Add(w.dir); err != nil {
		return fmt.Errorf("watching the folder %s: %w", w.dir, explain(err))
	}
	w.seen = info
	return nil
}

// concerns says whether an event can have changed what is to be read.
func (w *watched) concerns(event fsnotify.Event) bool {
	if filepath.Clean(event.Name) == w.dir {
		w.seen = nil
		return true
	}
	name := filepath.Base(event.Name)
	// The kubelet exchanges the files of a mounted ConfigMap through a link of
	// this name.
	return isManifest(name) || name == "..data"
}

// explain adds to an error of inotify which limit of the kernel was met.
func explain(err error) error {
	switch {
	case errors.Is(err, syscall.EMFILE):
		return fmt.Errorf("%w: raise the sysctl fs.inotify.max_user_instances, or the limit of open files", err)
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%w: raise the sysctl fs.inotify.max_user_watches", err)
	}
	return err
}
