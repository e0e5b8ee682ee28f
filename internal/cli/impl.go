// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/internal/adapter/compare"
	"github.com/fairlead-io/fairlead/internal/adapter/recording"
	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/replay"
)

// implFlags name what another proxy's tools printed.
type implFlags struct {
	files []string
	lag   time.Duration
}

func addImplFlags(cmd *cobra.Command) *implFlags {
	f := &implFlags{}
	cmd.Flags().StringSliceVar(&f.files, "impl", nil, "compare with dumps of another proxy on the node, recorded in `FILE`; repeatable")
	cmd.MarkFlagsMutuallyExclusive("impl", "at-version")
	cmd.Flags().DurationVar(&f.lag, "impl-lag", 5*time.Second, "`TIME` that the other proxy may take to follow")
	return f
}

func (f *implFlags) given() bool { return len(f.files) > 0 }

func (f *implFlags) check() error {
	if f.lag < 0 {
		return fmt.Errorf("--impl-lag %s: a lag takes time", f.lag)
	}
	return nil
}

// recordings are open files of dumps.
type recordings []*recording.Recording

func (all recordings) close() {
	for _, r := range all {
		_ = r.Close()
	}
}

// open finds the dumps in all files. Those that leave their zone open were
// made in this machine's.
func (f *implFlags) open() (all recordings, err error) {
	for _, path := range f.files {
		r, err := recording.Open(path, time.Local)
		if err != nil {
			all.close()
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

func (all recordings) moments(files []string) []compare.Moment {
	var out []compare.Moment
	for i, r := range all {
		for j := range r.Sections {
			s := &r.Sections[j]
			out = append(out, compare.Moment{Time: s.Time, Place: files[i], Read: s.Dump})
		}
	}
	return out
}

// comparison begins to compare what the flags name with a journal, up to a
// moment; the zero time is its end.
func (f *implFlags) comparison(ctx context.Context, e *env, j *journal.Journal, all recordings, to time.Time) (*compare.Comparison, error) {
	for _, r := range all {
		for _, warning := range r.Warnings {
			e.warn("%s", warning)
		}
	}
	gaps, err := j.Gaps(ctx, journal.Filter{Kinds: []string{"services", "endpointslices"}})
	if err != nil && !errors.Is(err, journal.ErrTorn) {
		return nil, err
	}
	gaps = slices.DeleteFunc(gaps, func(g journal.Gap) bool { return g.Kind.Group != "" && g.Kind.Group != "discovery.k8s.io" })
	_, end, _, err := j.Extent(ctx)
	if err != nil && !errors.Is(err, journal.ErrTorn) {
		return nil, err
	}
	if !to.IsZero() && to.Before(end) {
		end = to
	}
	return compare.New(compare.Options{Moments: all.moments(f.files), Lag: f.lag, Gaps: gaps, End: end}), nil
}

// join puts findings of two kinds into one order of time.
func join(a, b []replay.Finding) []replay.Finding {
	all := slices.Concat(a, b)
	slices.SortStableFunc(all, func(a, b replay.Finding) int { return a.Time.Compare(b.Time) })
	return all
}

// tellCompared says on stderr what the comparison rests on.
func (e *env) tellCompared(c *compare.Comparison) {
	for _, warning := range c.Warnings() {
		e.warn("%s", warning)
	}
	e.warn("compared %d dumps of another proxy", c.Compared())
}
