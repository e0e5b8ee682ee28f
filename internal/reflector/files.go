// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxFileSize bounds what is read of one file. A manifest of 10 000 endpoints
// takes a few megabytes.
const maxFileSize = 64 << 20

// ReadFiles reads manifests once: each path is a file, a folder whose
// manifests are read, or "-" for stdin. The problems name everything that
// cannot be used; the objects are all the others. The error is for what cannot
// be opened at all.
func ReadFiles(paths []string, stdin io.Reader) (Objects, []Problem, error) {
	p, err := newParser()
	if err != nil {
		return Objects{}, nil, err
	}
	var manifests []manifest
	for _, path := range paths {
		more, err := p.readPath(path, stdin)
		if err != nil {
			return Objects{}, nil, err
		}
		manifests = append(manifests, more...)
	}
	merged, problems := merge(manifests, nil)
	return listed(merged), problems, nil
}

func (p *parser) readPath(path string, stdin io.Reader) ([]manifest, error) {
	if path == "-" {
		m, err := p.readAll("stdin", stdin)
		return []manifest{m}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("reading manifests: %w", err)
	}
	if !info.IsDir() {
		m, err := p.readFile(path)
		return []manifest{m}, err
	}
	names, err := manifestNames(path)
	if err != nil {
		return nil, err
	}
	var manifests []manifest
	for _, name := range names {
		file := filepath.Join(path, name)
		if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
			continue
		}
		m, err := p.readFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			m = unreadable(file, "cannot be read: "+cause(err))
		}
		manifests = append(manifests, m)
	}
	return manifests, nil
}

func (p *parser) readFile(path string) (manifest, error) {
	f, err := os.Open(path)
	if err != nil {
		return manifest{}, fmt.Errorf("reading a manifest: %w", err)
	}
	defer f.Close()
	return p.readAll(path, f)
}

func (p *parser) readAll(name string, from io.Reader) (manifest, error) {
	data, err := io.ReadAll(io.LimitReader(from, maxFileSize+1))
	if err != nil {
		return manifest{}, fmt.Errorf("reading a manifest from %s: %w", name, err)
	}
	if len(data) > maxFileSize {
		return unreadable(name, fmt.Sprintf("is larger than %d MiB: split it into several files", maxFileSize>>20)), nil
	}
	return p.parse(name, data), nil
}

// cause returns an error of a system call without the path, which is named
// anyway.
func cause(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}

// manifestNames returns the names in a folder that manifests have, sorted.
// Editors and other tools keep their temporary files under other names.
func manifestNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the folder of manifests: %w", err)
	}
	var names []string
	for _, entry := range entries {
		if isManifest(entry.Name()) {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

func isManifest(name string) bool {
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "#") {
		return false
	}
	return slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}

// merge joins manifests into one set of objects. Of an object that stands in
// several places the first counts. An object that is only refused keeps what
// it was last, if it was anything.
func merge(manifests []manifest, last map[object]placed) (map[object]placed, []Problem) {
	merged := make(map[object]placed)
	var problems []Problem
	for _, m := range manifests {
		problems = append(problems, m.problems...)
		for _, o := range m.objects {
			first, taken := merged[o.object()]
			if !taken {
				merged[o.object()] = o
				continue
			}
			problems = append(problems, o.shadowedBy(first))
		}
	}
	for _, m := range manifests {
		for _, r := range m.refused {
			before, existed := last[r.object]
			if _, taken := merged[r.object]; taken || !existed {
				continue
			}
			if !r.guess || before.file == m.file() {
				merged[r.object] = before
			}
		}
	}
	return merged, problems
}

// file returns the file of a manifest that has something wrong with it.
func (m manifest) file() string {
	if len(m.problems) == 0 {
		return ""
	}
	return m.problems[0].File
}

func (o placed) shadowedBy(first placed) Problem {
	return Problem{
		File:     o.file,
		Document: o.document,
		Line:     o.line,
		Object:   describe(o.Kind, o.Name),
		Message:  fmt.Sprintf("ignored: the one of %s:%d counts", first.file, first.line),
	}
}

// listed returns the objects in the order of their names.
func listed(objects map[object]placed) Objects {
	var out Objects
	for _, key := range sortedKeys(objects) {
		out.add(objects[key].Event)
	}
	return out
}

func sortedKeys[V any](objects map[object]V) []object {
	keys := make([]object, 0, len(objects))
	for key := range objects {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, object.compare)
	return keys
}
