// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/helm"
	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/restore"
)

// restoreFlags are the flags of restore as they were given.
type restoreFlags struct {
	release     string
	revision    int
	journal, at string
	files       []string
	chart       restore.Chart
	chartName   string
	kinds       []string
	apply       bool
	output      *format
	kube        *genericclioptions.ConfigFlags
}

func newRestore(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore [KIND[/NAME]...]",
		Short: "Show what is missing of a Helm release, a journal or manifests, and create it",
		Long: `Hold a cluster against what should be there: a Helm release as Helm keeps it in the
cluster, the state at a moment of a journal, manifests, or a chart. It shows what is
missing and what differs, roles and their bindings first, and changes nothing unless
--apply is given.

--apply creates what is missing, in an order in which each object finds what it needs,
by server-side apply as field manager fairlead-restore. It never changes an object that
is there: what differs is shown, and left to helm upgrade or kubectl apply. Jobs, which
would run once more, Helm's hooks, and what a controller makes are not created. What is
created stays with its Helm release.

KIND and KIND/NAME pick objects; rbac stands for roles and their bindings. Values of
Secrets, and what looks like one, are never shown. A journal does not have them, so what
holds any cannot be restored from it. A chart is rendered by helm.

Exit status: 0 nothing is missing or differs, or all that was missing was created; 1
something is missing or differs, or could not be created; 2 it could not be judged.`,
		Example: e.examples("fairlead restore --helm-release kube-system/cilium",
			"fairlead restore --helm-release kube-system/cilium rbac --apply",
			"fairlead restore --journal journal.db --at 30m clusterroles clusterrolebinding/cilium -o diff",
			"fairlead restore -f deploy/ -n shop",
			"fairlead restore --chart ./cilium --release kube-system/cilium --values values.yaml"),
	}
	f := addRestoreFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		filters, err := f.check(cmd, args)
		if err != nil {
			return seeHelp(cmd, "%w", err)
		}
		return e.restore(cmd.Context(), f, filters)
	}
	return cmd
}

func addRestoreFlags(cmd *cobra.Command) *restoreFlags {
	f := &restoreFlags{kube: genericclioptions.NewConfigFlags(true)}
	f.kube.AddFlags(cmd.Flags())
	flags := cmd.Flags()
	flags.Lookup("namespace").Usage = "the namespace of a release or of objects that name none; with --journal, only objects in it"
	flags.StringVar(&f.release, "helm-release", "", "the Helm release `[NAMESPACE/]NAME`, as Helm keeps it in the cluster")
	flags.IntVar(&f.revision, "revision", 0, "the revision `N` of the release; the deployed one if 0")
	flags.StringVar(&f.journal, "journal", "", "journal's `FILE`: what was there at a moment that was recorded")
	flags.StringVar(&f.at, "at", "", "the moment in the journal, a `TIME` as 2026-01-02T15:04:05Z, or how long ago as 30m")
	flags.StringSliceVarP(&f.files, "filename", "f", nil, "manifests: a `FILE`, a folder with all of its folders, or - for stdin; repeatable")
	flags.StringVar(&f.chart.Folder, "chart", "", "a chart's `FOLDER`, which helm renders")
	flags.StringVar(&f.chartName, "release", "", "`[NAMESPACE/]NAME` as which the chart is installed")
	flags.StringSliceVar(&f.chart.Values, "values", nil, "`FILE` with values for the chart; repeatable")
	flags.StringVar(&f.chart.Helm, "helm", "", "helm's `FILE`, if it is not in PATH")
	flags.StringSliceVar(&f.kinds, "kind", nil, "only objects of these `KINDS`, as if they were arguments")
	flags.BoolVar(&f.apply, "apply", false, "create what is missing")
	cmd.MarkFlagsMutuallyExclusive("helm-release", "journal", "filename", "chart")
	f.output = outputFlag(cmd, "wide", "diff", "json", "yaml")
	return f
}

// belongs are flags that say more of a source than its own flag.
var belongs = []struct{ flag, to string }{
	{"revision", "helm-release"}, {"at", "journal"}, {"release", "chart"}, {"values", "chart"}, {"helm", "chart"},
}

func (f *restoreFlags) check(cmd *cobra.Command, args []string) ([]restore.Filter, error) {
	changed := cmd.Flags().Changed
	for _, b := range belongs {
		if changed(b.flag) && !changed(b.to) {
			return nil, fmt.Errorf("--%s is about --%s: give that too", b.flag, b.to)
		}
	}
	switch {
	case f.release == "" && f.journal == "" && len(f.files) == 0 && f.chart.Folder == "":
		return nil, errors.New("say what should be there: --helm-release, --journal with --at, -f, or --chart")
	case f.journal != "" && f.at == "":
		return nil, errors.New("--journal needs --at: a moment before it went wrong")
	case f.chart.Folder != "" && f.chartName == "":
		return nil, errors.New("--chart needs --release: names in a chart depend on it")
	case f.revision < 0:
		return nil, fmt.Errorf("--revision %d: it must not be negative", f.revision)
	}
	var filters []restore.Filter
	for _, text := range append(args, f.kinds...) {
		filter, err := restore.ParseFilter(text)
		if err != nil {
			return nil, err
		}
		filters = append(filters, filter)
	}
	return filters, nil
}

func (e *env) restore(ctx context.Context, f *restoreFlags, filters []restore.Filter) error {
	config, err := f.kube.ToRESTConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w: give --kubeconfig", err)
	}
	config.QPS, config.UserAgent = -1, userAgent()
	cluster, err := restore.Connect(config)
	if err != nil {
		return err
	}
	doing, done := e.whileAsking("reading what should be there")
	plan, err := f.plan(ctx, e, config, cluster, filters)
	if err == nil && f.apply {
		err = cluster.Apply(ctx, plan, func(item *restore.Item) { doing("made " + item.String()) })
	}
	done()
	if err != nil {
		return err
	}
	if err := e.printPlan(f, plan); err != nil {
		return err
	}
	return f.verdict(plan)
}

func (f *restoreFlags) plan(ctx context.Context, e *env, config *rest.Config, cluster *restore.Cluster, filters []restore.Filter) (*restore.Plan, error) {
	wanted, err := f.wanted(ctx, e, config)
	if err != nil {
		return nil, err
	}
	return cluster.Plan(ctx, wanted, filters)
}

func (f *restoreFlags) wanted(ctx context.Context, e *env, config *rest.Config) (*restore.Wanted, error) {
	namespace, named, err := f.kube.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, fmt.Errorf("find the namespace: %w", err)
	}
	switch {
	case f.journal != "":
		only := ""
		if named {
			only = namespace
		}
		return f.recorded(ctx, e, only)
	case f.chart.Folder != "":
		if f.chart.Namespace, f.chart.Release, err = releaseName(namespace, f.chartName); err != nil {
			return nil, fmt.Errorf("--release %w", err)
		}
		return restore.FromChart(ctx, f.chart)
	case f.release != "":
		return f.installed(ctx, config, namespace)
	}
	return restore.FromManifests(f.files, e.in, namespace)
}

func (f *restoreFlags) installed(ctx context.Context, config *rest.Config, namespace string) (*restore.Wanted, error) {
	namespace, name, err := releaseName(namespace, f.release)
	if err != nil {
		return nil, fmt.Errorf("--helm-release %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for %s: %w", config.Host, err)
	}
	release, err := helm.Find(ctx, client, namespace, name, f.revision)
	if err != nil {
		return nil, err
	}
	return restore.FromRelease(release)
}

// releaseName reads [NAMESPACE/]NAME.
func releaseName(namespace, text string) (string, string, error) {
	space, name, qualified := strings.Cut(text, "/")
	if !qualified {
		space, name = namespace, text
	}
	if space == "" || name == "" || strings.Contains(name, "/") {
		return "", "", fmt.Errorf("%q: write NAMESPACE/NAME", text)
	}
	return space, name, nil
}

// recorded reads a journal, and says what it cannot tell.
func (f *restoreFlags) recorded(ctx context.Context, e *env, namespace string) (*restore.Wanted, error) {
	at, err := readTime("--at", f.at, time.Now())
	if err != nil {
		return nil, err
	}
	j, err := journal.Open(f.journal)
	if err != nil {
		return nil, err
	}
	defer j.Close()
	wanted, err := restore.FromJournal(ctx, j, at, namespace)
	if errors.Is(err, journal.ErrTorn) {
		e.warn("%v", err)
	} else if err != nil {
		return nil, err
	}
	if len(wanted.Objects) == 0 {
		if err := e.warnOfNone(ctx, j); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%s has no object: name a time at which all was well", wanted.Source)
	}
	gaps, err := j.Gaps(ctx, journal.Filter{Since: at, Until: at.Add(1)})
	if err != nil && !errors.Is(err, journal.ErrTorn) {
		return nil, err
	}
	e.warnOfGaps(gaps)
	return wanted, e.warnOfEnd(ctx, j, at)
}

// verdict is what the exit status says.
func (f *restoreFlags) verdict(p *restore.Plan) error {
	found := p.Count(restore.Missing, restore.Refused, restore.Failed)
	if !f.apply {
		found += p.Count(restore.Drifted)
	}
	if found > 0 {
		return errFindings
	}
	if n := p.Count(restore.Unknown); n > 0 {
		return fmt.Errorf("%d of %d objects could not be judged: the lines that begin with unknown say why", n, len(p.Items))
	}
	return nil
}
