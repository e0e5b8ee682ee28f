// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/fairlead-io/fairlead/internal/impact"
	"github.com/fairlead-io/fairlead/internal/inventory"
)

func newPreflight(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "preflight",
		Short: "Say what a command would break, before it runs",
		Args:  subcommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPreflightDelete(e))
	return cmd
}

func newPreflightDelete(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete ([-f PATH] | [-k FOLDER] | KIND [(NAME | -l SELECTOR | --all)])",
		Short: "Say what a kubectl delete would break",
		Long: `Say what kubectl delete would do with the same arguments, and delete nothing: which
objects go, what goes with them, and what people would see of it, the worst first.

It reads whatever the user may read, and judges by what is there at that moment:
running pods, ready endpoints, bindings that still grant, claims that are bound. What
could not be read is told: the judgement is incomplete then, and never milder.

With --yes-i-read-it the judgement goes to standard error, and to standard output the
kubectl command that does it.

Exit status: 0 nothing in use would break, 1 something would, 2 it could not be judged,
or not all of it and nothing that is known does harm.`,
		Example: e.examples(
			"fairlead preflight delete clusterrole,clusterrolebinding -l app.kubernetes.io/managed-by=Helm",
			"fairlead preflight delete namespace shop -o json",
			"fairlead preflight delete -f manifests/ -R --cascade=orphan",
			"fairlead preflight delete secret -n shop --all --yes-i-read-it"),
		DisableFlagsInUseLine: true,
	}
	f := addDeleteFlags(cmd)
	output := outputFlag(cmd, "json", "yaml", "name")
	var read bool
	f.addOwn(cmd, func(flags *pflag.FlagSet) {
		flags.BoolVar(&read, readIt, false, "print the kubectl command that deletes")
	})
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		if err := f.check(cmd, words); err != nil {
			return err
		}
		if read && output.data() {
			return seeHelp(cmd, "--%s prints a command, and -o %s data: give one of the two", readIt, output.value)
		}
		j, err := f.judge(cmd.Context(), e)
		if err != nil {
			return err
		}
		if !read {
			if err := e.printJudgement(output, j); err != nil {
				return err
			}
			return j.err()
		}
		if err := e.beside().printJudgement(output, j); err != nil {
			return err
		}
		if err := e.print(f.command(cmd) + "\n"); err != nil {
			return err
		}
		return j.err()
	}
	return cmd
}

// beside prints answers where warnings go.
func (e *env) beside() *env {
	other := *e
	other.out, other.colour = e.err, e.colour && isTerminal(e.err)
	return &other
}

// judgement is what a delete would do.
type judgement struct {
	impact.Report
	*impact.Deletion
	// missing are the names of which there is no object.
	missing []error
}

// err is the judgement as the end of a command.
func (j *judgement) err() error {
	switch {
	case j.Worst() >= impact.Breaks:
		return errFindings
	case len(j.Incomplete) > 0:
		return errors.New("not all of it could be judged: read what is not known, or ask as somebody who may read it")
	}
	return nil
}

// judge reads the cluster, and says what the delete would do.
func (f *deleteFlags) judge(ctx context.Context, e *env) (*judgement, error) {
	doing, done := e.whileAsking("reaching the API server")
	defer done()
	f.args.Doing = doing
	if err := f.readStdin(e); err != nil {
		return nil, err
	}
	getter := f.getter(ctx)
	named, err := f.roots(ctx, getter)
	if err != nil {
		return nil, err
	}
	j := &judgement{}
	unread := []string{}
	for _, trouble := range named.Troubles {
		if apierrors.IsNotFound(trouble) {
			j.missing = append(j.missing, trouble)
			continue
		}
		unread = append(unread, trouble.Error())
	}
	state, roots, err := f.read(ctx, getter, named)
	if err != nil {
		return nil, err
	}
	cascade, err := f.cascading()
	if err != nil {
		return nil, err
	}
	j.Deletion = impact.Delete(state, roots, cascade)
	doing("judging")
	j.Report = impact.Examine(state, j.Deletion)
	j.Incomplete = append(unread, j.Incomplete...)
	return j, nil
}

// roots finds what the arguments name. If that is nothing but trouble, there is
// nothing to judge.
func (f *deleteFlags) roots(ctx context.Context, getter genericclioptions.RESTClientGetter) (*inventory.Named, error) {
	named, err := inventory.Roots(ctx, getter, f.named())
	if err != nil {
		return nil, err
	}
	if len(named.Objects) == 0 && len(named.Troubles) > 0 {
		return nil, fmt.Errorf("nothing to delete was found: %w", errors.Join(named.Troubles...))
	}
	return named, nil
}

// read reads all that a judgement may rest on; for nothing that goes, nothing.
func (f *deleteFlags) read(ctx context.Context, getter genericclioptions.RESTClientGetter, named *inventory.Named) (*impact.State, []*impact.Object, error) {
	config, err := getter.ToRESTConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("read how to reach the API server: %w", err)
	}
	cfg := inventory.Config{REST: config, Doing: f.args.Doing}
	if len(named.Objects) == 0 {
		return impact.NewState(time.Now()), nil, nil
	}
	state, err := inventory.Read(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	roots, err := inventory.Complete(ctx, cfg, state, named.Objects)
	if err != nil {
		return nil, nil, err
	}
	return state, roots, nil
}
