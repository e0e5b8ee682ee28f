// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"time"
)

// content is what a folder holds, as far as it could be read, and what the
// handler has been told of it.
type content struct {
	*folder
	parser  *parser
	handler Handler

	dirInfo  os.FileInfo // the folder at its last good reading
	files    map[string]*file
	held     map[object]placed // what the handler has
	problems []Problem         // what the handler has been told
	trouble  error             // why the folder cannot be read at present
	listed   bool
}

// file is a manifest with what was known of the file when it was read.
type file struct {
	info     os.FileInfo // nil: read it again in any case
	manifest manifest
	good     bool // it has been read without being broken
	// hot says that the file was being written when it was read: another write
	// may have come within the same tick of the file system's clock.
	hot bool
}

func newContent(f *folder, p *parser, h Handler) *content {
	return &content{folder: f, parser: p, handler: h, files: make(map[string]*file), held: make(map[object]placed)}
}

// refresh reads what has changed and passes it on in one call. Unless the
// folder is settled, files that may be incomplete are left for later, and
// nothing is taken away. It says whether a file is to be looked at again.
func (c *content) refresh(settled bool) (again bool) {
	names, err := c.names()
	if err != nil {
		c.fail(err)
		return false
	}
	for _, name := range names {
		again = c.reread(name, settled) || again
	}
	if settled {
		c.forget(names)
	}
	c.publish(settled)
	c.recovered()
	return again
}

// names lists the manifests. An empty folder in place of another one, such as
// the mount point where a volume was, is not taken for an empty cluster.
func (c *content) names() ([]string, error) {
	names, err := manifestNames(c.dir)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(c.dir)
	if err != nil {
		return nil, fmt.Errorf("reading the folder of manifests: %w", err)
	}
	replaced := c.trouble != nil || (c.dirInfo != nil && !os.SameFile(c.dirInfo, info))
	if replaced && len(names) == 0 && len(c.held) > 0 {
		return nil, fmt.Errorf("the folder %s has been replaced by an empty one: put a manifest there, or restart to begin with nothing", c.dir)
	}
	c.dirInfo = info
	return names, nil
}

// reread reads a file if it has changed, and says whether it must be looked at
// again. A file that was replaced as a whole is another file under the same
// name; any other may still be in the writing.
func (c *content) reread(name string, settled bool) (again bool) {
	path := filepath.Join(c.dir, name)
	known := c.files[name]
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if err != nil {
		c.accept(name, nil, unreadable(path, "cannot be read: "+cause(err)))
		return false
	}
	seen := known != nil && known.info != nil
	if seen && unchanged(known.info, info) && !(settled && known.hot) {
		return false
	}
	if !settled && (!seen || os.SameFile(known.info, info)) {
		return false
	}
	if !info.Mode().IsRegular() {
		c.accept(name, info, manifest{})
		return false
	}
	if emptied(known, info) {
		return true
	}
	m, err := c.parser.readFile(path)
	if err != nil {
		c.accept(name, nil, unreadable(path, "cannot be read: "+cause(err)))
		return false
	}
	c.accept(name, info, m)
	c.files[name].hot = settled && time.Since(info.ModTime()) < quiet
	return c.files[name].hot
}

// emptied says that a file which held objects became empty just now: whoever
// did that is most likely about to write it anew.
func emptied(known *file, info os.FileInfo) bool {
	return info.Size() == 0 && known != nil && len(known.manifest.objects) > 0 &&
		time.Since(info.ModTime()) < emptyGrace
}

func unchanged(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// accept takes what was read of a file. A broken file keeps the last content
// that was good as a whole. As long as there was none, it adds what can be
// read and takes nothing away.
func (c *content) accept(name string, info os.FileInfo, m manifest) {
	known := c.files[name]
	if known == nil {
		known = &file{}
		c.files[name] = known
	}
	known.info = info
	if !m.broken {
		known.manifest, known.good = m, true
		return
	}
	if known.good {
		known.manifest.problems = m.problems
		return
	}
	m.refused = append(m.refused, known.manifest.refused...)
	m.objects = append(m.objects, missing(known.manifest.objects, m.objects)...)
	known.manifest = m
}

// missing returns the objects of before that are not among now.
func missing(before, now []placed) []placed {
	present := make(map[object]bool, len(now))
	for _, o := range now {
		present[o.object()] = true
	}
	return slices.DeleteFunc(slices.Clone(before), func(o placed) bool { return present[o.object()] })
}

// forget drops the files that are gone.
func (c *content) forget(names []string) {
	for name := range c.files {
		_, err := os.Stat(filepath.Join(c.dir, name))
		if !slices.Contains(names, name) || errors.Is(err, fs.ErrNotExist) {
			delete(c.files, name)
		}
	}
}

// publish tells the handler what differs from what it has.
func (c *content) publish(settled bool) {
	manifests := make([]manifest, 0, len(c.files))
	for _, name := range sortedNames(c.files) {
		manifests = append(manifests, c.files[name].manifest)
	}
	next, problems := merge(manifests, c.held)
	var events []Event
	for _, key := range sortedKeys(next) {
		if key.kind == KindNode && key.name.Name != c.nodeName {
			delete(next, key)
			continue
		}
		if old, ok := c.held[key]; !ok || !same(old.Event, next[key].Event) {
			events = append(events, next[key].Event)
		}
	}
	for _, key := range sortedKeys(c.held) {
		if _, ok := next[key]; ok {
			continue
		}
		if !settled {
			next[key] = c.held[key]
			continue
		}
		events = append(events, Event{Kind: key.kind, Name: key.name, ResourceVersion: c.held[key].ResourceVersion})
	}
	c.held = next
	c.tell(events, problems)
}

func (c *content) tell(events []Event, problems []Problem) {
	now := time.Now()
	for i := range events {
		events[i].Received = now
	}
	if !slices.Equal(c.problems, problems) {
		c.problems = problems
		c.handler.Problems(slices.Clone(problems))
	}
	if len(events) > 0 {
		c.handler.Events(events)
	}
	if c.listed {
		return
	}
	c.listed = true
	for _, kind := range []Kind{KindService, KindEndpointSlice, KindNode} {
		c.handler.Listed(kind)
	}
}

func same(a, b Event) bool {
	return a.ResourceVersion == b.ResourceVersion && reflect.DeepEqual(a.Service, b.Service) &&
		reflect.DeepEqual(a.Slice, b.Slice) && reflect.DeepEqual(a.Node, b.Node)
}

func sortedNames(files map[string]*file) []string {
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// fail tells the handler that the folder cannot be followed, once per reason;
// nil is no news.
func (c *content) fail(err error) {
	if err == nil || (c.trouble != nil && c.trouble.Error() == err.Error()) {
		return
	}
	if c.trouble == nil {
		c.log.Warn("cannot read the folder of manifests; the last state stays in force while this is retried", "error", err)
	}
	c.trouble = err
	for _, kind := range []Kind{KindService, KindEndpointSlice, KindNode} {
		c.handler.Stale(kind, err)
	}
}

func (c *content) recovered() {
	if c.trouble == nil {
		return
	}
	c.trouble = nil
	c.log.Info("reading the folder of manifests again", "folder", c.dir)
	for _, kind := range []Kind{KindService, KindEndpointSlice, KindNode} {
		c.handler.Stale(kind, nil)
	}
}

// interval is how long to wait before looking again unasked.
func (c *content) interval() time.Duration {
	if c.trouble != nil {
		return retry
	}
	return recheck
}
