// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// object names an object within a journal.
type object struct {
	kind                 int64
	namespace, name, uid string
}

var errReadOnly = errors.New("it was opened to be read")

// Append adds events in their order: all of them, or with an error none. Their
// IDs do not matter. It then removes what is beyond the bounds.
func (j *Journal) Append(ctx context.Context, events []Event) error {
	return j.change(ctx, "append to", func() error {
		insert, err := j.write.PrepareContext(ctx, `INSERT INTO events (time, run, object, type, resource_version,
			manager, operation, subresource, managed_at, list, diff, content) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`)
		if err != nil {
			return err
		}
		defer insert.Close()
		for i := range events {
			if err := j.insert(ctx, insert, &events[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (j *Journal) insert(ctx context.Context, insert *sql.Stmt, e *Event) error {
	id, err := j.objectID(ctx, e)
	if err != nil {
		return err
	}
	var diff any
	if len(e.Diff) > 0 {
		text, err := json.Marshal(e.Diff)
		if err != nil {
			return fmt.Errorf("the diff of %s %s/%s: %w", e.Kind.Kind, e.Namespace, e.Name, err)
		}
		diff = string(text)
	}
	var content any
	if e.Content != nil {
		content = string(e.Content)
	}
	var list any
	if e.List != 0 {
		list = e.List
	}
	_, err = insert.ExecContext(ctx, e.Time.UnixNano(), j.run, id, string(e.Type), e.ResourceVersion,
		e.Manager, e.Operation, e.Subresource, stamp(e.ManagedAt), list, diff, content)
	return err
}

// stamp is a time as it is stored; NULL where it is not known.
func stamp(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixNano()
}

// AppendGap adds a time that nobody watched a kind. One that this run has added
// before, and that began at the same moment, goes on instead.
func (j *Journal) AppendGap(ctx context.Context, g Gap) error {
	return j.change(ctx, "append a gap to", func() error {
		kind, err := j.kindID(ctx, g.Kind)
		if err != nil {
			return err
		}
		args := []any{g.Ended.UnixNano(), g.Reason, g.FromVersion, g.ToVersion, j.run, kind, g.Began.UnixNano()}
		result, err := j.write.ExecContext(ctx, "UPDATE gaps SET ended = ?, reason = ?, from_version = ?, to_version = ? WHERE run = ? AND kind = ? AND began = ?", args...)
		if err != nil {
			return err
		}
		if longer, err := result.RowsAffected(); err != nil || longer > 0 {
			return err
		}
		_, err = j.write.ExecContext(ctx, "INSERT INTO gaps (ended, reason, from_version, to_version, run, kind, began) VALUES (?, ?, ?, ?, ?, ?, ?)", args...)
		return err
	})
}

// change runs one transaction, and removes what is beyond the bounds.
func (j *Journal) change(ctx context.Context, what string, do func() error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.write == nil {
		return fmt.Errorf("%s journal %s: %w", what, j.path, errReadOnly)
	}
	err := j.transact(ctx, do)
	if err == nil {
		err = j.bound(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s journal %s: %w", what, j.path, j.explain(err))
	}
	return nil
}

// transact does all of something, or nothing. Numbers that a transaction gave
// out are forgotten with it.
func (j *Journal) transact(ctx context.Context, do func() error) error {
	if _, err := j.write.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := do()
	if err == nil {
		_, err = j.write.ExecContext(ctx, "COMMIT")
	}
	if err == nil {
		return nil
	}
	j.forget()
	// SQLite has rolled back already where it could not go on at all.
	_, _ = j.write.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
	return err
}

func (j *Journal) forget() {
	j.kinds, j.objects = map[Kind]int64{}, map[object]int64{}
}

func (j *Journal) objectID(ctx context.Context, e *Event) (int64, error) {
	kind, err := j.kindID(ctx, e.Kind)
	if err != nil {
		return 0, err
	}
	o := object{kind, e.Namespace, e.Name, e.UID}
	if id, ok := j.objects[o]; ok {
		return id, nil
	}
	id, err := j.number(ctx, "INSERT INTO objects (kind, namespace, name, uid) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
		"SELECT id FROM objects WHERE kind = ?1 AND namespace = ?2 AND name = ?3 AND uid = ?4", kind, o.namespace, o.name, o.uid)
	j.objects[o] = id
	return id, err
}

func (j *Journal) kindID(ctx context.Context, k Kind) (int64, error) {
	if id, ok := j.kinds[k]; ok {
		return id, nil
	}
	id, err := j.number(ctx, `INSERT INTO kinds ("group", version, resource, kind) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING`,
		`SELECT id FROM kinds WHERE "group" = ?1 AND version = ?2 AND resource = ?3 AND kind = ?4`, k.Group, k.Version, k.Resource, k.Kind)
	j.kinds[k] = id
	return id, err
}

// number inserts a row unless it is there, and returns its number.
func (j *Journal) number(ctx context.Context, insert, find string, args ...any) (id int64, err error) {
	if _, err := j.write.ExecContext(ctx, insert, args...); err != nil {
		return 0, err
	}
	err = j.write.QueryRowContext(ctx, find, args...).Scan(&id)
	return id, err
}
