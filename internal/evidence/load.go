// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bundles come from strangers. The bounds are above what a cluster of 5000
// nodes gives, and below what a small machine has of memory.
const (
	maxRecord = 256 << 20
	maxTotal  = 1 << 30
	maxFiles  = 100_000
	maxName   = 1000
	// maxWarnings bounds what an archive can make fairlead say of it.
	maxWarnings = 50
)

// entry is one file of an archive or a folder.
type entry struct {
	name    string
	regular bool
	folder  bool
	size    int64
	time    time.Time
	open    func() (io.Reader, error)
}

// file is an entry that was read.
type file struct {
	path    string
	time    time.Time
	content []byte
	problem string // why there is no content
}

// loader reads entries into memory. Nothing of an archive is ever written.
type loader struct {
	files    []file
	names    map[string]bool
	total    int64
	most     int64 // how much may be read,
	over     error // and what is wrong with what holds more
	warnings []string
	unsaid   int // warnings beyond the bound
}

// newLoader returns one for an archive of some size; 0: it is none.
func newLoader(size int64) *loader {
	most, over := budget(size)
	return &loader{names: map[string]bool{}, most: most, over: over}
}

func (l *loader) warn(format string, args ...any) {
	if len(l.warnings) >= maxWarnings {
		l.unsaid++
		return
	}
	l.warnings = append(l.warnings, fmt.Sprintf(format, args...))
}

// errFull says that nothing more is read of an archive.
var errFull = fmt.Errorf("together with those before it there are more than %d bytes, and nothing more is read", maxTotal)

// take reads an entry, or says why not. Only errFull, and errors of reading,
// end the archive.
func (l *loader) take(e entry) error {
	if e.folder {
		return nil
	}
	name, err := safeName(e.name)
	switch {
	case err != nil:
		l.warn("%q is left out: %v", shorten(e.name), err)
		return nil
	case !e.regular:
		l.warn("%s is left out: it is no regular file", name)
		return nil
	case l.names[name]:
		l.warn("%s stands twice: the first counts", name)
		return nil
	case len(l.files) == maxFiles:
		return fmt.Errorf("there are more than %d files", maxFiles)
	}
	l.names[name] = true
	f := file{path: name, time: e.time}
	if f.content, err = l.read(e); err != nil {
		f.problem = err.Error()
		l.warn("%s is left out: %v", name, err)
	}
	l.files = append(l.files, f)
	if errors.Is(err, errFull) || errors.Is(err, errBomb) {
		return err
	}
	return nil
}

func (l *loader) read(e entry) ([]byte, error) {
	if e.size > maxRecord {
		return nil, fmt.Errorf("it has %d bytes, more than %d", e.size, maxRecord)
	}
	in, err := e.open()
	if err != nil {
		return nil, err
	}
	if c, ok := in.(io.Closer); ok {
		defer c.Close()
	}
	content, err := io.ReadAll(io.LimitReader(in, min(maxRecord, l.most-l.total)+1))
	l.total += int64(len(content))
	switch {
	case l.total > l.most:
		return nil, l.over
	case len(content) > maxRecord:
		return nil, fmt.Errorf("it has more than %d bytes", maxRecord)
	case err != nil:
		return nil, cause(err)
	}
	return content, nil
}

// safeName brings the name of a file into one form, and refuses what is no
// name within the archive.
func safeName(name string) (string, error) {
	switch {
	case !utf8.ValidString(name):
		return "", errors.New("its name is no text")
	case len(name) > maxName:
		return "", fmt.Errorf("its name has more than %d bytes", maxName)
	case strings.ContainsFunc(name, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }):
		return "", errors.New("its name has control characters")
	case strings.Contains(name, `\`):
		return "", errors.New("its name has a backslash")
	}
	for strings.HasPrefix(name, "./") {
		name = strings.TrimPrefix(name, "./")
	}
	if !fs.ValidPath(name) || name == "." {
		return "", errors.New("its name leads out of the archive, or is none")
	}
	return name, nil
}

func shorten(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// indexFile is the content of bundle.json.
type indexFile struct {
	Format  int       `json:"format"`
	Made    time.Time `json:"made"`
	By      string    `json:"by"`
	Records []Record  `json:"records"`
}

// format is the number of the layout that this version writes and reads.
const format = 1

// finish makes records of the files, unless an error says that they are no
// bundle.
func (l *loader) finish(err error) (*Bundle, error) {
	if err != nil && !errors.Is(err, errFull) {
		return nil, err
	}
	l.enter()
	slices.SortFunc(l.files, func(a, b file) int { return cmp.Compare(a.path, b.path) })
	b := &Bundle{}
	if at := slices.IndexFunc(l.files, func(f file) bool { return f.path == index }); at >= 0 {
		described := l.files[at]
		l.files = slices.Delete(l.files, at, at+1)
		if err := l.indexed(b, described); err != nil {
			return nil, err
		}
	} else if dump := l.sysdump(); dump != nil {
		dump.placed(l, b)
	} else {
		l.placed(b)
	}
	if len(b.Records) == 0 {
		return nil, errors.New("it holds nothing that fairlead can read: give it what `fairlead bundle` made, or a folder with the outputs of commands")
	}
	slices.SortStableFunc(b.Records, func(x, y Record) int { return cmp.Compare(x.Sample, y.Sample) })
	b.Warnings = l.warnings
	if l.unsaid > 0 {
		b.Warnings = append(b.Warnings, fmt.Sprintf("and %d warnings more", l.unsaid))
	}
	return b, nil
}

// enter goes into the one folder in which all files lie, as long as it is none
// of the layout.
func (l *loader) enter() {
	for len(l.files) > 0 {
		top, _, nested := strings.Cut(l.files[0].path, "/")
		inTop := func(f file) bool { return strings.HasPrefix(f.path, top+"/") }
		if !nested || l.followsLayout() || slices.ContainsFunc(l.files, func(f file) bool { return !inTop(f) }) {
			return
		}
		for i := range l.files {
			l.files[i].path = strings.TrimPrefix(l.files[i].path, top+"/")
		}
	}
}

// followsLayout says that any file stands where only the layout puts one. What
// lies on top may have its name by chance.
func (l *loader) followsLayout() bool {
	return slices.ContainsFunc(l.files, func(f file) bool {
		r := Record{Path: f.path}
		return f.path == index || strings.Contains(f.path, "/") && r.locate()
	})
}

// indexed makes the records that an index describes.
func (l *loader) indexed(b *Bundle, described file) error {
	var in indexFile
	if err := json.Unmarshal(described.content, &in); err != nil {
		return fmt.Errorf("read its %s: %w", index, err)
	}
	if in.Format != format {
		return fmt.Errorf("its %s is of format %d, and this version of fairlead reads %d", index, in.Format, format)
	}
	b.Made, b.By = in.Made, in.By
	byPath := map[string]*file{}
	for i := range l.files {
		byPath[l.files[i].path] = &l.files[i]
	}
	for _, r := range in.Records {
		f := byPath[r.Path]
		if err := r.check(); err != nil {
			l.warn("%q is left out: %v", shorten(r.Path), err)
			continue
		}
		if f == nil {
			r.Error = cmp.Or(r.Error, "it is not in the archive")
			b.Records = append(b.Records, r)
			continue
		}
		delete(byPath, r.Path)
		r.fill(f)
		b.Records = append(b.Records, r)
	}
	for _, f := range l.files {
		if byPath[f.path] != nil {
			l.warn("%s is left out: %s does not name it", f.path, index)
		}
	}
	return nil
}

// maxSamples is more than anybody takes.
const maxSamples = 1000

// plainName is what names of nodes, pods and containers are made of.
var plainName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*)$`)

// check refuses what no collection gives. Findings put names into commands that
// people paste.
func (r *Record) check() error {
	if r.Sample < 0 || r.Sample > maxSamples {
		return fmt.Errorf("sample %d is none", r.Sample)
	}
	namespace, pod, _ := strings.Cut(r.Pod, "/")
	for _, name := range []string{r.Node, namespace, pod, r.Container} {
		if name != "" && !plainName.MatchString(name) {
			return fmt.Errorf("%q is no name of a node, a pod or a container", shorten(name))
		}
	}
	for _, name := range r.Resources {
		if !resource.MatchString(name) {
			return fmt.Errorf("%q is no resource", shorten(name))
		}
	}
	return nil
}

// placed makes records of files that nothing describes but their paths, or, if
// those follow no layout, their content.
func (l *loader) placed(b *Bundle) {
	layout := l.followsLayout()
	for i := range l.files {
		f := &l.files[i]
		r := Record{Path: f.path, Time: f.time.UTC()}
		located := r.locate()
		if !located && layout {
			l.warn("%s is left out: its place in the archive says nothing", f.path)
			continue
		}
		if log, is := strings.CutSuffix(path.Base(f.path), ".log"); is && !located {
			r.nameLog(log)
		}
		if err := r.check(); err != nil {
			l.warn("%s is left out: %v", f.path, err)
			continue
		}
		r.fill(f)
		if !layout && r.Kind != Log && r.Error == "" {
			r.sniff()
		}
		if r.Kind == Unknown || r.Kind == "" {
			l.warn("%s is left out: %s", f.path, cmp.Or(r.Error, r.unknown()))
			continue
		}
		if r.Sample == 0 && r.Kind != Log && r.Kind != Events {
			r.Sample = 1
		}
		r.Command = r.command()
		b.Records = append(b.Records, r)
	}
}

// fill gives a record the content of its file.
func (r *Record) fill(f *file) {
	r.Content = f.content
	r.Error = cmp.Or(r.Error, f.problem)
	if f.problem != "" {
		return
	}
	content := f.content
	if r.Kind == Log { // a crash leaves zeros in files that were being written
		content = bytes.ReplaceAll(content, []byte{0}, nil)
	}
	text, err := plainText(content)
	if err != nil {
		r.Content, r.Error = nil, cmp.Or(r.Error, err.Error())
		return
	}
	r.Content = text
	if r.Kind != Log && r.Kind != Unknown {
		r.Error = cmp.Or(r.Error, failure(text))
	}
}
