// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	sqlite3 "modernc.org/sqlite/lib"
)

// Filter picks events. An empty field picks all.
type Filter struct {
	// Kinds are names like Service, services or leases.coordination.k8s.io, in
	// upper or lower case.
	Kinds      []string
	Namespaces []string
	Names      []string
	Types      []Type
	Managers   []string
	// Field is a path in the diff: it, what is below it, or what it is in, changed.
	Field string
	// Since is the first moment, and Until the first one no more.
	Since, Until time.Time
	// FromVersion and ToVersion are the first and last resourceVersion.
	FromVersion, ToVersion uint64
	// After is the ID of the last event that is known already.
	After int64
	// NoDiff leaves the diffs out, for who reads very many events and needs none.
	NoDiff bool
}

const selectEvents = `SELECT e.id, e.time, k."group", k.version, k.resource, k.kind, o.namespace, o.name, o.uid,
	e.resource_version, e.type, e.manager, e.operation, e.subresource, e.managed_at, e.list, e.diff, e.content
	FROM events e JOIN objects o ON o.id = e.object JOIN kinds k ON k.id = o.kind`

// selectEvents is what to ask for, before one says of which events.
func (j *Journal) selectEvents() string {
	if j.format < formatLists {
		return strings.Replace(selectEvents, "e.list", "NULL", 1)
	}
	return selectEvents
}

// selectEvents is what a filter asks for.
func (f Filter) selectEvents(all string) string {
	if f.NoDiff && f.Field == "" {
		return strings.Replace(all, "e.diff", "NULL", 1)
	}
	return all
}

// where is a condition in the making.
type where struct {
	terms []string
	args  []any
}

func (w *where) add(term string, args ...any) {
	w.terms = append(w.terms, term)
	w.args = append(w.args, args...)
}

// oneOf is nothing to ask for if there are no values.
func oneOf[T ~string](w *where, column string, values []T) {
	if len(values) == 0 {
		return
	}
	for _, value := range values {
		w.args = append(w.args, string(value))
	}
	w.terms = append(w.terms, column+" IN (?"+strings.Repeat(", ?", len(values)-1)+")")
}

func (w *where) String() string { return strings.Join(w.terms, " AND ") }

func (f Filter) where() where {
	var w where
	w.add("e.id > ?", f.After)
	if len(f.Kinds) > 0 {
		var any where
		for _, kind := range f.Kinds {
			any.add(`lower(kind) = ?1 OR lower(resource) = ?1 OR lower(resource || '.' || "group") = ?1`)
			w.args = append(w.args, strings.ToLower(kind), strings.ToLower(kind), strings.ToLower(kind))
		}
		// The plus keeps this from deciding the order in which events are read.
		w.terms = append(w.terms, "+k.id IN (SELECT id FROM kinds WHERE "+strings.ReplaceAll(strings.Join(any.terms, " OR "), "?1", "?")+")")
	}
	oneOf(&w, "o.namespace", f.Namespaces)
	oneOf(&w, "o.name", f.Names)
	oneOf(&w, "e.type", f.Types)
	oneOf(&w, "e.manager", f.Managers)
	if !f.Since.IsZero() {
		w.add("e.time >= ?", f.Since.UnixNano())
	}
	if !f.Until.IsZero() {
		w.add("e.time < ?", f.Until.UnixNano())
	}
	if f.FromVersion > 0 {
		w.add("CAST(e.resource_version AS INTEGER) >= ?", int64(f.FromVersion))
	}
	if f.ToVersion > 0 {
		w.add("CAST(e.resource_version AS INTEGER) <= ?", int64(f.ToVersion))
	}
	return w
}

// changed says whether a diff has a change at, below or above the path.
func changed(diff []Change, path string) bool {
	return path == "" || slices.ContainsFunc(diff, func(c Change) bool {
		return c.Path == path || strings.HasPrefix(c.Path, path+"/") || strings.HasPrefix(path, c.Path+"/")
	})
}

// Events yields the events that a filter picks, in their order. Of a torn
// journal it yields what can be read, and ErrTorn at last. Any error is the
// last that it yields.
func (j *Journal) Events(ctx context.Context, f Filter) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		j.events(ctx, f, yield)
	}
}

// events reports whether it came to the end, and what it read last.
func (j *Journal) events(ctx context.Context, f Filter, yield func(Event, error) bool) (last int64, more bool) {
	last, read := f.After, 0
	torn := error(nil)
	// Behind a page that cannot be read there may be others that can: the next
	// attempt begins after a few events, then after ever more of them.
	for skip := int64(1); skip < 1<<40; skip *= 2 {
		f.After = last
		if torn != nil {
			f.After += skip
		}
		before := read
		stopped, err := j.scan(ctx, f, func(e Event) bool {
			last = e.ID
			read++
			return yield(e, nil)
		})
		if stopped {
			return last, false
		}
		if err != nil && code(err) != sqlite3.SQLITE_CORRUPT && !errors.Is(err, ErrTorn) {
			yield(Event{}, fmt.Errorf("read journal %s: %w", j.path, j.explain(err)))
			return last, false
		}
		if err == nil {
			break
		}
		torn = err
		if read > before {
			skip = 1
		}
	}
	if torn == nil {
		return last, true
	}
	yield(Event{}, fmt.Errorf("read journal %s: %w; %d events could be read", j.path, j.explain(torn), read))
	return last, false
}

// scan runs one query.
func (j *Journal) scan(ctx context.Context, f Filter, yield func(Event) bool) (stopped bool, err error) {
	w := f.where()
	rows, err := j.read.QueryContext(ctx, f.selectEvents(j.selectEvents())+" WHERE "+w.String()+" ORDER BY e.id", w.args...)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	for rows.Next() {
		e, err := scanEvent(rows)
		if err != nil {
			return false, err
		}
		if changed(e.Diff, f.Field) && !yield(e) {
			return true, nil
		}
	}
	return false, rows.Err()
}

func scanEvent(rows interface{ Scan(...any) error }) (Event, error) {
	var e Event
	var at int64
	var managed, list sql.NullInt64
	var diff, content sql.RawBytes
	k := &e.Kind
	err := rows.Scan(&e.ID, &at, &k.Group, &k.Version, &k.Resource, &k.Kind, &e.Namespace, &e.Name, &e.UID,
		&e.ResourceVersion, (*string)(&e.Type), &e.Manager, &e.Operation, &e.Subresource, &managed, &list, &diff, &content)
	if err != nil {
		return Event{}, err
	}
	e.Time, e.List = time.Unix(0, at).UTC(), list.Int64
	if managed.Valid {
		e.ManagedAt = time.Unix(0, managed.Int64).UTC()
	}
	if len(diff) > 0 {
		if err := json.Unmarshal(diff, &e.Diff); err != nil {
			return Event{}, fmt.Errorf("%w: the diff of event %d: %w", ErrTorn, e.ID, err)
		}
	}
	if len(content) > 0 {
		e.Content = slices.Clone(json.RawMessage(content))
	}
	return e, nil
}

// followEvery is how often Follow looks for what was appended.
const followEvery = 200 * time.Millisecond

// Follow yields what Events does, and goes on with what is appended, until ctx
// ends, which is no error.
func (j *Journal) Follow(ctx context.Context, f Filter) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for {
			last, more := j.events(ctx, f, func(e Event, err error) bool {
				return err != nil && ctx.Err() != nil || yield(e, err)
			})
			if !more {
				return
			}
			f.After = last
			select {
			case <-ctx.Done():
				return
			case <-time.After(followEvery):
			}
		}
	}
}

// Last returns the last event of an object, whatever its UID, that was received
// up to a moment. The kind is written as in a filter.
func (j *Journal) Last(ctx context.Context, kind, namespace, name string, at time.Time) (e Event, found bool, err error) {
	f := Filter{Kinds: []string{kind}, Namespaces: []string{namespace}, Names: []string{name}, Until: at.Add(1)}
	w := f.where()
	e, found, err = j.event(ctx, w.String()+" ORDER BY e.id DESC LIMIT 1", w.args...)
	if err != nil {
		return Event{}, false, fmt.Errorf("read journal %s: %w", j.path, j.explain(err))
	}
	return e, found, nil
}

// event reads the one event that a condition picks, if there is one.
func (j *Journal) event(ctx context.Context, where string, args ...any) (e Event, found bool, err error) {
	rows, err := j.read.QueryContext(ctx, j.selectEvents()+" WHERE "+where, args...)
	if err != nil {
		return Event{}, false, err
	}
	defer rows.Close()
	if !rows.Next() {
		return Event{}, false, rows.Err()
	}
	e, err = scanEvent(rows)
	return e, err == nil, err
}

// Gaps returns the gaps of a filter's kinds that touch its time.
func (j *Journal) Gaps(ctx context.Context, f Filter) ([]Gap, error) {
	gaps, err := j.gaps(ctx, f)
	if err != nil {
		return gaps, fmt.Errorf("read the gaps of journal %s: %w", j.path, j.explain(err))
	}
	return gaps, nil
}

func (j *Journal) gaps(ctx context.Context, f Filter) (gaps []Gap, err error) {
	w := Filter{Kinds: f.Kinds}.where()
	w.terms[0] = "? >= 0" // gaps have no events that could be known already
	if !f.Since.IsZero() {
		w.add("g.ended >= ?", f.Since.UnixNano())
	}
	if !f.Until.IsZero() {
		w.add("g.began < ?", f.Until.UnixNano())
	}
	rows, err := j.read.QueryContext(ctx, `SELECT k."group", k.version, k.resource, k.kind, g.began, g.ended, g.reason, g.from_version, g.to_version
		FROM gaps g JOIN kinds k ON k.id = g.kind WHERE `+w.String()+" ORDER BY g.began, g.id", w.args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var g Gap
		var began, ended int64
		if err := rows.Scan(&g.Kind.Group, &g.Kind.Version, &g.Kind.Resource, &g.Kind.Kind, &began, &ended, &g.Reason, &g.FromVersion, &g.ToVersion); err != nil {
			return gaps, err
		}
		g.Began, g.Ended = time.Unix(0, began).UTC(), time.Unix(0, ended).UTC()
		gaps = append(gaps, g)
	}
	return gaps, rows.Err()
}
