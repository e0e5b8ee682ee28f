// SPDX-License-Identifier: Apache-2.0

// Package statefile keeps on disk the little that an agent must know when it
// starts and no API server answers: at which addresses API servers were, and
// what the Services under retention had.
//
// A file is replaced whole or not at all, and proves by a checksum that it is
// whole. The package decides nothing: who may be believed, and for how long,
// is for others to say. Neither the kernel nor a Kubernetes client may enter.
package statefile

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/tables"
)

// format is the number of the shape of a file. A file of another number is not
// read: the API server tells again what it said.
const format = 1

// maxSize bounds a file. A remembered backend takes some 150 bytes.
const maxSize = 4 << 20

// Content is what a file holds.
type Content struct {
	Saved     time.Time        `json:"saved"`
	Endpoints []netip.AddrPort `json:"endpoints"` // of API servers, the last good one first
	Memory    tables.Memory    `json:"memory"`
}

// file is the shape of the whole. Checksum is the SHA-256 of the bytes of
// Content as they stand in the file.
type file struct {
	Format   int             `json:"format"`
	Checksum string          `json:"checksum"`
	Content  json.RawMessage `json:"content"`
}

// Read returns what the file at path holds. Where there is none, the error is
// fs.ErrNotExist: so it is before the first Write. A file that cannot be
// understood whole is an error, and nothing of it is returned.
func Read(path string) (Content, error) {
	text, err := load(path)
	if err != nil {
		return Content{}, fmt.Errorf("read the state file %s: %w", path, err)
	}
	c, err := decode(text)
	if err != nil {
		return Content{}, fmt.Errorf("read the state file %s: %w", path, err)
	}
	return c, nil
}

// load reads a regular file. It follows no link to it, does not wait for the
// other end of a pipe, and reads no more than it must to see that it is too
// much.
func load(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, errNotRegular(os.ModeSymlink)
	}
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errNotRegular(info.Mode())
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxSize:
		return nil, fmt.Errorf("it is larger than %d bytes, which no state is", maxSize)
	case len(text) == 0:
		return nil, errors.New("it is empty")
	}
	return text, nil
}

// errNotRegular says what stands where the file should be.
func errNotRegular(mode os.FileMode) error {
	what := "no regular file"
	switch {
	case mode.IsDir():
		what = "a folder"
	case mode&os.ModeSymlink != 0:
		what = "a symbolic link, which is not followed"
	}
	return fmt.Errorf("it is %s: name a file of its own for the state", what)
}

// decode reads the text of a file. The format comes first, since all else may
// look different in another one.
func decode(text []byte) (Content, error) {
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return Content{}, fmt.Errorf("it is damaged: %w", err)
	}
	if head.Format != format {
		return Content{}, fmt.Errorf("it has format %d, and this version reads format %d only", head.Format, format)
	}
	var whole file
	if err := json.Unmarshal(text, &whole); err != nil {
		return Content{}, fmt.Errorf("it is damaged: %w", err)
	}
	if whole.Checksum != checksum(whole.Content) {
		return Content{}, errors.New("it is damaged: the checksum is not that of the content")
	}
	var c Content
	if err := json.Unmarshal(whole.Content, &c); err != nil {
		return Content{}, fmt.Errorf("it is damaged: %w", err)
	}
	if err := check(c); err != nil {
		return Content{}, fmt.Errorf("it holds what no agent writes: %w", err)
	}
	return c, nil
}

// encode writes the text of a file. Content that Read would refuse is not
// written over one that it takes.
func encode(c Content) ([]byte, error) {
	if err := check(c); err != nil {
		return nil, err
	}
	content, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(file{format, checksum(content), content})
	if err != nil {
		return nil, err
	}
	text = append(text, '\n')
	if len(text) > maxSize {
		return nil, fmt.Errorf("the state takes %d bytes, more than the %d of a file: fewer Services can be retained", len(text), maxSize)
	}
	return text, nil
}

func checksum(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
