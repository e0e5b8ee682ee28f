// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// Open reads a bundle: an archive of any common format, a folder in the layout
// of one, or any folder with the outputs of commands. Nothing is written, and
// nothing outside is read, whatever the names in it say.
func Open(path string) (*Bundle, error) {
	b, err := open(path)
	if err != nil {
		return nil, fmt.Errorf("open the bundle %s: %w", path, err)
	}
	return b, nil
}

func open(path string) (*Bundle, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, cause(err)
	case info.IsDir():
		return openFolder(path)
	// Nobody may write into a pipe, so that to open it would last for ever.
	case !info.Mode().IsRegular():
		return nil, errors.New("it is no regular file and no folder")
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, cause(err)
	}
	defer file.Close()
	return openFile(file, info)
}

// cause leaves out the path, which stands before it.
func cause(err error) error {
	if wrapped, ok := errors.AsType[*fs.PathError](err); ok {
		return wrapped.Err
	}
	return err
}

// openFolder opens files below a folder only, also where links lead out of it.
func openFolder(path string) (*Bundle, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, cause(err)
	}
	defer root.Close()
	return Load(root.FS())
}

// Load reads a bundle from the files of a folder.
func Load(folder fs.FS) (*Bundle, error) {
	l := newLoader(0)
	err := fs.WalkDir(folder, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			l.warn("%s is left out: %v", shorten(name), cause(err))
			return nil
		}
		info, err := d.Info()
		if err != nil {
			l.warn("%s is left out: %v", shorten(name), cause(err))
			return nil
		}
		return l.take(entry{
			name: name, regular: info.Mode().IsRegular(), folder: d.IsDir(), size: info.Size(), time: info.ModTime(),
			open: func() (io.Reader, error) { return folder.Open(name) },
		})
	})
	return l.finish(err)
}

// openFile finds by its first bytes what an archive is. What is none is a bundle
// of one file.
func openFile(file *os.File, info fs.FileInfo) (*Bundle, error) {
	head := make([]byte, 512)
	n, err := io.ReadFull(file, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, cause(err)
	}
	head = head[:n]
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, cause(err)
	}
	l := newLoader(info.Size())
	switch {
	case bytes.HasPrefix(head, []byte("\x1f\x8b")):
		return l.finish(l.takeTarGz(file))
	case bytes.HasPrefix(head, []byte("PK\x03\x04")), bytes.HasPrefix(head, []byte("PK\x05\x06")):
		return l.finish(l.takeZip(file, info.Size()))
	case len(head) > 262 && string(head[257:262]) == "ustar":
		return l.finish(l.takeTar(file))
	case bytes.HasPrefix(head, []byte("\x28\xb5\x2f\xfd")), bytes.HasPrefix(head, []byte("\xfd7zXZ")), bytes.HasPrefix(head, []byte("BZh")):
		return nil, errors.New("archives of zstd, xz and bzip2 are not read: unpack it, and give the folder")
	case strings.HasSuffix(info.Name(), ".txtar"):
		return openText(file, info)
	}
	return l.finish(l.take(entry{
		name: info.Name(), regular: true, size: info.Size(), time: info.ModTime(),
		open: func() (io.Reader, error) { return io.NopCloser(file), nil },
	}))
}

func openText(file *os.File, info fs.FileInfo) (*Bundle, error) {
	if info.Size() > maxRecord {
		return nil, fmt.Errorf("it has %d bytes, more than %d", info.Size(), maxRecord)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxRecord))
	if err != nil {
		return nil, cause(err)
	}
	return ParseText(text, info.ModTime())
}
