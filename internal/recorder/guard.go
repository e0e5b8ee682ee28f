// SPDX-License-Identifier: Apache-2.0

package recorder

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
)

// ErrDefect is a recorder that ended for a fault of its own.
var ErrDefect = errors.New("the recorder has a defect, which the log shows: report it")

// guard does something. A panic in it is an error, for whoever else is in the
// process goes on.
func guard(log *slog.Logger, do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			log.Error("the recorder ends for a defect of its own", "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("%w: %v", ErrDefect, p)
		}
	}()
	return do()
}
