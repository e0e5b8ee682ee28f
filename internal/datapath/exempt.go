// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"

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
