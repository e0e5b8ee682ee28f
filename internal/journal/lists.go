// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"time"
)

// BeginList adds a list that is under way, and returns its ID for the events
// that it brings. From here on the journal is taken to tell of every list.
func (j *Journal) BeginList(ctx context.Context, l List) (id int64, err error) {
	err = j.change(ctx, "begin a list in", func() error {
		kind, err := j.kindID(ctx, l.Kind)
		if err != nil {
			return err
		}
		if _, err := j.write.ExecContext(ctx, `UPDATE runs SET lists_from = coalesce((SELECT max(id) FROM events), 0) + 1
			WHERE id = ? AND lists_from IS NULL`, j.run); err != nil {
			return err
		}
		result, err := j.write.ExecContext(ctx, "INSERT INTO lists (run, kind, namespace, began, resource_version, reason) VALUES (?, ?, ?, ?, '', ?)",
			j.run, kind, l.Namespace, l.Began.UnixNano(), l.Reason)
		if err != nil {
			return err
		}
		id, err = result.LastInsertId()
		return err
	})
	return id, err
}

// EndList completes the list of an ID: what it brought has been appended. Its
// LastEvent does not matter.
func (j *Journal) EndList(ctx context.Context, l List) error {
	return j.change(ctx, "end a list in", func() error {
		_, err := j.write.ExecContext(ctx, `UPDATE lists SET ended = ?, resource_version = ?, objects = ?, reason = ?,
			last_event = coalesce((SELECT max(id) FROM events), 0) WHERE id = ?`, l.Ended.UnixNano(), l.ResourceVersion, l.Objects, l.Reason, l.ID)
		return err
	})
}

// Lists returns all lists, in the order in which they began.
func (j *Journal) Lists(ctx context.Context) ([]List, error) {
	if j.format < formatLists {
		return nil, nil
	}
	lists, err := j.lists(ctx)
	if err != nil {
		return lists, fmt.Errorf("read the lists of journal %s: %w", j.path, j.explain(err))
	}
	return lists, nil
}

func (j *Journal) lists(ctx context.Context) (lists []List, err error) {
	rows, err := j.read.QueryContext(ctx, `SELECT l.id, k."group", k.version, k.resource, k.kind, l.namespace, l.began, l.reason,
		l.ended, l.resource_version, l.objects, l.last_event FROM lists l JOIN kinds k ON k.id = l.kind ORDER BY l.id`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var l List
		var began int64
		var ended, objects, last sql.NullInt64
		if err := rows.Scan(&l.ID, &l.Kind.Group, &l.Kind.Version, &l.Kind.Resource, &l.Kind.Kind, &l.Namespace, &began, &l.Reason,
			&ended, &l.ResourceVersion, &objects, &last); err != nil {
			return lists, err
		}
		l.Began, l.Objects, l.LastEvent = time.Unix(0, began).UTC(), int(objects.Int64), last.Int64
		if ended.Valid {
			l.Ended = time.Unix(0, ended.Int64).UTC()
		}
		lists = append(lists, l)
	}
	return lists, rows.Err()
}

// ListsFrom returns the number of the event from which on the journal tells of
// every list. Before it nobody said which events came together.
func (j *Journal) ListsFrom(ctx context.Context) (int64, error) {
	if j.format < formatLists {
		return math.MaxInt64, nil
	}
	var from sql.NullInt64
	if err := j.read.QueryRowContext(ctx, "SELECT min(lists_from) FROM runs").Scan(&from); err != nil {
		return math.MaxInt64, fmt.Errorf("read the runs of journal %s: %w", j.path, j.explain(err))
	}
	if !from.Valid {
		return math.MaxInt64, nil
	}
	return from.Int64, nil
}
