// SPDX-License-Identifier: Apache-2.0

// Command fairlead is the Service proxy of a node and the tools that explain
// it. Everything it does is in internal/cli.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/fairlead-io/fairlead/internal/cli"
)

func main() {
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	// A terminal that closes ends the program like Ctrl-C, unless it was
	// started to outlive it (nohup).
	if !signal.Ignored(syscall.SIGHUP) {
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	status := cli.Main(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}
