// SPDX-License-Identifier: Apache-2.0

package source

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/fairlead-io/fairlead/internal/rbac"
)

// maxLine is how much of a line of a log is looked at.
const maxLine = 64 << 10

// Denials finds in a component's log what its API server refused, and tells of
// each. It keeps nothing.
func Denials(in io.Reader, tell func(rbac.Denial)) error {
	lines := bufio.NewReaderSize(in, maxLine)
	for rest := false; ; {
		line, long, err := lines.ReadLine()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the log: %w", err)
		}
		if d, is := rbac.ParseDenial(string(line)); is && !rest {
			tell(d)
		}
		rest = long
	}
}
