// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"time"
)

// ofKind are the numbers under which a journal knows a kind, one per version.
const ofKind = `(SELECT id FROM kinds WHERE resource = ?1 AND "group" = ?2)`

// States yields the last event of each object of a kind that was still there
// then, whatever the kind's version. Any error is the last that it yields.
func (j *Journal) States(ctx context.Context, kind Kind) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		stopped, err := j.states(ctx, kind, yield)
		if err != nil && !stopped {
			yield(Event{}, fmt.Errorf("read the last states in journal %s: %w", j.path, j.explain(err)))
		}
	}
}

func (j *Journal) states(ctx context.Context, kind Kind, yield func(Event, error) bool) (stopped bool, err error) {
	rows, err := j.read.QueryContext(ctx, j.selectEvents()+` WHERE e.type NOT IN ('deleted', 'absent') AND e.id IN
		(SELECT (SELECT max(id) FROM events WHERE object = o.id) FROM objects o WHERE o.kind IN `+ofKind+`) ORDER BY e.id`, kind.Resource, kind.Group)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	for rows.Next() {
		e, err := scanEvent(rows)
		if err != nil {
			return false, err
		}
		if !yield(e, nil) {
			return true, nil
		}
	}
	return false, rows.Err()
}

// Watched returns until when a kind was watched before this run, and the last
// resourceVersion that was seen of it. It is found if the journal has anything
// about the kind. A run that was killed is taken to have lasted until its last
// event.
func (j *Journal) Watched(ctx context.Context, kind Kind) (until time.Time, version string, found bool, err error) {
	until, version, err = j.watched(ctx, kind)
	if errors.Is(err, sql.ErrNoRows) {
		return time.Time{}, "", false, nil
	}
	if err != nil {
		return time.Time{}, "", false, fmt.Errorf("read until when journal %s goes: %w", j.path, j.explain(err))
	}
	return until, version, true, nil
}

func (j *Journal) watched(ctx context.Context, kind Kind) (until time.Time, version string, err error) {
	var last, run sql.NullInt64
	err = j.read.QueryRowContext(ctx, `WITH last (id) AS (
			SELECT max((SELECT max(id) FROM events WHERE object = o.id)) FROM objects o WHERE o.kind IN `+ofKind+`)
		SELECT (SELECT id FROM last), max(run) FROM (
			SELECT run FROM events WHERE id = (SELECT id FROM last)
			UNION ALL SELECT run FROM gaps WHERE kind IN `+ofKind+`
			UNION ALL SELECT run FROM lists WHERE ended IS NOT NULL AND kind IN `+ofKind+`)`, kind.Resource, kind.Group).Scan(&last, &run)
	if err == nil && !run.Valid {
		err = sql.ErrNoRows
	}
	if err != nil {
		return time.Time{}, "", err
	}
	var ended int64
	err = j.read.QueryRowContext(ctx, `SELECT coalesce(ended, max(started, coalesce((SELECT time FROM events WHERE run = runs.id ORDER BY id DESC LIMIT 1), 0)))
		FROM runs WHERE id = ?`, run).Scan(&ended)
	if err == nil && last.Valid {
		err = j.read.QueryRowContext(ctx, "SELECT resource_version FROM events WHERE id = ?", last).Scan(&version)
	}
	return time.Unix(0, ended).UTC(), version, err
}

// State returns the last event of an object.
func (j *Journal) State(ctx context.Context, kind Kind, namespace, name, uid string) (e Event, found bool, err error) {
	e, found, err = j.event(ctx, `e.id = (SELECT max((SELECT max(id) FROM events WHERE object = o.id)) FROM objects o
		WHERE o.name = ?4 AND o.namespace = ?3 AND o.kind IN `+ofKind+` AND o.uid = ?5)`, kind.Resource, kind.Group, namespace, name, uid)
	if err != nil {
		return Event{}, false, fmt.Errorf("read the state of %s %s/%s in journal %s: %w", kind.Kind, namespace, name, j.path, j.explain(err))
	}
	return e, found, nil
}
