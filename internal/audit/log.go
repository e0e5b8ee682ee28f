// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"slices"
	"time"
)

// remembered is how many records back a record is known again, when files
// overlap. Records come in the order of their times, so copies come close
// together.
const remembered = 1 << 17

// Losses is what could not be read, or was not counted.
type Losses struct {
	// Broken lines are no JSON: cut by a rotation or a full disk.
	Broken int `json:"broken"`
	// Torn files end before their end, or cannot be read on.
	Torn int `json:"torn"`
	// TooLong lines were passed over.
	TooLong int `json:"tooLong"`
	// Other values are JSON, and no audit records.
	Other int `json:"other"`
	// Duplicates are records that another file, or the same, has as well.
	Duplicates int `json:"duplicates"`
	// First says where the first loss was, and what.
	First string `json:"first,omitempty"`
}

// Any says whether something could not be read.
func (l Losses) Any() bool { return l.Broken+l.Torn+l.TooLong > 0 }

func (l *Losses) lose(counter *int, path string, line int, err error) {
	*counter++
	if l.First == "" {
		l.First = fmt.Sprintf("%s:%d: %v", path, line, err)
	}
}

// Log is a set of files: rotated ones, of one server or of several.
type Log struct {
	files  []source
	shifts map[string]time.Duration // by server
	losses Losses
}

// source is a file whose first record is known: of which server, and when.
type source struct {
	path   string
	server string
	begin  time.Time
}

// Open looks for the first record of each file, by which the files get their
// order. Paths are those of Files. A file that cannot be opened is an error; one
// without a record is not.
func Open(ctx context.Context, paths ...string) (*Log, error) {
	files, err := Files(paths...)
	if err != nil {
		return nil, err
	}
	l := &Log{}
	for _, path := range files {
		// What is lost here is met again, and counted, when the records are read.
		f := file{path: path, server: logName(path), losses: &Losses{}}
		first := source{path: path}
		err := f.records(ctx, func(r Record) bool {
			first.server, first.begin = r.Server, r.Time
			return false
		})
		if err := cmp.Or(err, ctx.Err()); err != nil {
			return nil, err
		}
		l.files = append(l.files, first)
	}
	l.Shift(nil)
	return l, nil
}

// Shift says by how much servers' clocks are behind. It puts files and records
// of several servers into the order in which things happened; the times that
// records have stay those of their servers.
func (l *Log) Shift(by map[string]time.Duration) {
	l.shifts = by
	slices.SortStableFunc(l.files, func(a, b source) int {
		return cmp.Or(l.began(a).Compare(l.began(b)), cmp.Compare(a.path, b.path))
	})
}

func (l *Log) began(s source) time.Time { return s.begin.Add(l.shifts[s.server]) }

// Losses is what the last pass through the records lost.
func (l *Log) Losses() Losses { return l.losses }

// Records yields the records of all files once each. Across files they come in
// the order of their times; within a file, in the file's order. An error ends
// the records: a file that went away, or ctx.
func (l *Log) Records(ctx context.Context) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		l.losses = Losses{}
		m := &merge{log: l, waiting: l.files, losses: &l.losses}
		defer m.stop()
		seen := newWindow()
		for {
			r, ok := m.next(ctx)
			if err := cmp.Or(m.err, ctx.Err()); err != nil {
				yield(Record{}, err)
				return
			}
			if !ok {
				return
			}
			if r.AuditID != "" && seen.again(r.AuditID, string(r.Stage)) {
				l.losses.Duplicates++
				continue
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}

// merge takes the earliest record of the files that are open. A file is opened
// when its first record may be the next.
type merge struct {
	log     *Log
	waiting []source
	open    cursors
	losses  *Losses
	err     error
}

type cursor struct {
	head Record
	at   time.Time // of head, when it really was
	next func() (Record, bool)
	stop func()
}

func (m *merge) next(ctx context.Context) (Record, bool) {
	for len(m.waiting) > 0 && (len(m.open) == 0 || !m.log.began(m.waiting[0]).After(m.open[0].at)) {
		m.start(ctx, m.waiting[0].path)
		m.waiting = m.waiting[1:]
	}
	if len(m.open) == 0 || m.err != nil {
		return Record{}, false
	}
	first := m.open[0]
	r := first.head
	head, ok := first.next()
	if !ok {
		first.stop()
		heap.Pop(&m.open)
		return r, true
	}
	m.see(first, head)
	heap.Fix(&m.open, 0)
	return r, true
}

func (m *merge) start(ctx context.Context, path string) {
	f := file{path: path, server: logName(path), losses: m.losses}
	c := &cursor{}
	c.next, c.stop = iter.Pull(func(yield func(Record) bool) {
		if err := f.records(ctx, yield); err != nil {
			m.err = errors.Join(m.err, err)
		}
	})
	if head, ok := c.next(); ok {
		m.see(c, head)
		heap.Push(&m.open, c)
	}
}

func (m *merge) see(c *cursor, head Record) {
	c.head, c.at = head, head.Time.Add(m.log.shifts[head.Server])
}

func (m *merge) stop() {
	for _, c := range m.open {
		c.stop()
	}
}

// cursors is a heap by the time of the next record.
type cursors []*cursor

func (c cursors) Len() int           { return len(c) }
func (c cursors) Less(i, j int) bool { return c[i].at.Before(c[j].at) }
func (c cursors) Swap(i, j int)      { c[i], c[j] = c[j], c[i] }

// Push is for package heap.
func (c *cursors) Push(x any) { *c = append(*c, x.(*cursor)) }

// Pop is for package heap.
func (c *cursors) Pop() any {
	last := (*c)[len(*c)-1]
	*c = (*c)[:len(*c)-1]
	return last
}

// window knows the last records by a hash, which two of them share by accident
// once in 10^14 times.
type window struct {
	seed maphash.Seed
	ring []uint64
	at   int
	keys map[uint64]struct{}
}

func newWindow() *window {
	return &window{seed: maphash.MakeSeed(), keys: map[uint64]struct{}{}}
}

// again says whether the record is in the window, and puts it there.
func (w *window) again(id, stage string) bool {
	key := maphash.Comparable(w.seed, [2]string{id, stage})
	if _, ok := w.keys[key]; ok {
		return true
	}
	w.keys[key] = struct{}{}
	if len(w.ring) < remembered {
		w.ring = append(w.ring, key)
		return false
	}
	delete(w.keys, w.ring[w.at])
	w.ring[w.at] = key
	w.at = (w.at + 1) % remembered
	return false
}
