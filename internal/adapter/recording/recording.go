// SPDX-License-Identifier: Apache-2.0

// Package recording finds the dumps in a file that somebody recorded on a
// node: which format each has, and from which moment it is.
//
// It reads a file once to find them and then each dump on its own, so that a
// recording of any length takes the memory of one dump. README.md of package
// adapter says how people record. What a dump means is not known here.
package recording

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/adapter"
	"github.com/fairlead-io/fairlead/internal/adapter/cilium"
	"github.com/fairlead-io/fairlead/internal/adapter/fairlead"
	"github.com/fairlead-io/fairlead/internal/adapter/iptables"
	"github.com/fairlead-io/fairlead/internal/adapter/ipvs"
	"github.com/fairlead-io/fairlead/internal/adapter/nftables"
)

// Formats are all that Fairlead reads.
func Formats() []adapter.Format {
	return slices.Concat(fairlead.Formats(), cilium.Formats(), iptables.Formats(), nftables.Formats(), ipvs.Formats())
}

// Recording is an open file with its dumps. Close it.
type Recording struct {
	Sections []Section
	// Warnings say what of the file is not among them, and what was assumed.
	Warnings []string

	file *os.File
}

// Section is one dump of a recording.
type Section struct {
	Time time.Time
	Line int // the first, in the file

	format     adapter.Format
	file       io.ReaderAt
	begin, end int64
	torn       int // the line within which the file ends; 0: none
}

// Open finds the dumps in a file. A time whose zone a dump leaves open is one
// of this zone.
func Open(path string, zone *time.Location) (*Recording, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("open the recording: %w", err)
	}
	// Nobody may write into a pipe, so that to open it would last for ever.
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("open the recording %s: it is no regular file, and dumps are read one by one: write it to a file first", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the recording: %w", err)
	}
	r := &Recording{file: file}
	if err := r.find(zone); err != nil {
		file.Close()
		return nil, fmt.Errorf("read the recording %s: %w", path, err)
	}
	return r, nil
}

// Close closes the file.
func (r *Recording) Close() error { return r.file.Close() }

// Dump reads the section.
func (s *Section) Dump() adapter.Dump {
	d := s.format.Parse(io.NewSectionReader(s.file, s.begin, s.end-s.begin))
	d.Time = s.Time
	for i := range d.Frontends {
		d.Frontends[i].Line += s.Line - 1
	}
	for i := range d.Problems {
		d.Problems[i].Line += s.Line - 1
	}
	if s.torn > 0 {
		d.Problemf(s.torn, "the file ends within this line, which is not read")
	}
	return d
}

// Dumps reads the dumps of a text that is in memory. Those of which nothing says
// when they were recorded have no time. Unknown counts lines that belong to none.
func Dumps(content []byte, zone *time.Location) (dumps []adapter.Dump, unknown int, err error) {
	s := splitter{formats: Formats(), zone: zone}
	if err := s.read(bytes.NewReader(content)); err != nil {
		return nil, 0, err
	}
	for _, t := range s.found {
		if t.format.Parse == nil {
			continue
		}
		section := Section{t.time, t.line, t.format, bytes.NewReader(content), t.begin, t.end, t.torn}
		dumps = append(dumps, section.Dump())
	}
	return dumps, s.unknown, nil
}

// Sources names the formats of the dumps in a text, in their order, each once.
func Sources(content []byte) []string {
	s := splitter{formats: Formats(), zone: time.UTC}
	if err := s.read(bytes.NewReader(content)); err != nil {
		return nil
	}
	var sources []string
	for _, t := range s.found {
		if !slices.Contains(sources, t.format.Source) {
			sources = append(sources, t.format.Source)
		}
	}
	return sources
}

func (r *Recording) find(zone *time.Location) error {
	info, err := r.file.Stat()
	if err != nil {
		return err
	}
	s := splitter{formats: Formats(), zone: zone}
	if err := s.read(r.file); err != nil {
		return err
	}
	if len(s.found) == 0 {
		return errors.New("it holds no dump of Fairlead, Cilium, iptables-save, nft -j or ipvsadm")
	}
	if s.unknown > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%s: %d lines belong to no dump that fairlead knows, the first is line %d", r.file.Name(), s.unknown, s.firstUnknown))
	}
	fallback, fromName := timeInName(filepath.Base(r.file.Name()))
	if !fromName {
		fallback = info.ModTime()
	}
	for _, t := range s.found {
		if t.format.Parse == nil {
			continue
		}
		at := t.time
		if at.IsZero() {
			at = fallback
			r.assume(fromName, fallback)
		}
		r.Sections = append(r.Sections, Section{at, t.line, t.format, r.file, t.begin, t.end, t.torn})
	}
	return nil
}

// assume warns once that times are those of the file.
func (r *Recording) assume(fromName bool, at time.Time) {
	if fromName || slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.Contains(w, noTime) }) {
		return
	}
	r.Warnings = append(r.Warnings, fmt.Sprintf("%s: %s, so it is taken to be from when the file was last written, %s", r.file.Name(), noTime, at.UTC().Format(time.RFC3339)))
}

const noTime = "nothing says when it was recorded"

// nameTime is a time as file names carry it: 20261120T223443Z,
// 2026-11-20T22:34:43Z, or with dashes for the colons.
var nameTime = regexp.MustCompile(`(\d{4})-?(\d\d)-?(\d\d)T(\d\d)[:-]?(\d\d)[:-]?(\d\d)Z`)

func timeInName(name string) (time.Time, bool) {
	found := nameTime.FindStringSubmatch(name)
	if found == nil {
		return time.Time{}, false
	}
	at, err := time.Parse("20060102150405", strings.Join(found[1:], ""))
	return at, err == nil
}
