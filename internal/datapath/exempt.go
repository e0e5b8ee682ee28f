// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"path/filepath"

	"github.com/cilium/ebpf"

	"github.com/fairlead-io/fairlead/internal/failpoint"
)

// Exempt lets a socket dial whom it names: from its next connect() on, no
// program translates or refuses it, be it TCP, connected UDP or, where the
// kernel shows programs the socket above a subflow, MPTCP. Unconnected UDP is
// translated as ever. The mark ends with the socket, and holds for programs of
// every generation of maps: before Attach it is a predecessor's that heed it, if
// they know of it. Safe beside all other methods but Close.
func (d *Datapath) Exempt(fd uintptr) error {
	if failpoint.Off("exempt") {
		return nil
	}
	err := d.current.maps[mapExempt].Put(int32(fd), uint32(1))
	if err != nil {
		return fmt.Errorf("exempt the socket with descriptor %d from translation: %w", fd, err)
	}
	return nil
}

// Exemptions marks sockets of a process that is not the writer, for those who
// look at what a connection would do without the programs.
type Exemptions struct{ marks *ebpf.Map }

// OpenExemptions opens the marks of the maps in force. ErrNotPinned if there are
// none.
func OpenExemptions(pinPath string) (*Exemptions, error) {
	number, err := currentNumber(pinPath)
	if err != nil {
		return nil, err
	}
	if number == 0 {
		return nil, fmt.Errorf("%w at %s: is the agent's --pin-path another one?", ErrNotPinned, pinPath)
	}
	marks, err := ebpf.LoadPinnedMap(filepath.Join(generationFolder(pinPath, number), mapExempt), nil)
	if err != nil {
		return nil, fmt.Errorf("open the marks of exempt sockets: %w", err)
	}
	return &Exemptions{marks}, nil
}

// Exempt is that of Datapath.
func (e *Exemptions) Exempt(fd uintptr) error {
	if err := e.marks.Put(int32(fd), uint32(1)); err != nil {
		return fmt.Errorf("exempt the socket with descriptor %d from translation: %w", fd, err)
	}
	return nil
}

// Close ends the marking; marked sockets stay so.
func (e *Exemptions) Close() error { return e.marks.Close() }
