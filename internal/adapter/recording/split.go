// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/adapter"
)

// headBytes is how much of a text decides which format it has.
const headBytes = 64 << 10

// splitter finds the texts of a file.
type splitter struct {
	formats []adapter.Format
	zone    *time.Location

	found        []text
	unknown      int // lines that belong to no text
	firstUnknown int

	current *text
	moment  time.Time // of the last line that says one
}

// text is one dump, or a part of one, between two offsets.
type text struct {
	format     adapter.Format
	time       time.Time
	line       int
	begin, end int64
	head       []byte
	json       *balance // nil if it is none
	parts      []string
	torn       int // the line within which the file ends; 0: none
}

// piece is a line, or a part of one that is longer than the buffer.
type piece struct {
	bytes  []byte
	offset int64
	line   int
	first  bool // it begins its line
}

func (s *splitter) read(r io.Reader) error {
	buffered := bufio.NewReaderSize(r, headBytes)
	p := piece{line: 1, first: true}
	begin := int64(0) // of the line
	for {
		var err error
		if p.first {
			begin = p.offset
		}
		p.bytes, err = buffered.ReadSlice('\n')
		whole := err == nil
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) && !errors.Is(err, io.EOF) {
			return err
		}
		if err := s.take(p); err != nil {
			return err
		}
		p.offset += int64(len(p.bytes))
		if errors.Is(err, io.EOF) {
			s.end(p, begin)
			return nil
		}
		p.first = whole
		if whole {
			p.line++
		}
	}
}

// end ends what the end of the file ends. A cut line may be that of another
// address: it is left out. JSON and the tables of iptables have ends of their own.
func (s *splitter) end(last piece, begin int64) {
	t := s.current
	if len(last.bytes) == 0 || t == nil || t.json != nil || t.format.Part != nil {
		s.close(last.offset)
		return
	}
	if t.begin == begin {
		s.current = nil
		s.strange(last.line)
		return
	}
	t.torn = last.line
	s.close(begin)
}

// take decides what a line belongs to.
func (s *splitter) take(p piece) error {
	if len(p.bytes) == 0 {
		return nil
	}
	if !p.first {
		s.grow(p)
		return nil
	}
	line := strings.TrimRight(string(p.bytes), "\r\n")
	if at, found := strings.CutPrefix(line, "# time:"); found {
		s.close(p.offset)
		var err error
		s.moment, err = time.Parse(time.RFC3339, strings.TrimSpace(at))
		if torn := p.bytes[len(p.bytes)-1] != '\n'; err != nil && !torn { // nothing follows a torn one
			return fmt.Errorf("line %d: %q is no time: write it as 2026-01-02T15:04:05Z", p.line, strings.TrimSpace(at))
		}
		return nil
	}
	if s.current != nil && s.current.goesOn(line, s.formats) {
		s.grow(p)
		return nil
	}
	s.close(p.offset)
	if jsonLine.MatchString(line) {
		s.current = &text{line: p.line, begin: p.offset, time: s.moment, json: &balance{}}
		s.grow(p)
		return nil
	}
	if f, found := beginning(line, s.formats); found {
		s.current = &text{format: f, line: p.line, begin: p.offset, time: s.moment}
		s.grow(p)
		return nil
	}
	if !isNoise(line) {
		s.strange(p.line)
	}
	return nil
}

func (s *splitter) strange(line int) {
	if s.unknown++; s.unknown == 1 {
		s.firstUnknown = line
	}
}

// jsonLine begins a JSON text. An IPv6 address in brackets does not.
var jsonLine = regexp.MustCompile(`^\s*[\[{]\s*($|["{\]}])`)

// isNoise says of a line that it stands between dumps when a terminal was
// recorded: it is empty, a comment or a prompt.
func isNoise(line string) bool {
	if strings.TrimSpace(line) == "" || line[0] == '#' {
		return true
	}
	// Most lines have none of a prompt's last characters.
	return strings.ContainsAny(line[:min(len(line), promptBytes)], "#$>") && prompt.MatchString(line)
}

// prompt is like "$ ", "cilium> ", "root@node:/# " and "node:~ # ".
var prompt = regexp.MustCompile(`^(\S{1,80}( \S{1,80})? ?)?[#$>]( |$)`)

const promptBytes = 170

func beginning(line string, formats []adapter.Format) (adapter.Format, bool) {
	for _, f := range formats {
		if f.Begins != nil && f.Begins(line) {
			return f, true
		}
	}
	return adapter.Format{}, false
}

// goesOn says that a line belongs to the text: it does not begin another one,
// and does not stand between two.
func (t *text) goesOn(line string, formats []adapter.Format) bool {
	if t.json != nil {
		return !t.json.done()
	}
	next, begins := beginning(line, formats)
	if begins && next.Source != t.format.Source {
		return false
	}
	if t.format.Part != nil {
		// A part has one line that names it, and its own comments and gaps.
		if !begins {
			return line == "" || line[0] == '#' || !isNoise(line)
		}
		_, named := t.format.Part(t.head)
		return named == ""
	}
	if begins {
		return t.format.Alike
	}
	return !isNoise(line)
}

// grow adds a piece to the current text, if there is one.
func (s *splitter) grow(p piece) {
	if s.current == nil {
		return
	}
	if room := headBytes - len(s.current.head); room > 0 {
		s.current.head = append(s.current.head, p.bytes[:min(room, len(p.bytes))]...)
	}
	if s.current.json != nil {
		s.current.json.feed(p.bytes)
	}
}

// close ends the current text before an offset.
func (s *splitter) close(end int64) {
	t := s.current
	s.current = nil
	if t == nil {
		return
	}
	t.end = end
	if t.json != nil && !t.recognise(s.formats) {
		s.strange(t.line)
		return
	}
	if t.time.IsZero() && t.format.Time != nil {
		t.time = t.format.Time(t.head, s.zone)
	}
	if !s.join(t) {
		s.found = append(s.found, *t)
	}
}

// recognise finds the format of a JSON text.
func (t *text) recognise(formats []adapter.Format) bool {
	for _, f := range formats {
		if f.Holds != nil && f.Holds(t.head) {
			t.format = f
			return true
		}
	}
	return false
}

// join makes a part one dump with those before it.
func (s *splitter) join(t *text) bool {
	if t.format.Part == nil {
		return false
	}
	group, part := t.format.Part(t.head)
	t.parts = []string{group, part}
	if len(s.found) == 0 {
		return false
	}
	last := &s.found[len(s.found)-1]
	if len(last.parts) == 0 || last.parts[0] != group || slices.Contains(last.parts[1:], part) {
		return false
	}
	if t.time.Sub(last.time).Abs() > partsTake {
		return false
	}
	last.parts = append(last.parts, part)
	last.end = t.end
	return true
}

// partsTake is how long a tool may take from the first of its parts to the
// next: each may carry its own time.
const partsTake = 30 * time.Second

// balance finds the end of a JSON text by its brackets.
type balance struct {
	depth           int
	begun           bool
	quoted, escaped bool
}

func (b *balance) done() bool { return b.begun && b.depth == 0 }

func (b *balance) feed(text []byte) {
	for _, c := range text {
		switch {
		case b.escaped:
			b.escaped = false
		case b.quoted && c == '\\':
			b.escaped = true
		case c == '"':
			b.quoted = !b.quoted
		case b.quoted:
		case c == '[' || c == '{':
			b.depth, b.begun = b.depth+1, true
		case c == ']' || c == '}':
			b.depth--
		}
	}
}
