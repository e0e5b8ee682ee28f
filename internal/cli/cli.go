// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line: it reads flags, asks the rooms that know,
// and prints what they answer.
//
// What a command decides, another package decides for it. Nothing here knows
// how Services work, talks to the kernel, or is imported by anything but main.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// The exit statuses of every command.
const (
	exitFine     = 0
	exitFindings = 1
	exitFailed   = 2
)

// errFindings ends a command that ran and found something. What it found has
// been printed, so the error has no words.
var errFindings = errors.New("findings")

// env is what a command may touch of the world around it.
type env struct {
	in       io.Reader
	out, err io.Writer
	colour   bool
	name     string // of the program, as the user called it
	// documents counts what has been written as YAML.
	documents int
}

// Main runs the command line argv and returns the exit status: 0 fine, 1
// findings or drift, 2 could not run.
func Main(ctx context.Context, argv []string, in io.Reader, out, errOut io.Writer) int {
	colour := isTerminal(out) && os.Getenv("NO_COLOR") == ""
	root := newRoot(&env{in: in, out: out, err: errOut, colour: colour, name: displayName(argv)})
	root.SetArgs(argv[1:])
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitFine
	}
	if errors.Is(err, errFindings) {
		return exitFindings
	}
	if status, ok := errors.AsType[ended](err); ok {
		return int(status)
	}
	fmt.Fprintf(errOut, "fairlead: %s\n", oneLine(err))
	return exitFailed
}

// displayName is how the user called the program: a kubectl plugin is called
// as a word of kubectl.
func displayName(argv []string) string {
	if strings.HasPrefix(filepath.Base(argv[0]), "kubectl-") {
		return "kubectl fairlead"
	}
	return "fairlead"
}

func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// oneLine folds an error that some library wrote in several lines, and that may
// quote what others wrote.
func oneLine(err error) string {
	lines := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return clean(strings.Join(lines, "; "))
}

func newRoot(e *env) *cobra.Command {
	root := &cobra.Command{
		Use:   "fairlead",
		Short: "A Service proxy that explains itself",
		Long: `Fairlead serves the Services of a Kubernetes node with eBPF, with any CNI, and
says for every Service address what each layer believes and why.

Exit status: 0 fine, 1 findings or drift, 2 could not run.`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: e.name},
		SilenceErrors: true,
		SilenceUsage:  true,
		// Suggestions would make an error of several lines.
		DisableSuggestions: true,
		Args:               subcommand,
		RunE:               func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return seeHelp(cmd, "%w", err) })
	root.SetIn(e.in)
	root.SetOut(e.out)
	root.SetErr(e.err)
	root.AddCommand(
		newAgent(e),
		newStatus(e),
		newGet(e),
		newCompile(e),
		newTrace(e),
		newDiff(e),
		newExplain(e),
		newDoctor(e),
		newPreflight(e),
		newDelete(e),
		newMonitor(e),
		newAudit(e),
		newRBAC(e),
		newRecord(e),
		newEvents(e),
		newReplay(e),
		newTimeline(e),
		newRestore(e),
		newRelease(e),
		newGuard(e),
		newBundle(e),
		newDemo(e),
		newCleanup(e),
		newProbeDial(e),
		newVersion(e),
	)
	return root
}

// examples indents the lines of a command's examples as cobra prints them, and
// calls the program as the user did.
func (e *env) examples(lines ...string) string {
	text := "  " + strings.Join(lines, "\n  ")
	return strings.ReplaceAll(text, "fairlead ", e.name+" ")
}

// noArguments is for commands that take flags only.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return seeHelp(cmd, "%s takes flags only, not %q", cmd.Name(), args[0])
}

// subcommand is for commands that only hold others.
func subcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return seeHelp(cmd, "there is no command %q", args[0])
}

func seeHelp(cmd *cobra.Command, format string, args ...any) error {
	return fmt.Errorf(format+": see %s --help", append(args, cmd.CommandPath())...)
}
