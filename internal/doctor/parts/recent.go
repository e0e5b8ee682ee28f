// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"time"

	"github.com/fairlead-io/fairlead/internal/doctor/facts"
)

// A client that is refused, or gets no answer, tries again at least once a
// minute: what it said before that is over. One that ends for it is started
// again after five minutes at most.
const (
	fresh      = 90 * time.Second
	freshCrash = 6 * time.Minute
)

// patience is for how long a line of a log says something about now.
func patience(c *facts.Case, l *facts.Log) time.Duration {
	pod := Pod(Objects(c), l)
	if pod == nil || Crashes(pod) != nil {
		return freshCrash
	}
	return fresh
}

// Recent are the lines of a log that say something about now. A line that does
// not say when it was written is as old as the one before it. Where none says,
// all are taken, and dated is false.
func Recent(c *facts.Case, l *facts.Log) (lines []facts.Line, dated bool) {
	now, fresh := read(c, l), patience(c, l)
	var at time.Time
	for _, line := range l.Lines {
		if !line.Time.IsZero() {
			at, dated = line.Time, true
		}
		if dated && !at.Before(now.Add(-fresh)) && !at.After(now.Add(fresh)) {
			lines = append(lines, line)
		}
	}
	if !dated {
		return l.Lines, false
	}
	return lines, true
}

// read is when a log was read, by the cluster's clock if the lines of logs are
// nearer to that than to the clock of who collected: as its record says, or, if
// that is only a file's time, not later than the newest line of all logs. The newest
// of all records counts, for a log may be read minutes before a sample was taken.
func read(c *facts.Case, l *facts.Log) time.Time {
	at := l.Record.Time
	if s := c.Last(); s != nil && s.To.After(at) {
		at = s.To
	}
	if there := at.Add(c.Skew()); c.Spoken.Sub(there).Abs() < c.Spoken.Sub(at).Abs() {
		return there
	}
	if c.Noted || c.Spoken.IsZero() || c.Spoken.After(at) {
		return at
	}
	return c.Spoken
}

// Lasts says whether lines show more than a moment, such as that in which an
// API server is started anew: a client tries again within seconds at first.
func Lasts(lines []facts.Line) bool {
	const moment = 10 * time.Second
	var first, last time.Time
	for _, line := range lines {
		if line.Time.IsZero() {
			continue
		}
		if first.IsZero() {
			first = line.Time
		}
		last = line.Time
	}
	return last.Sub(first) >= moment
}
