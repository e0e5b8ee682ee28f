// SPDX-License-Identifier: Apache-2.0

package correlation

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/fairlead-io/fairlead/internal/audit"
	"github.com/fairlead-io/fairlead/internal/journal"
)

const (
	// samples are how many of the last pairs say how a server's clock differs.
	samples = 101
	// enough pairs of a server need no look-ups for more.
	enough = 7
	// witnesses are how many pairs it takes to believe that a clock is far off.
	witnesses = 3
	// lookUps bounds how often one asks for a pair of a server in advance, and
	// headRecords how many of a file's records are looked at for that, allRecords
	// how many of all files.
	lookUps     = 40
	headRecords = 2000
	allRecords  = 20_000
	// headEvents are how many events at most, and minEvents at least, tell how the
	// servers' clocks differ by and large. A time in managedFields is cut to the
	// second, and may be older than the event, never newer: an early tenth of the
	// differences says most.
	headEvents = 2000
	minEvents  = 10
)

// clocks knows how far each server's clock is behind the recorder's. A server
// of which there is no pair yet is assumed to be as all are by managedFields.
type clocks struct {
	usual   time.Duration
	servers map[string]*clock
}

type clock struct {
	last   []time.Duration // a ring of samples
	pairs  int
	behind time.Duration
}

func (c *clocks) of(server string) *clock {
	one := c.servers[server]
	if one == nil {
		one = &clock{behind: c.usual}
		c.servers[server] = one
	}
	return one
}

// at is when a record was made by the recorder's clock.
func (c *clocks) at(r audit.Record) time.Time { return r.Time.Add(c.of(r.Server).behind) }

// typical is how far the clock is behind of which most is known.
func (c *clocks) typical() time.Duration {
	best := &clock{behind: c.usual}
	for _, name := range slices.Sorted(maps.Keys(c.servers)) {
		if one := c.servers[name]; one.pairs > best.pairs {
			best = one
		}
	}
	return best.behind
}

// delay is how long after a record an event came. What clocks differ by cannot
// be told from what a watch takes, unless it is more than a watch should take.
func (c *clocks) delay(r audit.Record, e journal.Event) time.Duration {
	difference := e.Time.Sub(r.Time)
	if behind := c.of(r.Server).behind; behind.Abs() > time.Second {
		return difference - behind
	}
	return difference
}

// learn takes a pair of one version.
func (c *clocks) learn(r audit.Record, e journal.Event) {
	one := c.of(r.Server)
	difference := e.Time.Sub(r.Time)
	if len(one.last) < samples {
		one.last = append(one.last, difference)
	} else {
		one.last[one.pairs%samples] = difference
	}
	one.pairs++
	if one.pairs <= enough || one.pairs%16 == 0 {
		one.behind = quantile(one.last, 0.5)
	}
}

// agrees says whether pairs agree on a clock. That an object and its
// version are called alike in the log of another cluster is chance.
func (one *clock) agrees() bool {
	return len(one.last) >= witnesses && quantile(one.last, 0.75)-quantile(one.last, 0.25) < near
}

// quantile needs a difference.
func quantile(differences []time.Duration, share float64) time.Duration {
	sorted := slices.Sorted(slices.Values(differences))
	return sorted[int(share*float64(len(sorted)-1))]
}

// answer lists the clocks by server.
func (c *clocks) answer() []Clock {
	out := []Clock{}
	for _, name := range slices.Sorted(maps.Keys(c.servers)) {
		one := c.servers[name]
		out = append(out, Clock{Server: name, BehindSeconds: one.behind.Round(time.Millisecond).Seconds(), Pairs: one.pairs})
	}
	return out
}

// shifts is how audit.Log wants it.
func (c *clocks) shifts() map[string]time.Duration {
	out := map[string]time.Duration{}
	for name, one := range c.servers {
		out[name] = one.behind
	}
	return out
}

// survey learns from the beginning of the journal and of each file what the
// clocks are like, so that what belongs together comes together.
func survey(ctx context.Context, j *journal.Journal, files []string, kinds map[resource]journal.Kind) (*clocks, error) {
	c := &clocks{servers: map[string]*clock{}}
	if err := c.readManaged(ctx, j); err != nil {
		return nil, err
	}
	asked, read := map[string]int{}, 0
	for _, file := range files {
		n, err := c.readHead(ctx, j, file, kinds, asked, min(headRecords, allRecords-read))
		if err != nil {
			return nil, err
		}
		read += n
	}
	// What served to put the records in order is learned anew from pairs that are
	// seen together.
	for _, one := range c.servers {
		if (one.behind-c.usual).Abs() > window && !one.agrees() {
			one.behind = c.usual
		}
		one.last, one.pairs = nil, 0
	}
	return c, nil
}

func (c *clocks) readManaged(ctx context.Context, j *journal.Journal) error {
	var differences []time.Duration
	for e, err := range j.Events(ctx, journal.Filter{Types: []journal.Type{journal.Added, journal.Modified}}) {
		if ignoreTorn(err) != nil {
			return err
		}
		if err == nil && !e.ManagedAt.IsZero() {
			differences = append(differences, e.Time.Sub(e.ManagedAt))
		}
		if len(differences) == headEvents {
			break
		}
	}
	if len(differences) < minEvents {
		return nil
	}
	// Within the second that is cut off the clocks may as well agree.
	if usual := quantile(differences, 0.1); usual < 0 || usual > time.Second {
		c.usual = usual
	}
	return nil
}

// readHead looks at a number of records of a file at most, and returns how many
// it were.
func (c *clocks) readHead(ctx context.Context, j *journal.Journal, file string, kinds map[resource]journal.Kind, asked map[string]int, most int) (read int, err error) {
	log, err := audit.Open(ctx, file)
	if err != nil || most <= 0 {
		return 0, err
	}
	known := map[version]bool{}
	for r, err := range log.Records(ctx) {
		if err != nil || read == most {
			return read, err
		}
		read++
		kind, recorded := kinds[resourceOf(r)]
		v := versionOf(r)
		one := c.of(r.Server)
		if !recorded || v.rv == "" || r.Name == "" || known[v] || one.pairs >= enough || asked[r.Server] >= lookUps {
			continue
		}
		known[v] = true // the first answer with a version is the one that made it
		asked[r.Server]++
		e, found, err := lookUp(ctx, j, kind, r)
		if err != nil {
			return read, err
		}
		if found && e.Type != journal.Listed {
			c.learn(r, e)
		}
	}
	return read, nil
}

// lookUp finds the event with the version that a request was answered with.
func lookUp(ctx context.Context, j *journal.Journal, kind journal.Kind, r audit.Record) (found journal.Event, ok bool, err error) {
	rv, err := strconv.ParseUint(r.ResourceVersion, 10, 64)
	if err != nil || rv == 0 {
		return found, false, nil // servers may use other versions one day
	}
	f := journal.Filter{Kinds: []string{filterName(kind)}, Namespaces: []string{r.Namespace}, Names: []string{r.Name}, FromVersion: rv, ToVersion: rv}
	for e, err := range j.Events(ctx, f) {
		if err != nil {
			return found, ok, ignoreTorn(err)
		}
		if resourceOf(r) == (resource{e.Kind.Group, e.Kind.Resource}) {
			return e, true, nil
		}
	}
	return found, false, nil
}

// filterName is how a journal's filter writes a kind.
func filterName(k journal.Kind) string {
	if k.Group == "" {
		return k.Resource
	}
	return k.Resource + "." + k.Group
}
