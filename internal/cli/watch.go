// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fairlead-io/fairlead/internal/api"
)

// waiter returns when there may be something new to read, and at once when it
// is first called.
type waiter func(context.Context) error

// unknownRevision is one the tables never have, so that waiting for another
// returns at once.
const unknownRevision = ^uint64(0)

// tableChanges waits for the next revision of the agent's tables.
func tableChanges(client *api.Client) waiter {
	revision := unknownRevision
	return func(ctx context.Context) error {
		for {
			next, err := client.Wait(ctx, revision)
			if err != nil {
				return err
			}
			if next != revision {
				revision = next
				return nil
			}
		}
	}
}

// lookAgain is how often a watch looks where nobody tells it of changes.
const lookAgain = time.Second

func everySecond() waiter {
	wait := time.Duration(0)
	return func(ctx context.Context) error {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		wait = lookAgain
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// watch prints what is there, then what changes, until ctx ends. Programs get
// the whole answer each time, people the rows that changed.
func (e *env) watch(ctx context.Context, output *format, next waiter, read func(context.Context) (answer, error)) error {
	w := watcher{env: e, output: output}
	return untilEnd(ctx, next, func() error {
		a, err := read(ctx)
		if err != nil {
			return err
		}
		if output.data() {
			return w.printOnChange(a.data, func() error { return e.printData(output, a.data) })
		}
		return w.printRows(a)
	})
}

// untilEnd takes turns until one fails, or ctx ends, which is no failure.
func untilEnd(ctx context.Context, next waiter, turn func() error) error {
	for {
		err := next(ctx)
		if err == nil {
			err = turn()
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// watcher remembers what a watch has printed.
type watcher struct {
	env    *env
	output *format
	data   []byte
	rows   map[string][]string // by the cells that name a row; nil before the first print
	widths []int
}

// printOnChange prints an answer unless it is the one printed last.
func (w *watcher) printOnChange(answer any, print func() error) error {
	data, err := json.Marshal(answer)
	if err != nil {
		return fmt.Errorf("write the answer as JSON: %w", err)
	}
	if bytes.Equal(data, w.data) {
		return nil
	}
	w.data = data
	return print()
}

// printRows prints the rows that are new, differ but for their age, or are
// gone, under the header that the first print had.
func (w *watcher) printRows(a answer) error {
	changed := &table{columns: a.table.columns, headless: w.rows != nil, widths: w.widths}
	now := make(map[string][]string)
	for _, row := range a.table.rows {
		key := fmt.Sprintf("%q", row[:a.naming])
		now[key] = row
		if !a.table.sameButAge(w.rows[key], row) {
			changed.add(row...)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(w.rows)) {
		if _, there := now[key]; !there {
			changed.add(gone(w.rows[key], a.naming)...)
		}
	}
	w.rows = now
	text := changed.text(w.output.wide(), w.env.colour)
	w.widths = changed.widths
	return w.env.print(text)
}

// gone is the last line of a row: its name, and that it is no more.
func gone(row []string, naming int) []string {
	line := make([]string, len(row))
	copy(line, row[:naming])
	line[naming] = "(gone)"
	for i := naming + 1; i < len(line); i++ {
		line[i] = "-"
	}
	return line
}

// sameButAge: the age of a row changes all the time, which is no news.
func (t *table) sameButAge(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] && t.columns[i].name != "AGE" {
			return false
		}
	}
	return true
}
