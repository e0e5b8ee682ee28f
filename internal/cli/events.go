// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/internal/journal"
)

func newEvents(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "events JOURNAL [[NAMESPACE/]NAME...]",
		Short: "Show what a journal tells: what happened to which object, and who wrote it",
		Long: `Show the events of a journal in the order in which they arrived, or those that the
flags pick: one must match each flag that is given, and any of its values.

A diff shows with -o wide, and the objects with -o json, of which each line is one
event. Where nobody watched for a while, a line on standard error says so.`,
		Example: e.examples("fairlead events journal.db", "fairlead events journal.db default/kubernetes -o wide",
			"fairlead events journal.db --kind endpointslices --field /endpoints --since 30m",
			"fairlead events --journal journal.db --manager kube-apiserver -f -o json"),
	}
	f := addEventFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		filter, path, err := f.read(args, time.Now())
		if err != nil {
			return seeHelp(cmd, "%w", err)
		}
		j, err := journal.Open(path)
		if err != nil {
			return err
		}
		defer j.Close()
		return e.journalEvents(cmd.Context(), j, filter, f)
	}
	return cmd
}

// journalEvents prints what a filter picks, after a word about each gap.
func (e *env) journalEvents(ctx context.Context, j *journal.Journal, filter journal.Filter, f *eventFlags) error {
	gaps, torn := j.Gaps(ctx, filter)
	if torn != nil && !errors.Is(torn, journal.ErrTorn) {
		return torn
	}
	e.warnOfGaps(gaps)
	events := j.Events(ctx, filter)
	if f.follow {
		events = j.Follow(ctx, filter)
	}
	emit, err := e.journalPrinter(f.output)
	if err != nil {
		return err
	}
	found := false
	for event, err := range events {
		if errors.Is(err, journal.ErrTorn) {
			torn = err
			break
		}
		if err != nil {
			return err
		}
		if err := emit(event); err != nil {
			return err
		}
		found = true
	}
	if torn != nil {
		e.warn("%v", torn)
		return errFindings
	}
	if !found && !f.follow {
		return e.warnOfNone(ctx, j)
	}
	return nil
}

// warnOfNone says what there is where no event was found.
func (e *env) warnOfNone(ctx context.Context, j *journal.Journal) error {
	return e.warnOfNo(ctx, j, "events")
}

func (e *env) warnOfNo(ctx context.Context, j *journal.Journal, what string) error {
	kinds, err := j.Kinds(ctx)
	if err != nil {
		return err
	}
	first, last, any, err := j.Extent(ctx)
	if err != nil {
		return err
	}
	if !any {
		e.warn("no %s match: the journal has no events", what)
		return nil
	}
	names := make([]string, len(kinds))
	for i, kind := range kinds {
		names[i] = kind.Resource
	}
	e.warn("no %s match: the journal goes from %s to %s and has %s", what, stampText(first), stampText(last), joined(names))
	return nil
}

// warnOfGaps says once of several kinds that nobody watched them, where a
// recorder was away: it lists them one after another when it is back.
func (e *env) warnOfGaps(gaps []journal.Gap) {
	for len(gaps) > 0 {
		whole, names, n := gaps[0], []string{gaps[0].Kind.Resource}, 1
		for n < len(gaps) && isSameGap(gaps[0], gaps[n]) {
			if whole.Ended.Before(gaps[n].Ended) {
				whole.Ended = gaps[n].Ended
			}
			names = append(names, gaps[n].Kind.Resource)
			n++
		}
		e.warn("nobody watched %s from %s to %s: %s", joined(names), stampText(whole.Began), stampText(whole.Ended), whole.Reason)
		gaps = gaps[n:]
	}
}

func isSameGap(a, b journal.Gap) bool {
	return a.Reason == b.Reason && b.Began.Sub(a.Began).Abs() < time.Second && b.Ended.Sub(a.Ended).Abs() < time.Second
}

// eventFlags are the flags of events as they were given.
type eventFlags struct {
	journal, namespace, field string
	since, until              string
	kinds, managers           []string
	types                     list[journal.Type]
	fromVersion, toVersion    uint64
	follow                    bool
	output                    *format
}

func addEventFlags(cmd *cobra.Command) *eventFlags {
	f := &eventFlags{types: list[journal.Type]{kind: "TYPE", parse: eventType}}
	f.addTo(cmd)
	flags := cmd.Flags()
	flags.Lookup("journal").Usage += ", if it is not the first argument"
	flags.StringSliceVar(&f.managers, "manager", nil, "only what these field `MANAGERS` wrote")
	flags.Var(&f.types, "type", "only events of these `TYPES`: "+joined(journal.Types()))
	flags.StringVar(&f.field, "field", "", "only events that changed this `PATH`, what is below it or what it is in: /spec/ports")
	flags.Uint64Var(&f.fromVersion, "from-version", 0, "only from this resourceVersion `N` on")
	flags.Uint64Var(&f.toVersion, "to-version", 0, "only up to this resourceVersion `N`")
	flags.BoolVarP(&f.follow, "follow", "f", false, "go on with what is recorded, until interrupted")
	f.output = outputFlag(cmd, "json", "yaml", "wide")
	return f
}

// addTo adds the flags that name a journal, and objects and a time in it.
func (f *eventFlags) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.journal, "journal", "", "the journal's `FILE`")
	flags.StringVarP(&f.namespace, "namespace", "n", "", "only objects in this `NAMESPACE`")
	flags.StringSliceVar(&f.kinds, "kind", nil, "only objects of these `KINDS`: Service, services, leases.coordination.k8s.io")
	flags.StringVar(&f.since, "since", "", "only events from this `TIME` on: 2026-01-02T15:04:05Z, or how long ago: 30m")
	flags.StringVar(&f.until, "until", "", "only events before this `TIME`, written likewise")
}

func eventType(text string) (journal.Type, error) {
	if !slices.Contains(journal.Types(), journal.Type(text)) {
		return "", fmt.Errorf("use %s", joined(journal.Types()))
	}
	return journal.Type(text), nil
}

func joined[T ~string](values []T) string {
	texts := make([]string, len(values))
	for i, value := range values {
		texts[i] = string(value)
	}
	return strings.Join(texts, ", ")
}

// read makes a filter of the flags and arguments, and finds the journal.
func (f *eventFlags) read(args []string, now time.Time) (journal.Filter, string, error) {
	filter := journal.Filter{Kinds: f.kinds, Managers: f.managers, Types: f.types.values, Field: f.field, FromVersion: f.fromVersion, ToVersion: f.toVersion}
	path := f.journal
	if path == "" {
		if len(args) == 0 {
			return filter, "", errors.New("name the journal's file")
		}
		path, args = args[0], args[1:]
	}
	if f.field != "" && !strings.HasPrefix(f.field, "/") {
		return filter, "", fmt.Errorf("--field %q: a path begins with a slash, as /spec/ports", f.field)
	}
	if f.toVersion > 0 && f.toVersion < f.fromVersion {
		return filter, "", fmt.Errorf("--to-version %d is before --from-version %d", f.toVersion, f.fromVersion)
	}
	var err error
	if filter.Since, filter.Until, err = readSpan(f.since, f.until, now); err != nil {
		return filter, "", err
	}
	return filter, path, f.pickObjects(&filter, args)
}

// pickObjects takes objects by their names: those of one namespace at a time,
// since a filter knows no pairs.
func (f *eventFlags) pickObjects(filter *journal.Filter, args []string) error {
	namespace := f.namespace
	for i, arg := range args {
		space, name, qualified := strings.Cut(arg, "/")
		if !qualified {
			space, name = f.namespace, arg
		}
		if name == "" || strings.Contains(name, "/") || qualified && space == "" {
			return fmt.Errorf("%q names no object: write NAMESPACE/NAME or NAME", arg)
		}
		if (i > 0 || namespace != "") && space != namespace {
			return fmt.Errorf("%s: name objects of one namespace at a time", arg)
		}
		namespace = space
		filter.Names = append(filter.Names, name)
	}
	if namespace != "" {
		filter.Namespaces = []string{namespace}
	}
	return nil
}

// readSpan reads --since and --until.
func readSpan(since, until string, now time.Time) (from, to time.Time, err error) {
	if from, err = readTime("--since", since, now); err != nil {
		return from, to, err
	}
	if to, err = readTime("--until", until, now); err != nil {
		return from, to, err
	}
	if !to.IsZero() && !to.After(from) {
		return from, to, fmt.Errorf("--until %s is not after --since %s", until, since)
	}
	return from, to, nil
}

// readTime reads a time, or how long ago one was. The zero time is none.
func readTime(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s %q: write a time as 2026-01-02T15:04:05Z, or how long ago it was as 1h30m", flag, text)
	}
	return at, nil
}

// stampText is a time to the millisecond, with its day: journals last.
func stampText(t time.Time) string { return t.Local().Format("2006-01-02T15:04:05.000Z07:00") }

// journalPrinter returns what prints one event of a journal.
func (e *env) journalPrinter(output *format) (func(journal.Event) error, error) {
	last := "CHANGED"
	if output.wide() {
		last = "DIFF"
	}
	return streamPrinter(e, output, &table{
		columns: columns("TIME", "KIND", "OBJECT", "TYPE", "MANAGER", "VERSION", last),
		widths:  []int{len("2006-01-02T15:04:05.000Z"), len("EndpointSlice"), 28, len("modified"), 24, 8, 0},
	}, func(event journal.Event) []string { return journalCells(event, output.wide()) })
}

// journalCells ends with what changed: the paths alone, or with their values.
func journalCells(event journal.Event, wide bool) []string {
	name := event.Name
	if event.Namespace != "" {
		name = event.Namespace + "/" + name
	}
	manager := event.Manager
	if event.Subresource != "" {
		manager += " (" + event.Subresource + ")"
	}
	changes := make([]string, len(event.Diff))
	for i, change := range event.Diff {
		changes[i] = change.Path
		if wide {
			changes[i] = changeText(change)
		}
	}
	return []string{stampText(event.Time), event.Kind.Kind, name, string(event.Type), manager, event.ResourceVersion, strings.Join(changes, " ")}
}

func changeText(c journal.Change) string {
	switch c.Op {
	case "add":
		return "+" + c.Path + "=" + string(c.New)
	case "remove":
		return "-" + c.Path + "=" + string(c.Old)
	}
	return c.Path + "=" + string(c.Old) + "→" + string(c.New)
}
