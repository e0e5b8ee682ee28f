// SPDX-License-Identifier: Apache-2.0

package recorder

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/redact"
)

// name is an object's within its kind.
type name struct{ namespace, name string }

func (n name) compare(other name) int {
	return cmp.Or(cmp.Compare(n.namespace, other.namespace), cmp.Compare(n.name, other.name))
}

// state is what is remembered of an object, in order to tell what changes.
type state struct {
	uid, version string
	content      []byte       // nil: it is to be read back from the journal
	unwritten    atomic.Int32 // events that are not in the journal yet
	marks        []uint64     // of its managers; nil: not known
	withheld     redact.Left
	seen         int // number of the list that had it last
}

// room bounds the contents that all kinds together keep in memory.
type room struct {
	limit int64
	used  atomic.Int64
}

// contentRoom has room for the contents of some 20 000 EndpointSlices of ten
// endpoints. A recorder of 10 000 takes 113 MB in all, one of 10 000 with a
// hundred endpoints each, of which most are read back, 225 MB.
const contentRoom = 64 << 20

// states turns what is heard of the objects of one kind into events. It is for
// one goroutine.
type states struct {
	kind     journal.Kind
	journal  *journal.Journal
	redactor *redact.Redactor
	seed     maphash.Seed
	room     *room
	objects  map[name]*state
	lists    int
	scratch  []byte // for texts in the making
	count    atomic.Int64
}

func newStates(kind journal.Kind, j *journal.Journal, limit *room) *states {
	return &states{kind: kind, journal: j, redactor: redact.New(), seed: maphash.MakeSeed(), room: limit, objects: make(map[name]*state)}
}

// recall takes up the objects that the journal had last.
func (s *states) recall(ctx context.Context, wanted func(namespace string) bool) error {
	for e, err := range s.journal.States(ctx, s.kind) {
		if err != nil {
			return err
		}
		if !wanted(e.Namespace) {
			continue
		}
		fields, err := decodeObject(e.Content)
		if err != nil {
			return fmt.Errorf("read the last state of %s %s/%s: %w", e.Kind.Kind, e.Namespace, e.Name, err)
		}
		o := &state{uid: e.UID, version: e.ResourceVersion, withheld: s.redactor.LeftIn(fields)}
		s.objects[name{e.Namespace, e.Name}] = o
		s.keep(o, e.Content)
	}
	s.count.Store(int64(len(s.objects)))
	return nil
}

// see returns what an object that is there is news of: nothing if it is known
// in this version, and two events if another one of its name was known.
func (s *states) see(ctx context.Context, o object, how journal.Type, now time.Time) ([]stored, error) {
	key := name{o.namespace, o.name}
	known := s.objects[key]
	var events []stored
	if known != nil && known.uid != o.uid {
		gone, err := s.lost(ctx, key, now)
		if err != nil {
			return nil, err
		}
		events, known = append(events, gone), nil
	}
	if known != nil && known.version == o.version {
		known.seen = s.lists
		return events, nil
	}
	var old []byte
	if known == nil {
		known = &state{uid: o.uid}
		s.objects[key] = known
		s.count.Add(1)
	} else {
		how = journal.Modified
		var err error
		if old, err = s.contentOf(ctx, key, known); err != nil {
			return nil, err
		}
	}
	known.seen = s.lists
	event := s.event(o, known, old, how, now)
	s.keep(known, event.event.Content)
	return append(events, event), nil
}

// event is what happened to an object, but for what the change was.
func (s *states) event(o object, known *state, old []byte, how journal.Type, now time.Time) stored {
	managers := s.managersOf(o.managedFields)
	known.withheld = s.redactor.Object(s.kind.Group, s.kind.Resource, o.version, o.content, known.withheld)
	e := stored{object: known, old: old, managers: managers, marks: known.marks, event: journal.Event{
		Time: now, Kind: s.kind, Namespace: o.namespace, Name: o.name, UID: o.uid, ResourceVersion: o.version,
		Type: how, Content: bytes.Clone(s.encode(o.content)),
	}}
	known.version, known.marks = o.version, marksOf(managers)
	return e
}

// encode returns a text that lasts until the next call.
func (s *states) encode(value any) []byte {
	s.scratch = journal.AppendEncoded(s.scratch[:0], value)
	return s.scratch
}

// remove takes an object that a watch saw go, in its last state.
func (s *states) remove(ctx context.Context, o object, now time.Time) ([]stored, error) {
	key := name{o.namespace, o.name}
	known := s.objects[key]
	if known != nil && known.uid != o.uid {
		return nil, nil // one that was already missed
	}
	var old []byte
	if known == nil {
		known = &state{uid: o.uid}
	} else {
		var err error
		if old, err = s.contentOf(ctx, key, known); err != nil {
			return nil, err
		}
	}
	event := s.event(o, known, old, journal.Deleted, now)
	s.forget(key)
	return []stored{event}, nil
}

// missing returns the end of every object that the last list did not have.
func (s *states) missing(ctx context.Context, now time.Time) ([]stored, error) {
	var gone []name
	for key, o := range s.objects {
		if o.seen != s.lists {
			gone = append(gone, key)
		}
	}
	slices.SortFunc(gone, name.compare)
	var events []stored
	for _, key := range gone {
		e, err := s.lost(ctx, key, now)
		if err != nil {
			return nil, err
		}
		events = append(events, e)
	}
	return events, nil
}

// lost forgets an object that went unseen.
func (s *states) lost(ctx context.Context, key name, now time.Time) (stored, error) {
	known := s.objects[key]
	content, err := s.contentOf(ctx, key, known)
	if err != nil {
		return stored{}, err
	}
	s.forget(key)
	return stored{object: known, event: journal.Event{
		Time: now, Kind: s.kind, Namespace: key.namespace, Name: key.name, UID: known.uid,
		ResourceVersion: known.version, Type: journal.Absent, Content: content,
	}}, nil
}

// contentOf is an object's last content.
func (s *states) contentOf(ctx context.Context, key name, known *state) ([]byte, error) {
	if known.content != nil {
		return known.content, nil
	}
	e, found, err := s.journal.State(ctx, s.kind, key.namespace, key.name, known.uid)
	if err == nil && !found {
		err = fmt.Errorf("the last state of %s %s/%s is not in the journal any more", s.kind.Kind, key.namespace, key.name)
	}
	return e.Content, err
}

// keepTries is how many others are looked at when room is to be made: one of
// them most often has a content that can go.
const keepTries = 16

// keep remembers a content, and makes room for it at the cost of any others
// of the kind that are in the journal by now.
func (s *states) keep(o *state, content []byte) {
	s.room.used.Add(int64(len(content) - len(o.content)))
	o.content = content
	tries := 0
	for _, other := range s.objects {
		if tries++; tries > keepTries || s.room.used.Load() <= s.room.limit {
			return
		}
		if other != o && other.unwritten.Load() == 0 {
			s.room.used.Add(-int64(len(other.content)))
			other.content = nil
		}
	}
}

func (s *states) forget(key name) {
	if known := s.objects[key]; known != nil {
		s.room.used.Add(-int64(len(known.content)))
	}
	delete(s.objects, key)
	s.count.Store(int64(len(s.objects)))
}

// release gives back the room of all objects, when the kind is followed no more.
func (s *states) release() {
	for _, o := range s.objects {
		s.room.used.Add(-int64(len(o.content)))
	}
}
