// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"fmt"
	"math"
	"time"
)

const (
	// pruneBatch is how many events go in one transaction, so that nobody who
	// appends waits for long.
	pruneBatch = 2000
	// ageEvery is how often appending looks for events that are too old.
	ageEvery = time.Minute
)

// Prune removes what is beyond the bounds. Append does so as well; this is for
// times in which nothing happens.
func (j *Journal) Prune(ctx context.Context) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.write == nil {
		return fmt.Errorf("prune journal %s: %w", j.path, errReadOnly)
	}
	j.full, j.aged = 0, time.Time{}
	if err := j.bound(ctx); err != nil {
		return fmt.Errorf("prune journal %s: %w", j.path, j.explain(err))
	}
	return nil
}

func (j *Journal) bound(ctx context.Context) error {
	if now := time.Now(); j.options.MaxAge > 0 && now.Sub(j.aged) > ageEvery {
		j.aged = now
		if err := j.pruneWhile(ctx, now.Add(-j.options.MaxAge).UnixNano(), func() (bool, error) { return true, nil }); err != nil {
			return err
		}
	}
	if j.options.MaxBytes == 0 {
		return nil
	}
	used, err := j.used(ctx)
	if err != nil || used <= max(j.options.MaxBytes, j.full) {
		return err
	}
	// An eighth less, so that this is not done with every batch.
	err = j.pruneWhile(ctx, math.MaxInt64, func() (bool, error) {
		used, err = j.used(ctx)
		return used > j.options.MaxBytes/8*7, err
	})
	if err != nil {
		return err
	}
	j.full = used / 8 * 9
	return nil
}

// used is how many bytes hold something.
func (j *Journal) used(ctx context.Context) (used int64, err error) {
	err = j.write.QueryRowContext(ctx, `SELECT (page_count - freelist_count) * page_size
		FROM pragma_page_count, pragma_freelist_count, pragma_page_size`).Scan(&used)
	return used, err
}

// pruneWhile removes batches of the oldest events from before a time while
// there are any, and it is asked to. The room goes back to the file system.
func (j *Journal) pruneWhile(ctx context.Context, before int64, more func() (bool, error)) error {
	pruned := false
	for {
		again, err := more()
		if err != nil {
			return err
		}
		var removed int64
		if again {
			err = j.transact(ctx, func() error { removed, err = j.pruneBatch(ctx, before); return err })
		}
		if err != nil {
			return err
		}
		if removed == 0 {
			break
		}
		pruned = true
	}
	if !pruned {
		return nil
	}
	_, err := j.write.ExecContext(ctx, "PRAGMA incremental_vacuum")
	return err
}

// pruneBatch spares the last state of what is still there, and the last event
// of all, so that no number is given twice. Gaps go with the events after them,
// and lists with theirs, but for the last one of a kind, which may have found
// nothing.
func (j *Journal) pruneBatch(ctx context.Context, before int64) (removed int64, err error) {
	rows, err := j.write.QueryContext(ctx, `DELETE FROM events WHERE id IN (
		SELECT id FROM events e WHERE time < ?1 AND id < (SELECT max(id) FROM events)
		AND (type IN ('deleted', 'absent') OR EXISTS (SELECT 1 FROM events n WHERE n.object = e.object AND n.id > e.id))
		ORDER BY id LIMIT ?2) RETURNING time`, before, pruneBatch)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	newest := int64(math.MinInt64)
	for rows.Next() {
		var at int64
		if err := rows.Scan(&at); err != nil {
			return 0, err
		}
		newest = max(newest, at)
		removed++
	}
	if err := rows.Err(); err != nil || removed == 0 {
		return 0, err
	}
	if _, err := j.write.ExecContext(ctx, "DELETE FROM gaps WHERE ended < ?", newest); err != nil {
		return 0, err
	}
	if _, err := j.write.ExecContext(ctx, `DELETE FROM lists WHERE ended < ? AND NOT EXISTS (SELECT 1 FROM events WHERE list = lists.id)
		AND id NOT IN (SELECT max(id) FROM lists WHERE ended IS NOT NULL GROUP BY kind, namespace)`, newest); err != nil {
		return 0, err
	}
	_, err = j.write.ExecContext(ctx, "DELETE FROM objects WHERE NOT EXISTS (SELECT 1 FROM events WHERE object = objects.id)")
	j.forget()
	return removed, err
}
