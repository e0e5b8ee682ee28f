// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/impact"
	"github.com/fairlead-io/fairlead/internal/inventory"
	"github.com/fairlead-io/fairlead/internal/printable"
)

// deleteFlags are those of `kubectl delete`. All of them go to kubectl as they
// are; those that say what goes, and how, are read here too.
type deleteFlags struct {
	cluster *genericclioptions.ConfigFlags
	args    inventory.Args
	cascade string
	dryRun  string
	force   bool
	now     bool
	grace   int
	raw     string
	stdin   []byte // all of it, if a file is "-"
	// own are the flags that kubectl does not have.
	own *pflag.FlagSet
}

// readIt is the flag that stands for a person's word.
const readIt = "yes-i-read-it"

func addDeleteFlags(cmd *cobra.Command) *deleteFlags {
	f := &deleteFlags{cluster: genericclioptions.NewConfigFlags(true).WithDiscoveryBurst(300).WithDiscoveryQPS(50),
		own: pflag.NewFlagSet("own", pflag.ContinueOnError)}
	flags := cmd.Flags()
	// They go to kubectl in the order in which they were given.
	flags.SortFlags = false
	flags.StringVarP(&f.args.LabelSelector, "selector", "l", "", "what has labels that match the `SELECTOR`")
	flags.StringVar(&f.args.FieldSelector, "field-selector", "", "what has fields that match the `SELECTOR`")
	flags.BoolVar(&f.args.All, "all", false, "all objects of the kinds, in the namespace")
	flags.BoolVarP(&f.args.AllNamespaces, "all-namespaces", "A", false, "in all namespaces")
	flags.StringSliceVarP(&f.args.Files.Filenames, "filename", "f", nil, "what the file, folder or URL `PATH` holds; - is standard input")
	flags.StringVarP(&f.args.Files.Kustomize, "kustomize", "k", "", "what the kustomization in the folder `PATH` makes")
	flags.BoolVarP(&f.args.Files.Recursive, "recursive", "R", false, "look into the folders of --filename too")
	flags.BoolVar(&f.args.IgnoreNotFound, "ignore-not-found", false, "say nothing of what is not there; true with --all and selectors")
	flags.StringVar(&f.cascade, "cascade", "background", "what becomes of dependents: `background|foreground|orphan`")
	flags.Lookup("cascade").NoOptDefVal = "background"
	f.addCarried(flags)
	f.cluster.AddFlags(flags)
	return f
}

// addCarried adds the flags of kubectl that change how it deletes, and not what.
func (f *deleteFlags) addCarried(flags *pflag.FlagSet) {
	flags.StringVar(&f.dryRun, "dry-run", "none", "kubectl's: `none|client|server`")
	flags.Lookup("dry-run").NoOptDefVal = "unchanged"
	flags.BoolVar(&f.force, "force", false, "kubectl's: do not wait for objects to end")
	flags.BoolVar(&f.now, "now", false, "kubectl's: as --grace-period=1")
	flags.IntVar(&f.grace, "grace-period", -1, "kubectl's: `SECONDS` that objects have to end")
	flags.Bool("wait", true, "kubectl's: wait until objects are gone")
	flags.Duration("timeout", 0, "kubectl's: how long to wait")
	flags.BoolP("interactive", "i", false, "kubectl's: ask before deleting")
	flags.StringVar(&f.raw, "raw", "", "kubectl's: refused, since a path names no object")
	for _, name := range []string{"warnings-as-errors", "match-server-version"} {
		flags.Bool(name, false, "kubectl's")
		_ = flags.MarkHidden(name) // it fails for a flag that does not exist only
	}
	for name, short := range map[string]string{"v": "v", "kuberc": ""} {
		flags.StringP(name, short, "", "kubectl's")
		_ = flags.MarkHidden(name)
	}
}

// addOwn adds a flag that kubectl does not have, and does not get.
func (f *deleteFlags) addOwn(cmd *cobra.Command, add func(*pflag.FlagSet)) {
	add(f.own)
	cmd.Flags().AddFlagSet(f.own)
}

// check refuses what kubectl refuses, before anything is asked.
func (f *deleteFlags) check(cmd *cobra.Command, words []string) error {
	a := &f.args
	files := len(a.Files.Filenames) > 0 || a.Files.Kustomize != ""
	selects := a.LabelSelector != "" || a.FieldSelector != ""
	switch {
	case f.raw != "":
		return errors.New("--raw deletes what is at a path, of which nothing is known: name the objects, as KIND NAME")
	case len(words) == 0 && !files:
		return seeHelp(cmd, "say what is to be deleted: KIND NAME, KIND -l SELECTOR, or -f FILE")
	case len(words) > 0 && files:
		return seeHelp(cmd, "give either kinds and names, or files")
	case a.All && selects:
		return seeHelp(cmd, "--all takes no selector")
	case f.now && f.grace != -1:
		return seeHelp(cmd, "--now is a --grace-period: give one of the two")
	case f.force && f.grace > 0:
		return seeHelp(cmd, "--force ends objects at once: --grace-period %d does not go with it", f.grace)
	case !slices.Contains([]string{"none", "client", "server", "unchanged"}, f.dryRun):
		return seeHelp(cmd, "--dry-run=%s: use none, client or server", f.dryRun)
	}
	if _, err := f.cascading(); err != nil {
		return seeHelp(cmd, "%w", err)
	}
	a.Words = words
	// Who asks for all that match does not mind that none does.
	if !cmd.Flags().Changed("ignore-not-found") {
		a.IgnoreNotFound = a.All || selects
	}
	return nil
}

// cascading reads --cascade, with the truth values that it once had.
func (f *deleteFlags) cascading() (impact.Cascade, error) {
	if dependents, err := strconv.ParseBool(f.cascade); err == nil {
		if dependents {
			return impact.Background, nil
		}
		return impact.Orphan, nil
	}
	c := impact.Cascade(f.cascade)
	if !slices.Contains([]impact.Cascade{impact.Background, impact.Foreground, impact.Orphan}, c) {
		return "", fmt.Errorf("--cascade=%s: use background, foreground or orphan", f.cascade)
	}
	return c, nil
}

// readStdin keeps what is there if it says what goes: it is read more than once.
func (f *deleteFlags) readStdin(e *env) (err error) {
	if !f.fromStdin() {
		return nil
	}
	if f.stdin, err = io.ReadAll(e.in); err != nil {
		return fmt.Errorf("read what is to be deleted from standard input: %w", err)
	}
	return nil
}

func (f *deleteFlags) fromStdin() bool { return slices.Contains(f.args.Files.Filenames, "-") }

// input is what kubectl reads.
func (f *deleteFlags) input(e *env) io.Reader {
	if f.fromStdin() {
		return bytes.NewReader(f.stdin)
	}
	return e.in
}

// named are the arguments that say what goes.
func (f *deleteFlags) named() inventory.Args {
	args := f.args
	args.Stdin = bytes.NewReader(f.stdin)
	return args
}

// dry says that kubectl itself would delete nothing.
func (f *deleteFlags) dry() bool { return f.dryRun != "none" }

// getter is the way to the API server that kubectl would take.
func (f *deleteFlags) getter(ctx context.Context) genericclioptions.RESTClientGetter {
	f.cluster.WrapConfigFn = func(c *rest.Config) *rest.Config {
		c.QPS = -1 // whoever waits for an answer is a person
		c.UserAgent = userAgent()
		c.WarningHandler = rest.NoWarnings{}
		// kubectl's own reading of arguments does not end with a context.
		c.Wrap(func(next http.RoundTripper) http.RoundTripper { return ending{next, ctx} })
		return c
	}
	return f.cluster
}

// ending lets requests end with a command besides their own context.
type ending struct {
	next    http.RoundTripper
	command context.Context
}

// RoundTrip implements http.RoundTripper. What it leaves behind goes with the
// command.
func (e ending) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	context.AfterFunc(e.command, cancel)
	return e.next.RoundTrip(r.WithContext(ctx))
}

// kubectl are the arguments that let kubectl do what was judged.
func (f *deleteFlags) kubectl(cmd *cobra.Command) []string {
	args := []string{"delete"}
	dashed := slices.ContainsFunc(f.args.Words, func(w string) bool { return strings.HasPrefix(w, "-") })
	if !dashed {
		args = append(args, f.args.Words...)
	}
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if f.own.Lookup(flag.Name) == nil && flag.Name != "help" {
			args = append(args, flagWords(flag)...)
		}
	})
	if dashed {
		args = append(append(args, "--"), f.args.Words...)
	}
	return args
}

// command is the line that lets kubectl do what was judged. A token stays out of
// logs and of other people's sight.
func (f *deleteFlags) command(cmd *cobra.Command) string {
	args := f.kubectl(cmd)
	if token := *f.cluster.BearerToken; token != "" {
		for i := range args {
			if args[i] == "--token="+token {
				args[i] = "--token=REDACTED"
			}
		}
	}
	return printable.Command(append([]string{"kubectl"}, args...)...)
}

// flagWords write a flag as people do.
func flagWords(flag *pflag.Flag) (words []string) {
	values := []string{flag.Value.String()}
	if list, ok := flag.Value.(pflag.SliceValue); ok {
		values = list.GetSlice()
	}
	for _, value := range values {
		switch {
		case flag.Value.Type() == "bool" && value == "true" && flag.Shorthand != "":
			words = append(words, "-"+flag.Shorthand)
		case flag.Value.Type() == "bool" && value == "true":
			words = append(words, "--"+flag.Name)
		case flag.Shorthand != "" && flag.NoOptDefVal == "":
			words = append(words, "-"+flag.Shorthand, value)
		default:
			words = append(words, "--"+flag.Name+"="+value)
		}
	}
	return words
}
