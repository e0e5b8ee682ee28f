// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
)

const (
	readBuffer = 256 << 10
	// maxRecord bounds one line, or one element of a document. API servers take
	// no request of more than 3 MiB, and a record holds an object twice.
	maxRecord = 32 << 20
	// keptBuffer is how much of a long line's memory stays for the next one.
	keptBuffer = 1 << 20
	// maxPrefix is how much a line may say before its JSON begins: a time, and
	// whatever else a log collector writes there.
	maxPrefix = 128
)

var errLong = fmt.Errorf("longer than %d MiB", maxRecord>>20)

// errTimeless is a record that has no place among the others.
var errTimeless = errors.New("a record without a time that can be read")

// rotation is what log rotation puts into a name: of the API server itself, and
// of logrotate, with numbers or dates.
var rotation = regexp.MustCompile(`(-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}(\.[a-z]+)?|\.\d+|-\d{8,10})?(\.gz)?$`)

// logName is what the files of one rotated log have in common.
func logName(path string) string {
	match := rotation.FindStringSubmatchIndex(path)
	name := path[:match[0]]
	if match[4] >= 0 {
		name += path[match[4]:match[5]] // the extension, which the server puts behind the time
	}
	if name == "" || strings.HasSuffix(name, "/") {
		return path
	}
	return name
}

// file reads the records of one file, in the file's order.
type file struct {
	path   string
	server string
	losses *Losses
	// lines is how many lines were begun.
	lines int
	buf   []byte
	decoder
}

// records yields what can be read. What cannot is counted in the losses; only a
// file that cannot be opened is an error.
func (f *file) records(ctx context.Context, yield func(Record) bool) error {
	raw, err := os.Open(f.path)
	if err != nil {
		return fmt.Errorf("open the audit log: %w", err)
	}
	defer raw.Close()
	in, err := plain(bufio.NewReaderSize(during{ctx, raw}, readBuffer))
	if err != nil {
		f.losses.lose(&f.losses.Torn, f.path, 1, fmt.Errorf("the file cannot be read: %w", err))
		return nil
	}
	f.read(in, yield)
	return nil
}

func (f *file) read(in *bufio.Reader, yield func(Record) bool) {
	if isDocument(in) {
		f.document(in, yield)
		return
	}
	for {
		line, err := f.readLine(in)
		if errors.Is(err, errLong) {
			f.losses.lose(&f.losses.TooLong, f.path, f.lines, err)
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			f.losses.lose(&f.losses.Torn, f.path, f.lines, fmt.Errorf("the file cannot be read on: %w", err))
			return
		}
		if len(line) > 0 && !f.take(line, f.lines, yield) || err != nil {
			return
		}
	}
}

// during reads until nobody wants it any more: a file may be large, and hold no
// record at all.
type during struct {
	ctx context.Context
	io.Reader
}

// Read reads on while the context lasts.
func (d during) Read(p []byte) (int, error) {
	if err := d.ctx.Err(); err != nil {
		return 0, err
	}
	return d.Reader.Read(p)
}

// plain is what is inside if a file is compressed, whatever its name.
func plain(in *bufio.Reader) (*bufio.Reader, error) {
	if magic, _ := in.Peek(2); !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return in, nil
	}
	inside, err := gzip.NewReader(in)
	if err != nil {
		return nil, err
	}
	return bufio.NewReaderSize(inside, readBuffer), nil
}

// readLine returns the next line without its end. With errLong the line was
// passed over; with any other error the line is what was left.
func (f *file) readLine(in *bufio.Reader) ([]byte, error) {
	f.lines++
	if cap(f.buf) > keptBuffer {
		f.buf = nil
	}
	f.buf = f.buf[:0]
	long := false
	for {
		part, err := in.ReadSlice('\n')
		if len(f.buf)+len(part) > maxRecord {
			long, f.buf = true, nil
		}
		if !long {
			f.buf = append(f.buf, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if long && (err == nil || errors.Is(err, io.EOF)) {
			return nil, errLong
		}
		return bytes.TrimSpace(f.buf), err
	}
}

// take yields the records of one line or element, and returns whether to go on.
func (f *file) take(text []byte, line int, yield func(Record) bool) bool {
	f.decoder.records = f.decoder.records[:0]
	err := f.values(withoutPrefix(text))
	if errors.Is(err, errOther) {
		f.losses.Other++
	} else if err != nil {
		f.losses.lose(&f.losses.Broken, f.path, line, err)
	}
	for _, r := range f.decoder.records {
		if r.Time.IsZero() {
			f.losses.lose(&f.losses.Broken, f.path, line, errTimeless)
			continue
		}
		r.File, r.Line, r.Server = f.path, line, or(r.Server, f.server)
		if !yield(r) {
			return false
		}
	}
	return true
}

// values decodes a line, which some exports fill with more than one value.
func (f *file) values(text []byte) error {
	err := f.decode(text, "", 0)
	if err == nil || errors.Is(err, errOther) || json.Valid(text) {
		return err
	}
	in := json.NewDecoder(bytes.NewReader(text))
	for in.More() {
		var value json.RawMessage
		if broken := in.Decode(&value); broken != nil {
			return fmt.Errorf("broken JSON: %w", broken)
		}
		if err := f.decode(value, "", 0); errors.Is(err, errOther) {
			f.losses.Other++
		} else if err != nil {
			return err
		}
	}
	return nil
}

func withoutPrefix(line []byte) []byte {
	line = bytes.TrimPrefix(line, []byte("\ufeff"))
	if at := bytes.IndexByte(line, '{'); at > 0 && at <= maxPrefix && line[0] != '[' {
		return line[at:]
	}
	return line
}
