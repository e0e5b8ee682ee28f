// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/fairlead-io/fairlead/internal/apiserver"
	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/recorder"
	"github.com/fairlead-io/fairlead/internal/replay"
)

// What a journal is kept to unless the user says otherwise: a week, and no more
// than a laptop or a node can spare.
const (
	defaultJournal    = "journal.db"
	defaultJournalMax = "1Gi"
	defaultJournalAge = 7 * 24 * time.Hour
)

// recordFlags are the flags of record as they were given.
type recordFlags struct {
	path, kubeconfig  string
	servers           []string
	kinds, namespaces []string
	only, quiet       bool
	maxSize           byteSize
	maxAge, length    time.Duration
}

func newRecord(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "record",
		Short: "Record what happens to objects of the API in a journal, and who writes it",
		Long: `List and watch kinds of an API server, and keep in a journal what happens to their
objects: every event with who wrote it and what it changed, and the times that nobody
watched. It goes on until it is interrupted, waits for an API server that is away, turns
to another one that default/kubernetes names, and goes on in a journal that is there.

Recorded are Services, EndpointSlices, Nodes, the Leases of the control plane (those in
kube-system), roles and their bindings, NetworkPolicies, and what Cilium, Calico and
Antrea add, as far as the API server has them; --kind adds others.

Secrets are left out: the values of Secrets, and whatever looks like a password, a token
or a key in ConfigMaps, environments, arguments and annotations.

Exit status, whether it was interrupted, got SIGTERM or its time was over: 0 if all kinds
were recorded in the end, 1 if some were not, 2 if it could not begin or go on. A pod that
is ended is not restarted for a 1; for a unit of systemd set SuccessExitStatus=1.`,
		Example: e.examples("fairlead record --kubeconfig ~/.kube/config", "fairlead record --journal incident.db --kind pods --kind deployments.apps",
			"fairlead record --only --kind endpointslices -n default --for 10m", "fairlead events journal.db -f   # meanwhile, in another terminal"),
		Args: noArguments,
	}
	f := &recordFlags{}
	flags := cmd.Flags()
	flags.StringVar(&f.path, "journal", defaultJournal, "the journal's `FILE`, made if there is none")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "`FILE` that says how to reach the API server; in a pod its service account does if empty")
	flags.StringArrayVar(&f.servers, "api-server", nil, "`URL`, or ADDRESS:PORT, of another API server of the cluster, for when the first one is away; repeatable")
	flags.StringSliceVar(&f.kinds, "kind", nil, "record this `KIND` as well: pods, deployments.apps; repeatable")
	flags.BoolVar(&f.only, "only", false, "record the kinds of --kind only")
	flags.StringSliceVarP(&f.namespaces, "namespace", "n", nil, "of kinds that have namespaces, only objects in this `NAMESPACE`; repeatable")
	addJournalBounds(cmd, "", &f.maxSize, &f.maxAge)
	flags.DurationVar(&f.length, "for", 0, "end after this time; 0: when interrupted")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "show warnings only")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if f.only && len(f.kinds) == 0 {
			return seeHelp(cmd, "--only without --kind records nothing: name the kinds to record")
		}
		if f.maxAge < 0 || f.length < 0 {
			return seeHelp(cmd, "--max-age and --for must not be negative")
		}
		return e.record(cmd.Context(), f)
	}
	return cmd
}

// addJournalBounds adds the flags that bound a journal, for those who write one.
func addJournalBounds(cmd *cobra.Command, prefix string, size *byteSize, age *time.Duration) {
	// The default is well formed.
	_ = size.Set(defaultJournalMax)
	cmd.Flags().Var(size, prefix+"max-size", "`SIZE` to which the journal may grow, as 500Mi; then the oldest events go; 0: without bound")
	cmd.Flags().DurationVar(age, prefix+"max-age", defaultJournalAge, "how old events may get, but for the last state of what is still there; 0: without bound")
}

// byteSize is the value of a flag that is written as Kubernetes writes sizes.
type byteSize int64

func (b *byteSize) String() string {
	return resource.NewQuantity(int64(*b), resource.BinarySI).String()
}

// Type is the name of the value in the help text.
func (b *byteSize) Type() string { return "SIZE" }

// Set reads a size.
func (b *byteSize) Set(text string) error {
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() < 0 || q.Value() < 0 {
		return errors.New("write a number of bytes, as 500Mi or 2Gi")
	}
	*b = byteSize(q.Value())
	return nil
}

func (e *env) record(ctx context.Context, f *recordFlags) error {
	show := &progress{out: e.err}
	log := e.recordLog(show, f.quiet)
	client, err := apiserver.New(apiserver.Config{Kubeconfig: f.kubeconfig, Servers: f.servers, Log: log})
	if err != nil {
		return err
	}
	r, err := f.recorder(client, log)
	if err != nil {
		return err
	}
	if f.length > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.length)
		defer cancel()
	}
	if err := client.Connect(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	var others sync.WaitGroup
	others.Go(func() { _ = client.Run(running) }) // it ends with its context only
	others.Go(func() { e.tellRecording(running, r, f, show, log) })
	err = r.Run(ctx)
	stop()
	others.Wait()
	if err != nil {
		return err
	}
	return e.recorded(r.Status(), f.quiet)
}

func (f *recordFlags) recorder(client *apiserver.Client, log *slog.Logger) (*recorder.Recorder, error) {
	return recorder.New(recorder.Config{
		REST: client.REST(), Found: client.Found, Servers: func(at []netip.AddrPort) { client.Learn(apiserver.Slices, at) },
		Path: f.path, Kinds: f.kinds, Only: f.only, Namespaces: f.namespaces, Log: log,
		Journal: journal.Options{MaxBytes: int64(f.maxSize), MaxAge: f.maxAge, Server: client.String(), Recorder: "fairlead " + buildVersion()},
	})
}

// recorded is the last word of a recording. Kinds that were not followed in the
// end are findings.
func (e *env) recorded(s recorder.Status, quiet bool) error {
	if !quiet {
		if err := e.print(recordSummary(s) + "\n"); err != nil {
			return err
		}
	}
	away, why := notFollowed(s)
	if s.Trouble != nil {
		e.warn("in the end nothing was recorded: %v", s.Trouble)
		return errFindings
	}
	if len(away) == 0 {
		return nil
	}
	e.warn("in the end these were not recorded: %s; the first because of: %v (what a recorder may read is in deploy/recorder.yaml)", strings.Join(away, ", "), why)
	return errFindings
}

// errNotListed is why a kind is not followed that nothing is wrong with.
var errNotListed = errors.New("its first list is not complete")

// notFollowed names the kinds that are not followed, and why the first is not.
func notFollowed(s recorder.Status) (names []string, why error) {
	for _, k := range s.Kinds {
		switch {
		case k.Trouble != nil:
			names, why = append(names, k.Name), cmp.Or(why, k.Trouble)
		case !k.Listed:
			names, why = append(names, k.Name), cmp.Or(why, errNotListed)
		}
	}
	return names, why
}

// recordLog returns where a recorder logs. A person sees warnings only, above
// the line of progress: that tells the rest.
func (e *env) recordLog(show *progress, quiet bool) *slog.Logger {
	out, level := e.err, slog.LevelInfo
	if isTerminal(e.err) && !quiet {
		out = show
	}
	if isTerminal(e.err) || quiet {
		level = slog.LevelWarn
	}
	return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: level}))
}

const (
	// progressEvery is how often a person sees the line renewed, and tellEvery
	// how often a log says that the recorder is at work.
	progressEvery = time.Second
	tellEvery     = time.Minute
)

// tellRecording says how far a recorder has come until ctx ends: a person all
// the time, a log when something has happened.
func (e *env) tellRecording(ctx context.Context, r *recorder.Recorder, f *recordFlags, show *progress, log *slog.Logger) {
	every, human := tellEvery, isTerminal(e.err)
	if human {
		every = progressEvery
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	var before recorder.Status
	for !f.quiet {
		select {
		case <-ctx.Done():
			if human {
				show.show("")
			}
			return
		case <-tick.C:
		}
		now := r.Status()
		rate := float64(now.Events-before.Events) / every.Seconds()
		if human {
			show.show(recordLine(now, rate))
		} else if now.Events != before.Events || now.Lists != before.Lists || now.Gaps != before.Gaps {
			log.Info("recorded", "kinds", len(now.Kinds), "objects", now.Objects, "events", now.Events, "lists", now.Lists, "gaps", now.Gaps, "bytes", fileSize(now.Path))
		}
		before = now
	}
}

// recordLine fits a terminal's line.
func recordLine(s recorder.Status, rate float64) string {
	line := fmt.Sprintf("%d kinds  %d objects  %d events  %.0f/s  %d gaps  %s",
		len(s.Kinds), s.Objects, s.Events, rate, s.Gaps, bytesText(uint64(fileSize(s.Path))))
	if away, _ := notFollowed(s); len(away) > 0 {
		line += fmt.Sprintf("  %d not followed", len(away))
	}
	return line
}

func recordSummary(s recorder.Status) string {
	return fmt.Sprintf("%s: %d events, %d lists and %d gaps of %d kinds in %s, %s", s.Path, s.Events, s.Lists, s.Gaps, len(s.Kinds),
		replay.DurationText(time.Since(s.Began).Round(time.Second)), bytesText(uint64(fileSize(s.Path))))
}

// fileSize is what the journal takes on disk, with its WAL.
func fileSize(path string) (size int64) {
	for _, file := range []string{path, path + "-wal"} {
		if info, err := os.Stat(file); err == nil {
			size += info.Size()
		}
	}
	return size
}
