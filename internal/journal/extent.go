// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// Kinds returns the kinds of which the journal has or had objects, by their
// resources.
func (j *Journal) Kinds(ctx context.Context) ([]Kind, error) {
	rows, err := j.read.QueryContext(ctx, `SELECT "group", version, resource, kind FROM kinds ORDER BY resource, "group", version`)
	if err != nil {
		return nil, fmt.Errorf("read the kinds of journal %s: %w", j.path, j.explain(err))
	}
	defer rows.Close()
	var kinds []Kind
	for rows.Next() {
		var k Kind
		if err := rows.Scan(&k.Group, &k.Version, &k.Resource, &k.Kind); err != nil {
			return kinds, fmt.Errorf("read the kinds of journal %s: %w", j.path, j.explain(err))
		}
		kinds = append(kinds, k)
	}
	if err := rows.Err(); err != nil {
		return kinds, fmt.Errorf("read the kinds of journal %s: %w", j.path, j.explain(err))
	}
	return kinds, nil
}

// Extent returns when the first event was received, and until when the journal
// can tell: its last event, or the end of its last run. A journal without
// events has none.
func (j *Journal) Extent(ctx context.Context) (first, last time.Time, found bool, err error) {
	var from, to sql.NullInt64
	err = j.read.QueryRowContext(ctx, `SELECT min(time), max(max(time), coalesce((SELECT max(ended) FROM runs), 0)) FROM events`).Scan(&from, &to)
	if err != nil {
		return first, last, false, fmt.Errorf("read what journal %s covers: %w", j.path, j.explain(err))
	}
	if !from.Valid {
		return first, last, false, nil
	}
	return time.Unix(0, from.Int64).UTC(), time.Unix(0, to.Int64).UTC(), true, nil
}
