// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/internal/audit"
	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/timeline"
)

// manyEvents is how many a page has before one should think of showing less.
const manyEvents = 200_000

// timelineFlags say of what a timeline is made, and where it goes.
type timelineFlags struct {
	objects      *objectFlags
	journal      string
	logs         []string // of audit
	policy       string
	kinds        []string
	since, until string
	page, data   string
}

func newTimeline(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "timeline JOURNAL",
		Short: "Make one HTML file of a journal: backends, writers, gaps and findings on one axis",
		Long: `Make one HTML file of a journal, for a browser: how many backends Services had, who
wrote what, when nobody watched, and what was found wrong. If anything was, the page
opens on it. It loads nothing and sends nothing, so it can be mailed and kept.

Backends are counted as an agent on one node would have them, and findings are those of
replay --check. The flags about events do not touch these: they need all that went before.
With --audit-log it also shows the writes that API servers noted, each with the event
that it brought about, and the changes that no log explains.

With --data it writes the same as JSON. The exit status is 1 if there is a finding.`,
		Example: e.examples(
			"fairlead timeline journal.db",
			"fairlead timeline journal.db --since 30m -o incident.html",
			"fairlead timeline journal.db --audit-log cp1/audit.log,cp2/audit.log",
			"fairlead timeline journal.db --kind services,endpointslices --data incident.json"),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return nil
			}
			return seeHelp(cmd, "timeline takes one journal, not %d", len(args))
		},
	}
	f := addTimelineFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f.journal, f.objects.recorded.journal = args[0], args[0]
		if f.page == "" {
			f.page = strings.TrimSuffix(filepath.Base(f.journal), filepath.Ext(f.journal)) + ".html"
		}
		var err error
		if f.logs, err = audit.Files(f.logs...); err != nil {
			return err
		}
		if err := f.refuseOwnInput(); err != nil {
			return seeHelp(cmd, "%w", err)
		}
		return e.timeline(cmd.Context(), f)
	}
	return cmd
}

func addTimelineFlags(cmd *cobra.Command) *timelineFlags {
	f := &timelineFlags{objects: addNodeFlags(cmd)}
	r := &recordedFlags{retain: list[model.Name]{kind: "NAMESPACE/NAME", parse: parseService}}
	f.objects.recorded = r
	addRetentionFlags(cmd, &r.retain, &r.retainLimit)
	flags := cmd.Flags()
	flags.StringSliceVar(&f.logs, "audit-log", nil, "audit log in `FILE`, plain or gzip, or all files directly in the folder FILE; may be given several times")
	flags.StringVar(&f.policy, "policy", "", "the servers' audit policy in `FILE`, which explains what no log has")
	flags.StringSliceVar(&f.kinds, "kind", nil, "only events of these `KINDS`: Service, services, leases.coordination.k8s.io")
	flags.StringVar(&f.since, "since", "", "only what was from this `TIME` on: 2026-01-02T15:04:05Z, or how long ago: 30m")
	flags.StringVar(&f.until, "until", "", "only what was before this `TIME`, written likewise")
	flags.StringVarP(&f.page, "output", "o", "", "`FILE` for the page, - for stdout; if empty, the journal's name with .html, here")
	flags.StringVar(&f.data, "data", "", "write what the page shows as JSON to `FILE`, too, - for stdout")
	return f
}

// refuseOwnInput keeps a slip of the hand from writing over what one wanted to
// look at.
func (f *timelineFlags) refuseOwnInput() error {
	if f.policy != "" && len(f.logs) == 0 {
		return errors.New("--policy is about audit logs: give --audit-log too")
	}
	if f.page == f.data {
		return fmt.Errorf("--output and --data both name %s: give them two files", f.page)
	}
	for _, path := range []string{f.page, f.data} {
		for _, input := range append([]string{f.journal, f.policy}, f.logs...) {
			if sameFile(path, input) {
				return fmt.Errorf("%s is what is read: name another file for what is written", path)
			}
		}
	}
	return nil
}

// sameFile says whether both names are of one file that is there.
func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

func (e *env) timeline(ctx context.Context, f *timelineFlags) error {
	j, err := journal.Open(f.journal)
	if err != nil {
		return err
	}
	defer j.Close()
	g, err := f.gather(ctx, e, j, time.Now())
	if err != nil {
		return err
	}
	switch n := len(g.data.Events); {
	case n > manyEvents:
		e.warn("%d events are many for a browser: --since, --until and --kind make it less", n)
	case n == 0 && !g.lost:
		if err := e.warnOfNone(ctx, j); err != nil {
			return err
		}
	}
	if err := e.writeTimeline(f, g.data); err != nil {
		return err
	}
	reported := errors.Join(e.report(g.problems), e.reportLosses(g.losses))
	if reported != nil || len(g.data.Findings) > 0 {
		return errFindings
	}
	return nil
}

func (e *env) writeTimeline(f *timelineFlags, d timeline.Data) error {
	write := func(path string, content func(io.Writer, timeline.Data) error) error {
		if path == "-" {
			return content(e.out, d)
		}
		return replaceFile(path, func(w io.Writer) error { return content(w, d) })
	}
	if f.data != "" {
		if err := write(f.data, timeline.WriteJSON); err != nil {
			return err
		}
	}
	if err := write(f.page, timeline.Write); err != nil {
		return err
	}
	if f.page == "-" || f.data == "-" {
		return nil
	}
	return e.print(fmt.Sprintf("%s: %d events, %d findings\n", f.page, len(d.Events), len(d.Findings)))
}

// replaceFile writes a file for its owner alone, all of it or nothing.
func replaceFile(path string, write func(io.Writer) error) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if refused, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("write %s: %w", path, refused.Err)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	if err := errors.Join(write(file), file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
