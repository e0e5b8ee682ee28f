// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
)

// documentStart is how a file begins that is one JSON document, or several,
// rather than one value per line: a list, an object in several lines, an object
// that is nothing but a list, or an EventList.
var documentStart = regexp.MustCompile(`^(?:\x{FEFF})?\s*(\[|\{\s*\n|\{\s*"(?:events|records|results|entries|items)"\s*:|\{[^\n]{0,64}"kind"\s*:\s*"EventList")`)

func isDocument(in *bufio.Reader) bool {
	start, _ := in.Peek(512)
	return documentStart.Match(start)
}

// document yields the records of JSON documents, of which it holds one element
// of a list at a time. Behind an error it cannot tell where the next element
// begins, so there it ends.
func (f *file) document(in *bufio.Reader, yield func(Record) bool) {
	if mark, _ := in.Peek(3); string(mark) == "\ufeff" {
		_, _ = in.Discard(len(mark)) // it was peeked, so it is there
	}
	source := &counted{in: in, line: 1}
	w := &walk{file: f, source: source, json: json.NewDecoder(source), yield: yield}
	err := w.run()
	if err == nil || errors.Is(err, errStopped) {
		return
	}
	f.losses.lose(&f.losses.Torn, f.path, w.line(), fmt.Errorf("the document cannot be read on: %w", err))
}

// errStopped ends a walk whose reader wants no more.
var errStopped = errors.New("stopped")

// walk goes through documents.
type walk struct {
	file   *file
	source *counted
	json   *json.Decoder
	yield  func(Record) bool
	raw    json.RawMessage
}

func (w *walk) run() error {
	for {
		token, err := w.json.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch token {
		case json.Delim('['):
			err = w.list()
		case json.Delim('{'):
			err = w.object()
		default:
			w.file.losses.Other++
		}
		if err != nil {
			return err
		}
	}
}

// list takes the elements of a list that has been entered.
func (w *walk) list() error {
	for w.json.More() {
		if err := w.json.Decode(&w.raw); err != nil {
			return err
		}
		if !w.file.take(w.raw, w.line(), w.yield) {
			return errStopped
		}
		w.source.at(w.json.InputOffset())
	}
	_, err := w.json.Token()
	return err
}

// object goes into the lists of an object that wraps records, or takes the
// object if it has none.
func (w *walk) object() error {
	line := w.line()
	fields := map[string]json.RawMessage{}
	wraps := false
	for w.json.More() {
		key, err := w.json.Token()
		if err != nil {
			return err
		}
		name, _ := key.(string)
		if isList(name) {
			wraps = true
			err = w.field()
		} else {
			var value json.RawMessage
			err = w.json.Decode(&value)
			fields[name] = value
		}
		if err != nil {
			return err
		}
	}
	if _, err := w.json.Token(); err != nil || wraps {
		return err
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("put an object together again: %w", err)
	}
	if !w.file.take(text, line, w.yield) {
		return errStopped
	}
	w.source.at(w.json.InputOffset())
	return nil
}

// field takes the value of a field that should be a list. What else it may be
// is passed over.
func (w *walk) field() error {
	token, err := w.json.Token()
	if err != nil {
		return err
	}
	if token == json.Delim('[') {
		return w.list()
	}
	for depth := opens(token); depth > 0; depth += opens(token) {
		if token, err = w.json.Token(); err != nil {
			return err
		}
	}
	return nil
}

// opens is by how much a token changes the depth.
func opens(token json.Token) int {
	switch token {
	case json.Delim('['), json.Delim('{'):
		return 1
	case json.Delim(']'), json.Delim('}'):
		return -1
	}
	return 0
}

// line is that on which the last token ended.
func (w *walk) line() int { return w.source.at(w.json.InputOffset()) }

// counted knows the line of each offset that a JSON decoder may still ask for,
// and refuses to feed it more than one record's length at a time.
type counted struct {
	in io.Reader
	// read is how many bytes were read, done the offset of which was asked last.
	read, done int64
	line       int
	// ends are the offsets of the ends of lines at done or later.
	ends []int64
}

func (c *counted) Read(p []byte) (int, error) {
	if c.read-c.done > maxRecord {
		return 0, errLong
	}
	n, err := c.in.Read(p)
	for at := 0; ; {
		next := bytes.IndexByte(p[at:n], '\n')
		if next < 0 {
			break
		}
		at += next + 1
		c.ends = append(c.ends, c.read+int64(at))
	}
	c.read += int64(n)
	return n, err
}

func (c *counted) at(offset int64) int {
	passed := 0
	for passed < len(c.ends) && c.ends[passed] <= offset {
		passed++
	}
	c.ends = append(c.ends[:0], c.ends[passed:]...)
	c.line += passed
	c.done = offset
	return c.line
}
