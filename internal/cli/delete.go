// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/impact"
	"github.com/fairlead-io/fairlead/internal/inventory"
)

func newDelete(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete ([-f PATH] | [-k FOLDER] | KIND [(NAME | -l SELECTOR | --all)])",
		Short: "Say what a kubectl delete would break, ask, and let kubectl do it",
		Long: `Say what kubectl delete would break with the same arguments, as preflight delete does,
then ask, and let the kubectl in PATH do it. The answer is the number of objects that
go. Without a terminal nobody can be asked: --yes-i-read-it is the answer then.

If more is named by the time of the answer than was judged, nothing is deleted.

Exit status: kubectl's; 2 if nothing was deleted.`,
		Example: e.examples(
			"fairlead delete deployment web -n shop",
			"fairlead delete clusterrole -l app.kubernetes.io/managed-by=Helm",
			"fairlead delete -f manifests/ --yes-i-read-it"),
		DisableFlagsInUseLine: true,
	}
	f := addDeleteFlags(cmd)
	outputFlag(cmd, "name")
	var read bool
	f.addOwn(cmd, func(flags *pflag.FlagSet) {
		flags.BoolVar(&read, readIt, false, "do not ask")
	})
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		if err := f.check(cmd, words); err != nil {
			return err
		}
		if !read && !f.dry() && !isTerminal(e.in) {
			return seeHelp(cmd, "nobody can be asked, since standard input is no terminal: look with preflight delete, then give --%s", readIt)
		}
		return f.delete(cmd, e, !read && !f.dry())
	}
	return cmd
}

// delete judges, asks if it is to, and lets kubectl delete.
func (f *deleteFlags) delete(cmd *cobra.Command, e *env, ask bool) error {
	ctx := cmd.Context()
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		return fmt.Errorf("find kubectl, which deletes: %w: install it, or print the command with preflight delete --%s", err, readIt)
	}
	j, err := f.judge(ctx, e)
	if err != nil {
		return err
	}
	if err := e.beside().printJudgement(&format{}, j); err != nil {
		return err
	}
	going := len(j.Deletion.Objects())
	if going == 0 {
		return j.err()
	}
	if ask {
		if err := e.ask(ctx, going); err != nil {
			return err
		}
	}
	if err := f.unchanged(ctx, e, j); err != nil {
		return err
	}
	args, err := f.pinned(cmd)
	if err != nil {
		return err
	}
	return e.run(ctx, kubectl, args, f.input(e))
}

// ask returns nil if a person knows how much goes.
func (e *env) ask(ctx context.Context, n int) error {
	fmt.Fprint(e.err, "\nType the number of objects that go to delete them: ")
	answers := make(chan string, 1)
	go func() {
		answer, _ := bufio.NewReader(e.in).ReadString('\n') // what was not typed is no answer
		answers <- strings.TrimSpace(answer)
	}()
	select {
	case answer := <-answers:
		if answer != strconv.Itoa(n) {
			return errors.New("nothing was deleted: that is not the number of objects that go")
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("nothing was deleted: %w", context.Cause(ctx))
	}
}

// unchanged looks once more at what the arguments name: a selector may match
// what did not exist when it was judged.
func (f *deleteFlags) unchanged(ctx context.Context, e *env, j *judgement) error {
	named, err := inventory.Roots(ctx, f.getter(ctx), f.named())
	if err != nil {
		return fmt.Errorf("nothing was deleted: look once more at what would be: %w", err)
	}
	judged := map[types.UID]bool{}
	for _, o := range j.Roots {
		judged[o.UID] = true
	}
	added := slices.DeleteFunc(slices.Clone(named.Objects), func(o *impact.Object) bool { return judged[o.UID] })
	if len(added) > 0 {
		names := objectNames(added)
		return fmt.Errorf("nothing was deleted: %s came meanwhile that would go too and was not judged: %s", plural(len(added), "object"), cut(names))
	}
	if left := len(named.Objects); left < len(j.Roots) {
		e.warn("%d of the %d objects that are named went meanwhile", len(j.Roots)-left, len(j.Roots))
	}
	return nil
}

// pinned are kubectl's arguments with the context that was judged, since the
// kubeconfig may turn to another cluster while a person reads.
func (f *deleteFlags) pinned(cmd *cobra.Command) ([]string, error) {
	args := f.kubectl(cmd)
	if *f.cluster.Context != "" {
		return args, nil
	}
	config, err := f.cluster.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	if config.CurrentContext == "" {
		return args, nil
	}
	return slices.Insert(args, 1, "--context="+config.CurrentContext), nil
}

// ended is the exit status of a program that said itself what was wrong.
type ended int

func (s ended) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// run lets a program go on in the place of this one.
func (e *env) run(ctx context.Context, path string, args []string, in io.Reader) error {
	program := exec.CommandContext(ctx, path, args...)
	program.Stdin, program.Stdout, program.Stderr = in, e.out, e.err
	program.Cancel = func() error { return program.Process.Signal(os.Interrupt) }
	err := program.Run()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok && failed.Exited() {
		return ended(failed.ExitCode())
	}
	if err != nil {
		return fmt.Errorf("run %s: %w", path, err)
	}
	return nil
}
