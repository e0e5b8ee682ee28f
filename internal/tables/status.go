// SPDX-License-Identifier: Apache-2.0

package tables

import (
	"maps"
	"time"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/model"
)

// Report is what the reconciler says after each batch.
type Report struct {
	// Revision is the one up to which every row was tried.
	Revision uint64
	Time     time.Time
	// Failed holds, for each Service of the batch that has any, the errors of
	// its frontends. Services of the batch that are in Tried only went well.
	Tried  []model.Name
	Failed map[model.Name]map[model.FrontendKey]error
}

// status tells Pending, Done and Error apart without a write per row: a row is
// done if its revision was reached, unless it is among the exceptions.
type status struct {
	revision   uint64
	time       time.Time
	exceptions map[model.Name]exception // values are never modified
	unsettled  unsettled
}

// exception is a Service with failed rows, or one that had some: then healed
// says since when they are written, until the row itself changes.
type exception struct {
	errors map[model.FrontendKey]failure
	healed time.Time
}

type failure struct {
	text  string
	since time.Time
}

func newStatus() status { return status{exceptions: map[model.Name]exception{}} }

func (s status) clone() status {
	s.exceptions = maps.Clone(s.exceptions)
	return s
}

// Report takes the reconciler's report of a batch.
func (t *Tables) Report(r Report) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.status.revision = max(t.status.revision, r.Revision)
	t.status.time = r.Time
	t.status.unsettled.reached(t.status.revision, r.Time)
	for _, name := range r.Tried {
		if len(r.Failed[name]) > 0 {
			continue
		}
		if e, had := t.status.exceptions[name]; had && len(e.errors) > 0 {
			t.heal(name, r.Time)
		}
	}
	for name, errors := range r.Failed {
		before := t.status.exceptions[name].errors
		now := make(map[model.FrontendKey]failure, len(errors))
		for k, err := range errors {
			since := r.Time
			if was, had := before[k]; had {
				since = was.since
			}
			now[k] = failure{err.Error(), since}
		}
		t.status.exceptions[name] = exception{errors: now}
	}
	t.touch()
}

// heal notes that a Service's rows are written. One that went after its rows
// failed, and before that was reported, is forgotten now.
func (t *Tables) heal(name model.Name, at time.Time) {
	if _, _, there := t.services.Get(t.db.ReadTxn(), byName.Query(name.String())); !there {
		delete(t.status.exceptions, name)
		return
	}
	t.status.exceptions[name] = exception{healed: at}
}

// forget drops what is known of a Service that is gone.
func (t *Tables) forget(name model.Name) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.status.exceptions, name)
}

// Status returns the status of a row's frontend, its error, and since when.
func (s Snapshot) Status(row *Service, k model.FrontendKey) (state, message string, since time.Time) {
	e, exceptional := s.status.exceptions[row.Name]
	if f, failed := e.errors[k]; failed {
		return api.StatusError, f.text, f.since
	}
	_, revision, ok := s.table.Get(s.txn, byName.Query(row.key))
	if !ok || revision > s.status.revision {
		return api.StatusPending, "", row.Changed
	}
	if exceptional && e.healed.After(row.Changed) {
		return api.StatusDone, "", e.healed
	}
	return api.StatusDone, "", row.Changed
}

// LastWrite is when the reconciler last finished a batch.
func (s Snapshot) LastWrite() time.Time { return s.status.time }
