// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"
)

// DefaultSocket is where an agent listens unless told otherwise.
const DefaultSocket = "/run/fairlead/agent.sock"

// Listen opens the agent's unix socket, for root only. A socket that a dead
// agent left behind is replaced; one on which somebody answers is not.
func Listen(path string) (net.Listener, error) {
	folder := filepath.Dir(path)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, fmt.Errorf("create the folder of the API socket: %w", err)
	}
	if err := vacant(path); err != nil {
		return nil, err
	}
	// The socket is made inside a private folder and then moved, so that at no
	// time can anyone connect who may not.
	private, err := os.MkdirTemp(folder, ".s")
	if err != nil {
		return nil, fmt.Errorf("create the API socket: %w", err)
	}
	defer os.RemoveAll(private)
	listener, err := bind(filepath.Join(private, "s"), path)
	if err != nil {
		return nil, fmt.Errorf("create the API socket %s: %w", path, err)
	}
	return listener, nil
}

// longest is the longest path that a unix socket can have (unix(7)).
const longest = 107

func bind(private, path string) (net.Listener, error) {
	if len(private) > longest {
		return nil, fmt.Errorf("the path is %d bytes too long for a socket: name a shorter one with --socket", len(private)-longest)
	}
	unix, err := net.ListenUnix("unix", &net.UnixAddr{Name: private, Net: "unix"})
	if err != nil {
		return nil, err
	}
	unix.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(private, 0o600), os.Rename(private, path)); err != nil {
		return nil, errors.Join(err, unix.Close())
	}
	return &listener{UnixListener: unix, path: path}, nil
}

// vacant returns nil if path is free, or holds a socket that nobody serves.
func vacant(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at the API socket: %w", err)
	}
	if info.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("%s exists and is no socket: name another path with --socket", path)
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if nobodyAnswers(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("somebody holds the API socket %s but does not answer: %w", path, err)
	}
	conn.Close()
	return fmt.Errorf("another agent answers on %s: stop it, or name another path with --socket", path)
}

// listener takes its name away before it stops listening: once it is closed,
// the name may already be a successor's.
type listener struct {
	*net.UnixListener
	path string
}

func (l *listener) Close() error {
	err := os.Remove(l.path)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, l.UnixListener.Close())
}

// Addr is the name that clients know, not the one the socket was made under.
func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }
