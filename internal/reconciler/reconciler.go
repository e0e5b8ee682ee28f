// SPDX-License-Identifier: Apache-2.0

// Package reconciler makes the kernel equal to the tables.
//
// It follows the rows: the first change at once, what arrives while it writes
// in the next batch, with no fixed delay. What fails is told to the tables and
// tried again, later each time, or as soon as room was freed. At intervals it
// compares everything, and so repairs what anyone else did to the maps.
//
// It knows rows and sets, not Services: all that depends on Service semantics
// was decided by the model.
package reconciler

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fairlead-io/fairlead/internal/datapath"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/tables"
)

// Datapath is what the reconciler writes to. Every method is idempotent:
// writing what is there already writes nothing, deleting what is missing is no
// error. What failed may be tried again.
type Datapath interface {
	NewOwner() uint32
	ClaimOwner(model.SetKey) (uint32, bool)
	CreateSet(k model.SetKey, owner uint32) (datapath.SetID, error)
	// Served says that frontends of a predecessor point to the set.
	Served(datapath.SetID) bool
	Publish(id datapath.SetID, s *model.Set) (changed bool, err error)
	ReleaseSet(id datapath.SetID) error
	InsertFrontends([]datapath.Frontend) []error
	DeleteFrontends([]datapath.Frontend) error
	// Prune removes what a predecessor left and nobody asked for since.
	Prune() (deleted int, err error)
	// Compare repairs what someone else did to everything but sets.
	Compare() (repaired int, err error)
	// Lost says that the maps in force serve a frontend that those which take
	// over when the programs are attached do not hold.
	Lost(model.FrontendKey) bool
	// Reclaimed signals that room was freed.
	Reclaimed() <-chan struct{}
}

// Config is what a Reconciler is made of.
type Config struct {
	Tables   *tables.Tables
	Datapath Datapath
	Log      *slog.Logger
	// CompareInterval is the time between full comparisons.
	CompareInterval time.Duration
	// Filled is called once, when everything of the first lists was tried, the
	// predecessor's leavings are pruned, and nothing that is served is Lost: now
	// the programs may be attached. An error is retried.
	Filled func() error
	// Restored, unless nil, is called once, before Filled, when a frontend of a row
	// that a file remembers was written while the first lists are not complete: the
	// programs may be attached for it, though nothing is pruned and others are
	// missing. An error is retried.
	Restored func() error
	// Tried, unless nil, hears of each batch after the tables did.
	Tried func(Batch)
}

// Batch is one round of writing.
type Batch struct {
	Changes []tables.Change
	// Failed has the Services of which not everything could be written.
	Failed map[model.Name]map[model.FrontendKey]error
	Took   time.Duration
}

// Stats counts what the reconciler did. Its fields may be read at any time.
type Stats struct {
	Repaired     atomic.Uint64 // entries that someone else had changed
	LastCompared atomic.Int64  // nanoseconds since 1970
	Filled       atomic.Bool
}

// The delays between tries of what failed.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// complainInterval is the least time between two lines of the log that say that
// not all could be written: with full maps that is so of every batch. The tables
// hear of each.
const complainInterval = 10 * time.Second

// Reconciler is used by one goroutine, but for Stats.
type Reconciler struct {
	cfg     Config
	changes *tables.Changes
	Stats   Stats

	written  map[model.Name]*written
	failed   map[model.Name]faults // to be tried again
	deletes  []datapath.Frontend   // so are these
	release  []datapath.SetID      // and these, after them
	retry    time.Duration
	early    early
	complete bool // everything of the first lists was tried
	pruned   bool
	revision uint64
	// complained is when the log was told last of what could not be written.
	complained time.Time
}

// early says how far the programs are that serve restored rows before the first
// lists are complete.
type early uint8

const (
	earlyUnasked early = iota // no such row was written
	earlyDue                  // Restored is to be called
	earlyDone                 // it was, or Filled
)

// faults are the errors of a Service's frontends.
type faults = map[model.FrontendKey]error

// written is what the kernel holds of a Service.
type written struct {
	row  *tables.Service // desired, as tried last
	sets []set           // sorted by key
	// frontends are those inserted, in the order of the row's claims.
	frontends []datapath.Frontend
}

type set struct {
	key   model.SetKey
	id    datapath.SetID
	owner uint32
	// published is false until the set's first publication went well, by this
	// agent or a predecessor. No frontend may point to it before.
	published bool
}

// New returns a reconciler that will follow the tables from the beginning.
func New(cfg Config) (*Reconciler, error) {
	changes, err := cfg.Tables.Follow()
	if err != nil {
		return nil, err
	}
	return &Reconciler{
		cfg: cfg, changes: changes,
		written: map[model.Name]*written{},
		failed:  map[model.Name]faults{},
		retry:   firstRetry,
	}, nil
}

// Run reconciles until ctx ends, once. The kernel keeps what it holds then.
func (r *Reconciler) Run(ctx context.Context) {
	defer r.changes.Close()
	compare := time.NewTicker(r.cfg.CompareInterval)
	defer compare.Stop()
	var retry <-chan time.Time
	completed := r.changes.Completed()
	for {
		more := r.Step()
		retry = r.schedule(retry)
		select {
		case <-ctx.Done():
			return
		case <-more:
		case <-completed:
			completed = nil
		case <-compare.C:
			r.Compare()
		case <-r.cfg.Datapath.Reclaimed():
			if len(r.failed) > 0 {
				r.tryAgain()
			}
		case <-retry:
			retry = nil
			r.retry = min(2*r.retry, lastRetry)
			r.tryAgain()
		}
	}
}

// schedule returns when what is unfinished is to be tried again; nil if
// nothing is. Changes that come in the meantime do not put it off.
func (r *Reconciler) schedule(next <-chan time.Time) <-chan time.Time {
	if !r.unfinished() {
		r.retry = firstRetry
		return nil
	}
	if next == nil {
		return time.After(r.retry)
	}
	return next
}

func (r *Reconciler) unfinished() bool {
	return len(r.failed) > 0 || len(r.deletes) > 0 || r.early == earlyDue || r.complete && !r.Stats.Filled.Load()
}

// Step writes the changes that are there now, and returns a channel that is
// closed when there are more. It does not go on for as long as changes come:
// retries and comparisons have their turn in between.
func (r *Reconciler) Step() <-chan struct{} {
	more, wrote := r.writeBatch()
	if wrote {
		more, _ = r.writeBatch()
	}
	return more
}

// writeBatch writes one batch or, if there is nothing to write, sees whether
// the first fill is over.
func (r *Reconciler) writeBatch() (more <-chan struct{}, wrote bool) {
	changes, revision, complete, more := r.changes.Next()
	if len(changes) > 0 {
		r.revision = revision
		r.apply(changes)
		if !complete {
			r.begin()
		}
		return more, true
	}
	if complete && !r.complete {
		r.complete = true
		r.finish()
	}
	return more, false
}

// finish ends the first fill, once everything of it was tried.
func (r *Reconciler) finish() {
	if r.Stats.Filled.Load() {
		return
	}
	if !r.pruned {
		deleted, err := r.cfg.Datapath.Prune()
		if err != nil {
			r.cfg.Log.Error("what an earlier agent left could not be removed, will try again", "error", err, "in", r.retry)
			return
		}
		if deleted > 0 {
			r.cfg.Log.Info("removed frontends that an earlier agent left and no Service claims", "frontends", deleted)
		}
		r.pruned = true
	}
	if err := r.lost(); err != nil {
		r.cfg.Log.Error("the new maps do not hold what the old ones serve; those stay in force, unchanged, until they do", "error", err, "in", r.retry)
		return
	}
	if err := r.cfg.Filled(); err != nil {
		r.cfg.Log.Error("the programs could not be attached, will try again", "error", err, "in", r.retry)
		return
	}
	r.early = earlyDone
	r.Stats.Filled.Store(true)
}

// begin puts the programs in force for restored rows, before anything else is
// known.
func (r *Reconciler) begin() {
	if r.early != earlyDue {
		return
	}
	if err := r.cfg.Restored(); err != nil {
		r.cfg.Log.Error("the programs could not be attached for what was restored, will try again", "error", err, "in", r.retry)
		return
	}
	r.early = earlyDone
}

// lost is why a frontend that is served now would not be any more once the
// programs are attached to new maps; nil if there is none.
func (r *Reconciler) lost() error {
	for _, name := range slices.SortedFunc(maps.Keys(r.failed), model.Name.Compare) {
		for _, k := range slices.SortedFunc(maps.Keys(r.failed[name]), model.FrontendKey.Compare) {
			if r.cfg.Datapath.Lost(k) {
				return fmt.Errorf("frontend %s of %s: %w", k, name, r.failed[name][k])
			}
		}
	}
	return nil
}

// tryAgain takes up what is unfinished. Services are written by name: where
// there is room for some of them only, it is the same ones each time.
func (r *Reconciler) tryAgain() {
	changes := make([]tables.Change, 0, len(r.failed))
	for _, name := range slices.SortedFunc(maps.Keys(r.failed), model.Name.Compare) {
		changes = append(changes, tables.Change{Row: r.written[name].row})
	}
	if len(changes) > 0 || len(r.deletes) > 0 {
		r.apply(changes)
	}
	if r.complete {
		r.finish()
		return
	}
	r.begin()
}

// Compare looks at everything the kernel holds and repairs what differs.
func (r *Reconciler) Compare() {
	repaired, err := r.cfg.Datapath.Compare()
	if err != nil {
		r.cfg.Log.Error("not everything in the kernel could be compared and repaired", "error", err)
	}
	for name, w := range r.written {
		if _, failed := r.failed[name]; failed {
			continue
		}
		n, err := r.compareSets(w)
		repaired += n
		if err != nil {
			r.failed[name] = faults{}
			r.cfg.Log.Error("a backend set could not be repaired, will try again", "service", name, "error", err)
		}
	}
	if repaired > 0 {
		r.Stats.Repaired.Add(uint64(repaired))
		r.cfg.Log.Warn("repaired entries of the kernel's maps that someone else had changed", "entries", repaired)
	}
	r.Stats.LastCompared.Store(time.Now().UnixNano())
}

func (r *Reconciler) compareSets(w *written) (repaired int, err error) {
	for i := range w.sets {
		desired := findSet(w.row.Compiled.Sets, w.sets[i].key)
		if desired == nil {
			continue
		}
		changed, err := r.cfg.Datapath.Publish(w.sets[i].id, desired)
		if err != nil {
			return repaired, fmt.Errorf("publish %s: %w", desired.Key, err)
		}
		if changed {
			repaired++
		}
	}
	return repaired, nil
}
