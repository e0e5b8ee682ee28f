// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// run runs a program on the node, without a shell.
func run(ctx context.Context, argv []string) (output, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var out, wrong bounded
	cmd.Stdout, cmd.Stderr = &out, &wrong
	// A program that left children behind may hold its pipes for ever.
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if errors.Is(err, exec.ErrNotFound) {
		return output{}, fmt.Errorf("%w: install %s on the node", errNoProgram, argv[0])
	}
	if err != nil {
		return out.output(), failure(err, wrong.kept.String())
	}
	return out.output(), nil
}

// errNoProgram says that what was to run is not there.
var errNoProgram = errors.New("there is no such program")

// failure says of a command that failed what it said itself, in one line. That
// there is no such program is said by whoever was to start it, in his own words.
func failure(err error, said string) error {
	const enough = 400
	said = strings.Join(strings.Fields(said), " ")
	for _, words := range []string{"executable file not found", "failed to execute", "no such file or directory: unknown"} {
		if strings.Contains(said, words) || strings.Contains(err.Error(), words) {
			return errNoProgram
		}
	}
	if said == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, said[:min(len(said), enough)])
}
