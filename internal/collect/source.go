// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/evidence"
)

const (
	// sourceTime bounds the time that one source may take.
	sourceTime = 30 * time.Second
	// maxContent bounds what one source may give: more than the largest clusters
	// have, and little enough to hold some of it in memory.
	maxContent = 64 << 20
)

// errNothing is what a source answers that turns out not to be there: there is
// no record of it.
var errNothing = errors.New("there is nothing to read")

// source is one thing to read.
type source struct {
	// record is what is known before: its path below the sample's folder.
	record evidence.Record
	read   reader
}

type reader func(context.Context) (output, error)

// output is what a source gave.
type output struct {
	content []byte
	version string // of a list
	cut     bool
	partial string // why there is only a part, if so
}

// run reads the source into a record. There is none if the source is not there.
func (s source) run(ctx context.Context, sample int) (evidence.Record, bool) {
	ctx, cancel := context.WithTimeout(ctx, sourceTime)
	defer cancel()
	r := s.record
	r.Sample = sample
	if sample > 0 {
		r.Path = path.Join(strconv.Itoa(sample), r.Path)
	}
	r.Time = time.Now()
	out, err := s.read(ctx)
	r.Took = time.Since(r.Time)
	if errors.Is(err, errNothing) {
		return r, false
	}
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("it took longer than %s: %w", sourceTime, err)
	}
	if err != nil {
		out.partial = err.Error()
	}
	r.Content, r.Version, r.Cut, r.Error = out.content, out.version, out.cut, out.partial
	if len(r.Content) > maxContent {
		r.Content, r.Cut = wholeLines(r.Content[:maxContent]), true
	}
	if r.Error != "" || r.Cut {
		r.Resources = nil
	}
	return r, true
}

// wholeLines leaves out a last line that is not complete.
func wholeLines(text []byte) []byte {
	return text[:bytes.LastIndexByte(text, '\n')+1]
}

// inJSON is the output of a command that prints JSON.
func inJSON(answer any, err error) (output, error) {
	if err != nil {
		return output{}, err
	}
	content, err := json.MarshalIndent(answer, "", "  ")
	if err != nil {
		return output{}, fmt.Errorf("write the answer as JSON: %w", err)
	}
	return output{content: append(content, '\n')}, nil
}

// bounded keeps the beginning of what is written to it.
type bounded struct {
	kept bytes.Buffer // no part of the type's methods: it would read without bound
	cut  bool
}

// Write implements io.Writer; it never fails, so that who writes goes on.
func (b *bounded) Write(text []byte) (int, error) {
	room := maxContent - b.kept.Len()
	b.cut = b.cut || len(text) > room
	b.kept.Write(text[:min(len(text), room)])
	return len(text), nil
}

func (b *bounded) output() output {
	if b.cut {
		return output{content: wholeLines(b.kept.Bytes()), cut: true}
	}
	return output{content: b.kept.Bytes()}
}

// unique gives records of the same path paths of their own. What a path says of
// its record stands in front of the first dot.
func unique(records []evidence.Record) {
	seen := map[string]int{}
	for i := range records {
		p := &records[i].Path
		seen[*p]++
		if n := seen[*p]; n > 1 {
			folder, name := path.Split(*p)
			first, rest, _ := strings.Cut(name, ".")
			*p = folder + first + "." + strconv.Itoa(n) + "." + rest
		}
	}
}
