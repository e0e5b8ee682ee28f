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

// compared is another proxy beside a replay; the zero value is none.
type compared struct {
	comparison *compare.Comparison
	files      []*recording.Recording
}

func (c *compared) close() {
	for _, file := range c.files {
		_ = file.Close()
	}
}

// compare begins to compare what the flags name with a journal, up to a moment;
// the zero time is its end.
func (f *implFlags) compare(ctx context.Context, e *env, j *journal.Journal, to time.Time) (*compared, error) {
	c := &compared{}
	if !f.given() {
		return c, nil
	}
	moments, err := f.open(e, c)
	if err != nil {
		c.close()
		return nil, err
	}
	gaps, err := j.Gaps(ctx, journal.Filter{Kinds: []string{"services", "endpointslices"}})
	if err != nil && !errors.Is(err, journal.ErrTorn) {
		c.close()
		return nil, err
	}
	gaps = slices.DeleteFunc(gaps, func(g journal.Gap) bool { return g.Kind.Group != "" && g.Kind.Group != "discovery.k8s.io" })
	_, end, _, err := j.Extent(ctx)
	if err != nil && !errors.Is(err, journal.ErrTorn) {
		c.close()
		return nil, err
	}
	if !to.IsZero() && to.Before(end) {
		end = to
	}
	c.comparison = compare.New(compare.Options{Moments: moments, Lag: f.lag, Gaps: gaps, End: end})
	return c, nil
}

// open finds the dumps in all files. Those that leave their zone open were
// made in this machine's.
func (f *implFlags) open(e *env, c *compared) ([]compare.Moment, error) {
	var moments []compare.Moment
	for _, path := range f.files {
		r, err := recording.Open(path, time.Local)
		if err != nil {
			return nil, err
		}
		c.files = append(c.files, r)
		for _, warning := range r.Warnings {
			e.warn("%s", warning)
		}
		for i := range r.Sections {
			moments = append(moments, compare.Moment{Time: r.Sections[i].Time, Place: path, Read: r.Sections[i].Dump})
		}
	}
	return moments, nil
}

// observe is what a replay calls; nil if there is nothing to compare.
func (c *compared) observe() func(replay.Step) {
	if c.comparison == nil {
		return nil
	}
	return c.comparison.Step
}

// finish returns what differed.
func (c *compared) finish() []replay.Finding {
	if c.comparison == nil {
		return nil
	}
	return c.comparison.Finish()
}

// tellCompared says on stderr what the comparison rests on.
func (e *env) tellCompared(c *compared) {
	if c.comparison == nil {
		return
	}
	for _, warning := range c.comparison.Warnings() {
		e.warn("%s", warning)
	}
	e.warn("compared %d dumps of another proxy", c.comparison.Compared())
}

// join puts findings of two kinds into one order of time.
func join(a, b []replay.Finding) []replay.Finding {
	all := slices.Concat(a, b)
	slices.SortStableFunc(all, func(a, b replay.Finding) int { return a.Time.Compare(b.Time) })
	return all
}
