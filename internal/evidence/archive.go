// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
)

// Nobody's tables shrink to less than a fortieth. What grows more than maxRatio
// times was made to, and is refused once it is larger than any memory bears
// with ease.
const (
	maxRatio = 300
	easy     = 64 << 20
)

var errBomb = fmt.Errorf("it grows to more than %d times its size, as no bundle does", maxRatio)

// budget is how much an archive of some size may grow to, and what is wrong
// with one that grows more. Size 0 is no archive.
func budget(size int64) (int64, error) {
	if most := max(size*maxRatio, easy); size > 0 && most < maxTotal {
		return most, errBomb
	}
	return maxTotal, errFull
}

// bounded reads up to a bound, and then fails.
type bounded struct {
	from io.Reader
	left int64
	over error
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, b.over
	}
	n, err := b.from.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

func (l *loader) takeTarGz(file io.Reader) error {
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		return fmt.Errorf("unpack it: %w", err)
	}
	// What is left out is unpacked, too.
	return l.takeTar(&bounded{unpacked, l.most, l.over})
}

// takeTar reads a tar archive. One that ends too early, or is broken from some
// place on, gives what stands before.
func (l *loader) takeTar(stream io.Reader) error {
	archive := tar.NewReader(stream)
	for {
		header, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, errBomb), errors.Is(err, errFull):
			return err
		case err != nil:
			l.warn("the archive is broken after %d files, and the rest is not read: %v", len(l.files), err)
			return nil
		}
		info := header.FileInfo()
		err = l.take(entry{
			name: header.Name, size: header.Size, time: header.ModTime,
			regular: header.Typeflag == tar.TypeReg || header.Typeflag == tar.TypeGNUSparse, folder: info.IsDir() || header.Typeflag == tar.TypeXGlobalHeader,
			open: func() (io.Reader, error) { return archive, nil },
		})
		if err != nil {
			return err
		}
	}
}

func (l *loader) takeZip(file *os.File, size int64) error {
	archive, err := zip.NewReader(file, size)
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) {
		return fmt.Errorf("read its list of files: %w", err)
	}
	for _, f := range archive.File {
		size := int64(maxRecord + 1)
		if f.UncompressedSize64 <= maxRecord {
			size = int64(f.UncompressedSize64)
		}
		err := l.take(entry{
			name: f.Name, size: size, time: f.Modified,
			regular: f.Mode().IsRegular(), folder: f.Mode()&fs.ModeDir != 0,
			open: func() (io.Reader, error) { return f.Open() },
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// sampleTime is a line in the comment of a text that says when a sample was
// taken.
var sampleTime = regexp.MustCompile(`(?m)^#? ?time (\d+): (\S+)$`)

// ParseText reads a bundle that is one text: each section after a line
// "-- PATH --" is a file. A line "# time 1: 2026-01-03T23:17:00Z" before them
// says when sample 1 was taken. What is in no sample, such as a log, was read with
// the last of those; where none has a time, all is from the given one.
func ParseText(text []byte, at time.Time) (*Bundle, error) {
	archive := txtar.Parse(text)
	times := map[string]time.Time{}
	var last time.Time
	for _, found := range sampleTime.FindAllSubmatch(archive.Comment, -1) {
		taken, err := time.Parse(time.RFC3339, string(found[2]))
		if err != nil {
			return nil, fmt.Errorf("read the time of sample %s: %q is none: write it as 2026-01-02T15:04:05Z", found[1], found[2])
		}
		times[string(found[1])] = taken
	}
	for _, f := range archive.Files {
		if taken := times[sampleOf(f.Name)]; taken.After(last) {
			last = taken
		}
	}
	if !last.IsZero() {
		at = last
	}
	l := newLoader(0)
	var err error
	for _, f := range archive.Files {
		taken, known := times[sampleOf(f.Name)]
		if !known {
			taken = at
		}
		e := entry{name: f.Name, regular: true, size: int64(len(f.Data)), time: taken, open: func() (io.Reader, error) { return bytes.NewReader(f.Data), nil }}
		if err = l.take(e); err != nil {
			break
		}
	}
	b, err := l.finish(err)
	if err != nil {
		return nil, err
	}
	if b.Made.IsZero() {
		b.Made = times["1"]
	}
	return b, nil
}

// sampleOf is the number of the sample that a path lies in, if it is one.
func sampleOf(path string) string {
	top, _, _ := strings.Cut(path, "/")
	if _, err := strconv.Atoi(top); err != nil {
		return ""
	}
	return top
}
