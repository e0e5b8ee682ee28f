// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrHeld is a journal that another recorder writes at present.
var ErrHeld = errors.New("another recorder writes it")

// hold makes the file, for its owner alone, unless it is there, and this journal
// the one that writes it: of two that follow one API server each event would be
// there twice. The lock goes with the process, however that ends.
//
// SQLite's own locks on a file are the process's, and are gone when any
// descriptor of the file is closed: this one is closed last.
func (j *Journal) hold(ctx context.Context) (err error) {
	if err := accessible(j.path, unix.R_OK|unix.W_OK); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	j.held, err = os.OpenFile(j.path, os.O_CREATE|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no folder for it, make one first: %w", pathless(err))
	}
	if err != nil {
		return pathless(err)
	}
	err = unix.Flock(int(j.held.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("%w%s: end that one, or name another file", ErrHeld, j.writer(ctx))
	}
	if err != nil {
		return fmt.Errorf("lock it: %w", err)
	}
	return nil
}

// writer names who writes a journal, as far as it has said so.
func (j *Journal) writer(ctx context.Context) string {
	if err := j.openRead(ctx, "mode=ro"); err != nil {
		return ""
	}
	var recorder, host string
	var started int64
	err := j.read.QueryRowContext(ctx, "SELECT recorder, host, started FROM runs ORDER BY id DESC LIMIT 1").Scan(&recorder, &host, &started)
	if err != nil {
		return ""
	}
	return fmt.Sprintf(" (%s, on host %s, since %s)", recorder, host, time.Unix(0, started).UTC().Format(time.RFC3339))
}
