// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// Options say how a journal is kept. Zero bounds mean none.
type Options struct {
	// MaxBytes bounds the file: the oldest events go first, but the last state
	// of every object that is still there stays.
	MaxBytes int64
	// MaxAge bounds how old events get, but for those last states.
	MaxAge time.Duration
	// Server and Recorder name the API server and who records, for people.
	Server, Recorder string
}

// Journal is an open journal. Its methods may be called at any time, from any
// goroutine; a reader sees what was appended before its call.
type Journal struct {
	path    string
	read    *sql.DB
	format  int // the file's
	options Options

	// The rest is of those that write. One connection does all of it, under mu.
	mu      sync.Mutex
	held    *os.File // the lock on the file
	db      *sql.DB
	write   *sql.Conn
	run     int64
	kinds   map[Kind]int64
	objects map[object]int64
	full    int64 // pages in use above which a prune may find something
	aged    time.Time
}

// Create opens a journal to append to it, and makes the file, for its owner
// alone, if there is none. While it is open nobody else can: that is ErrHeld.
func Create(path string, o Options) (*Journal, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("journal %s: %w", path, err)
	}
	j := &Journal{path: path, options: o, kinds: map[Kind]int64{}, objects: map[object]int64{}}
	if err := j.create(); err != nil {
		_ = j.close()
		return nil, fmt.Errorf("journal %s: %w", path, j.explain(err))
	}
	return j, nil
}

func (j *Journal) create() error {
	ctx := context.Background()
	if err := j.connect(ctx); err != nil {
		return err
	}
	return j.transact(ctx, func() error { return j.begin(ctx) })
}

// connect makes this journal the one that writes the file, and changes nothing
// in it yet.
func (j *Journal) connect(ctx context.Context) error {
	if err := j.hold(ctx); err != nil {
		return err
	}
	err := j.openRead(ctx, "mode=ro")
	if err != nil && !errors.Is(err, errEmpty) {
		return err
	}
	if j.db, err = sql.Open("sqlite", j.source("mode=rw", "auto_vacuum(2)", "journal_mode(wal)", "synchronous(normal)", "foreign_keys(on)")); err != nil {
		return err
	}
	j.write, err = j.db.Conn(ctx)
	return err
}

// begin makes the schema, or makes an older one this one, and notes that a run
// began.
func (j *Journal) begin(ctx context.Context) error {
	found, err := check(ctx, j.write)
	if err != nil && !errors.Is(err, errEmpty) {
		return err
	}
	if err := j.migrate(ctx, found); err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	result, err := j.write.ExecContext(ctx, "INSERT INTO runs (started, recorder, server, host) VALUES (?, ?, ?, ?)",
		time.Now().UnixNano(), j.options.Recorder, j.options.Server, host)
	if err != nil {
		return err
	}
	j.run, err = result.LastInsertId()
	return err
}

// migrate adds what a file of a format lacks; 0 is an empty one. An older version
// that reads it at the time goes on, for nothing is taken away.
func (j *Journal) migrate(ctx context.Context, from int) error {
	for ; from < format; from++ {
		statements := formats[from] + fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d;", applicationID, from+1)
		if _, err := j.write.ExecContext(ctx, statements); err != nil {
			return fmt.Errorf("make it format %d: %w", from+1, err)
		}
	}
	j.format = format
	return nil
}

// Open opens a journal to read it, also while somebody writes it. One of an
// older format is read as it is.
func Open(path string) (*Journal, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("journal %s: %w", path, err)
	}
	j := &Journal{path: path}
	if err := j.open(); err != nil {
		_ = j.close()
		return nil, fmt.Errorf("journal %s: %w", path, j.explain(err))
	}
	return j, nil
}

// open tries the usual way first. A folder that nobody may write to has no room
// for the file by which readers and writers share a WAL; there is no writer
// then. A file that is cut off is refused, unless the schema is declared to be
// under repair, which lets one read the rest.
func (j *Journal) open() error {
	if err := accessible(j.path, unix.R_OK); err != nil {
		return err
	}
	ctx := context.Background()
	err := j.openRead(ctx, "mode=ro")
	if wal, missing := os.Stat(j.path + "-wal"); code(err) == sqlite3.SQLITE_CANTOPEN && (missing != nil || wal.Size() == 0) {
		err = j.openRead(ctx, "mode=ro&immutable=1")
	}
	if code(err) == sqlite3.SQLITE_CORRUPT {
		err = j.openRead(ctx, "mode=ro", "writable_schema(on)")
	}
	return err
}

// openRead leaves j.read open, if the file can be read at all.
func (j *Journal) openRead(ctx context.Context, mode string, pragmas ...string) error {
	if j.read != nil {
		_ = j.read.Close()
	}
	var err error
	if j.read, err = sql.Open("sqlite", j.source(mode, pragmas...)); err != nil {
		return err
	}
	j.format, err = check(ctx, j.read)
	return err
}

// source names the file for the driver, with what to set on each connection.
func (j *Journal) source(mode string, pragmas ...string) string {
	text := (&url.URL{Scheme: "file", Path: j.path}).String() + "?" + mode + "&_pragma=busy_timeout(10000)"
	for _, p := range pragmas {
		text += "&_pragma=" + p
	}
	return text
}

// querier is a connection, or a pool of them.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// errEmpty is a file in which nobody has written anything yet.
var errEmpty = errors.New("nothing has been recorded in it yet, or it is a copy without the -wal file that stood beside it")

// check returns the format of a file that is a journal which this version knows.
func check(ctx context.Context, q querier) (version int, err error) {
	var id, tables int64
	err = q.QueryRowContext(ctx, `SELECT (SELECT application_id FROM pragma_application_id),
		(SELECT user_version FROM pragma_user_version), (SELECT count(*) FROM sqlite_schema)`).Scan(&id, &version, &tables)
	switch {
	case err != nil:
		return 0, err
	case id == 0 && tables == 0:
		return 0, errEmpty
	case id != applicationID || version < 1:
		return 0, fmt.Errorf("%w but a SQLite file of something else", ErrForeign)
	case version > format:
		return 0, fmt.Errorf("%w: it has format %d, this one knows up to %d: use that version", ErrNewer, version, format)
	}
	return version, nil
}

// Close ends the run, if it is one, and closes the file.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	var ended error
	if j.write != nil {
		_, ended = j.write.ExecContext(context.Background(), "UPDATE runs SET ended = ? WHERE id = ?", time.Now().UnixNano(), j.run)
	}
	if err := cmp.Or(ended, j.close()); err != nil {
		return fmt.Errorf("close journal %s: %w", j.path, j.explain(err))
	}
	return nil
}

// close closes the reading side first: the last one to go folds the WAL into
// the file, and must be able to write. Then others may.
func (j *Journal) close() error {
	var errs []error
	if j.read != nil {
		errs = append(errs, j.read.Close())
	}
	if j.write != nil {
		errs = append(errs, j.write.Close())
	}
	if j.db != nil {
		errs = append(errs, j.db.Close())
	}
	if j.held != nil {
		errs = append(errs, j.held.Close())
	}
	return errors.Join(errs...)
}

// accessible finds what SQLite would only call "unable to open".
func accessible(path string, mode uint32) error {
	info, err := os.Stat(path)
	if err != nil {
		return pathless(err)
	}
	if !info.Mode().IsRegular() {
		return errors.New("it is no file: name the file to keep the journal in")
	}
	if err := unix.Faccessat(unix.AT_FDCWD, path, mode, unix.AT_EACCESS); err != nil {
		return err
	}
	return nil
}

// pathless drops the path, which the message has already.
func pathless(err error) error {
	if inner, ok := errors.AsType[*fs.PathError](err); ok {
		return inner.Err
	}
	return err
}

// code is what SQLite says an error is; 0 is an error of something else.
func code(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() & 0xff
	}
	return 0
}

// explain says what to do about errors of SQLite.
func (j *Journal) explain(err error) error {
	switch code(err) {
	case sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("%w but a file of something else, or its beginning is lost", ErrForeign)
	case sqlite3.SQLITE_CORRUPT:
		return fmt.Errorf("%w: %w", ErrTorn, err)
	case sqlite3.SQLITE_ERROR:
		// Its header says that it is a journal, and a journal has them all.
		if strings.Contains(err.Error(), "no such table") {
			return fmt.Errorf("%w: %w", ErrTorn, err)
		}
	case sqlite3.SQLITE_FULL:
		return fmt.Errorf("nothing was added, the disk is full: make room, or bound the journal to less: %w", err)
	case sqlite3.SQLITE_BUSY:
		return fmt.Errorf("another process has been writing for too long: try again: %w", err)
	}
	return err
}
