// SPDX-License-Identifier: Apache-2.0

// Package tables holds the desired state: one immutable row per Service, with
// everything that was compiled for it, the objects it was compiled from, and
// its last transitions with their causes.
//
// A Writer is the only one to change rows. Readers get snapshots that never
// change. The reconciler follows the changes and reports back what it could
// not write; that report is the only thing that ever flows against the
// direction of events.
//
// The package knows nothing of Kubernetes clients or of the kernel.
package tables

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/cilium/statedb"
	"github.com/cilium/statedb/index"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
)

// Service is one row. Nothing in it is modified after it was committed.
type Service struct {
	Name   model.Name
	Object *model.Service
	Slices []*model.EndpointSlice // its own, sorted by name
	// Ignored says why the Service has no frontends, if so (R1, R2).
	Ignored string
	// Restored says that the row was made from what a file remembers of the
	// Service, since the API was not heard of.
	Restored bool
	// Own is what Compile made of the Service, Compiled what Resolve and then
	// Retention left of it. A row that changed nothing for the kernel shares
	// both with the row before it.
	Own      model.Compiled
	Compiled model.Compiled
	// Changed is when Compiled last changed.
	Changed time.Time
	// History holds the last transitions, oldest first.
	History []Transition
	// Triggers are what led to the versions of the slices.
	Triggers Triggers

	key string // namespace/name, the primary key
}

// Transition is a change of what a Service's frontends do.
type Transition struct {
	Time    time.Time
	Causes  []Cause
	Changes []string // in words, one fact each
}

// Cause is an object whose event led to a transition, or what else did.
type Cause struct {
	Kind            reflector.Kind
	Name            model.Name
	ResourceVersion string
	Deleted         bool
	Other           string // in words, where it was no object; the rest is zero then
}

// historyLength bounds the transitions kept per Service.
const historyLength = 16

// TableHeader and TableRow let the rows be printed by statedb's own tools.
func (s *Service) TableHeader() []string {
	return []string{"Service", "Frontends", "Sets", "Changed"}
}

// TableRow is the row for TableHeader.
func (s *Service) TableRow() []string {
	return []string{s.key, fmt.Sprint(len(s.Compiled.Claims)), fmt.Sprint(len(s.Compiled.Sets)), s.Changed.UTC().Format(time.RFC3339)}
}

var byName = statedb.Index[*Service, string]{
	Name:       "name",
	FromObject: func(s *Service) index.KeySet { return index.NewKeySet(index.String(s.key)) },
	FromKey:    index.String,
	FromString: index.FromString,
	Unique:     true,
}

// Tables is the desired state. Its methods may be called from any goroutine.
type Tables struct {
	db       *statedb.DB
	services statedb.RWTable[*Service]
	complete func(statedb.WriteTxn) // marks the first fill as complete

	mu      sync.Mutex
	status  status
	changed chan struct{} // closed and replaced whenever rows or status change
	version uint64
}

// New returns empty tables.
func New() (*Tables, error) {
	db := statedb.New()
	services, err := statedb.NewTable(db, "services", byName)
	if err != nil {
		return nil, fmt.Errorf("create the services table: %w", err)
	}
	t := &Tables{db: db, services: services, changed: make(chan struct{}), status: newStatus()}
	txn := db.WriteTxn(services)
	t.complete = services.RegisterInitializer(txn, "first list")
	txn.Commit()
	return t, nil
}

// Start runs what the tables need in the background, until ctx ends.
func (t *Tables) Start(ctx context.Context) error {
	if err := t.db.Start(); err != nil {
		return fmt.Errorf("start the tables: %w", err)
	}
	context.AfterFunc(ctx, func() { t.db.Stop() })
	return nil
}

// Changes follows the rows for the reconciler.
type Changes struct {
	t    *Tables
	next statedb.ChangeIterator[*Service]
}

// Change is a row that was written or, if Deleted, is gone.
type Change struct {
	Row     *Service
	Deleted bool
}

// Follow returns the changes from the beginning: first every row there is.
func (t *Tables) Follow() (*Changes, error) {
	txn := t.db.WriteTxn(t.services)
	defer txn.Commit()
	next, err := t.services.Changes(txn)
	if err != nil {
		return nil, fmt.Errorf("follow the services table: %w", err)
	}
	return &Changes{t, next}, nil
}

// Close ends the following: rows that are deleted are no longer kept for it.
func (c *Changes) Close() { c.next.Close() }

// Next returns the changes since the last call, each Service once, and the
// revision up to which they reach. Complete is false until the first fill is
// over: until then nothing may be pruned. The channel is closed when there is
// more.
func (c *Changes) Next() (changes []Change, revision uint64, complete bool, more <-chan struct{}) {
	txn := c.t.db.ReadTxn()
	// Whether the fill was complete is asked of the same snapshot.
	complete, _ = c.t.services.Initialized(txn)
	revision = c.t.services.Revision(txn)
	seq, more := c.next.Next(txn)
	for change := range seq {
		changes = append(changes, Change{change.Object, change.Deleted})
	}
	return changes, revision, complete, more
}

// Completed returns a channel that is closed when the first fill is over,
// which may come without a change: a cluster may have no Services.
func (c *Changes) Completed() <-chan struct{} {
	_, completed := c.t.services.Initialized(c.t.db.ReadTxn())
	return completed
}

// Snapshot is the tables at one moment.
type Snapshot struct {
	txn    statedb.ReadTxn
	table  statedb.Table[*Service]
	status status
}

// Snapshot returns the rows and their status as they are now.
func (t *Tables) Snapshot() Snapshot {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Snapshot{t.db.ReadTxn(), t.services, t.status.clone()}
}

// Services yields every row by namespace/name.
func (s Snapshot) Services() iter.Seq[*Service] {
	return func(yield func(*Service) bool) {
		for row := range s.table.All(s.txn) {
			if !yield(row) {
				return
			}
		}
	}
}

// Service returns one row.
func (s Snapshot) Service(name model.Name) (*Service, bool) {
	row, _, ok := s.table.Get(s.txn, byName.Query(name.String()))
	return row, ok
}

// Len is the number of rows.
func (s Snapshot) Len() int { return s.table.NumObjects(s.txn) }

// Complete says whether the first fill is over.
func (s Snapshot) Complete() bool {
	complete, _ := s.table.Initialized(s.txn)
	return complete
}

// Wait returns the tables' version as soon as it differs from known.
func (t *Tables) Wait(ctx context.Context, known uint64) (uint64, error) {
	for {
		t.mu.Lock()
		version, changed := t.version, t.changed
		t.mu.Unlock()
		if version != known {
			return version, nil
		}
		select {
		case <-ctx.Done():
			return known, ctx.Err()
		case <-changed:
		}
	}
}

// touch wakes those who wait. The lock is held.
func (t *Tables) touch() {
	t.version++
	close(t.changed)
	t.changed = make(chan struct{})
}
