// SPDX-License-Identifier: Apache-2.0

package correlation

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/audit"
	"github.com/fairlead-io/fairlead/internal/journal"
)

const (
	// identityLabel is on the lease by which a server says that it is there.
	identityLabel  = "apiserver.kubernetes.io/identity"
	identityPrefix = "apiserver-"
	hostLabel      = "kubernetes.io/hostname"
	// renewal is how often a server renews its lease, and late is after how long
	// without one it is gone.
	renewal = 10 * time.Second
	late    = 2*renewal + renewal/2
	// lingers is how long after it gave its lease up, which it does at once, a
	// server is thought to have made a change. It may go on to answer for a minute,
	// but by then its clients have left.
	lingers = 5 * time.Second
	// A server that starts takes away the lease that one of its name left, and
	// makes it anew, within milliseconds. One that stopped does not start that soon.
	starts = time.Second
)

// machine is an API server by its identity lease.
type machine struct {
	lease, host string
	seen        time.Time // when it was last renewed
	before      time.Time // and when before it was deleted
	stops       []stop
}

// stop is a time at which a server went.
type stop struct {
	at time.Time
	// deleted is a lease that its server took away; otherwise nobody renewed it.
	deleted bool
}

type machines []*machine

// readMachines reads the identity leases of a journal that ends at a moment.
func readMachines(ctx context.Context, j *journal.Journal, end time.Time) (machines, error) {
	found := map[string]*machine{}
	f := journal.Filter{Kinds: []string{"leases.coordination.k8s.io"}, Namespaces: []string{"kube-system"}}
	for e, err := range j.Events(ctx, f) {
		if err != nil {
			if ignoreTorn(err) != nil {
				return nil, err
			}
			break
		}
		m := found[e.Name]
		if m == nil {
			host, ok := identity(e)
			if !ok {
				continue
			}
			m = &machine{lease: e.Name, host: host}
			found[e.Name] = m
		}
		m.see(e)
	}
	var out machines
	for _, name := range slices.Sorted(maps.Keys(found)) {
		found[name].silent(end)
		out = append(out, found[name])
	}
	return out, nil
}

// identity is the host of an identity lease.
func identity(e journal.Event) (host string, ok bool) {
	if !strings.HasPrefix(e.Name, identityPrefix) {
		return "", false
	}
	var lease struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
	}
	if json.Unmarshal(e.Content, &lease) != nil || lease.Metadata.Labels[identityLabel] == "" {
		return "", false
	}
	return lease.Metadata.Labels[hostLabel], true
}

func (m *machine) see(e journal.Event) {
	silent, before := m.silent(e.Time), m.seen
	m.seen = e.Time
	if e.Type != journal.Deleted && e.Type != journal.Absent {
		m.started(e.Time)
		return
	}
	// Other servers delete a lease that nobody has renewed for an hour.
	if !silent && e.Type == journal.Deleted {
		m.stops = append(m.stops, stop{e.Time, true})
	}
	m.seen, m.before = time.Time{}, before
}

// started notes that a server made its lease. If it had just been deleted, the
// one that starts did that, and the one before it went without a word.
func (m *machine) started(at time.Time) {
	if len(m.stops) == 0 {
		return
	}
	if last := &m.stops[len(m.stops)-1]; last.deleted && at.Sub(last.at) < starts {
		*last = stop{m.before, false}
	}
}

// silent says, and notes, that nobody renewed the lease for long before a
// moment.
func (m *machine) silent(now time.Time) bool {
	if m.seen.IsZero() || now.Sub(m.seen) <= late {
		return false
	}
	m.stops = append(m.stops, stop{m.seen, false})
	return true
}

// stopped is the stop of a server during which it may have made a change.
func (m *machine) stopped(at time.Time) (stop, bool) {
	for _, s := range m.stops {
		if s.deleted && at.After(s.at.Add(-time.Second)) && at.Before(s.at.Add(lingers)) {
			return s, true
		}
		if !s.deleted && at.After(s.at.Add(-renewal)) && at.Before(s.at.Add(renewal+near)) {
			return s, true
		}
	}
	return stop{}, false
}

// stopping is a server that went at that time, and whose log is not here, or
// not whole.
func (j *judge) stopping(m missed) (Reason, bool) {
	emptied := emptiesAPIServers(m.event)
	var evidence []string
	if emptied {
		evidence = append(evidence, "a server that stops takes its address out of default/kubernetes")
	}
	if one := j.lost(m.event.Time); one != nil {
		s, _ := one.stopped(m.event.Time)
		where := fmt.Sprintf("likely in the log of API server %s", one.lease)
		if one.host != "" {
			where += " on " + one.host
		}
		return Reason{Code: ReasonStopping, Text: where + ", which was stopping" + j.fate(one, m.event.Time),
			Evidence: append(append(evidence, s.text(one)), j.coverage(m.event.Time)...)}, true
	}
	stoppedThen := func(one *machine) bool { _, ok := one.stopped(m.event.Time); return ok }
	if !emptied || slices.ContainsFunc(j.machines, stoppedThen) {
		return Reason{}, false
	}
	if len(j.machines) == 0 {
		evidence = append(evidence, "the journal has no identity leases of API servers, by which it could be named")
	}
	return Reason{Code: ReasonStopping, Text: "likely in the log of an API server that was stopping, which is not here or ends too early",
		Evidence: append(evidence, j.coverage(m.event.Time)...)}, true
}

// lost is a server that went at that time, and whose log does not cover it. One
// that gave its lease up comes before one that may have gone at any time since
// it last renewed it.
func (j *judge) lost(at time.Time) *machine {
	var likely *machine
	for _, one := range j.machines {
		s, ok := one.stopped(at)
		if !ok || j.hasLog(one, at) {
			continue
		}
		if s.deleted {
			return one
		}
		if likely == nil {
			likely = one
		}
	}
	return likely
}

func (s stop) text(m *machine) string {
	if s.deleted {
		return fmt.Sprintf("its lease kube-system/%s was deleted at %s", m.lease, moment(s.at))
	}
	return fmt.Sprintf("its lease kube-system/%s was last renewed at %s", m.lease, moment(s.at))
}

// logOf is the log whose name names the server's machine.
func (j *judge) logOf(m *machine) (audit.Server, bool) {
	for _, s := range j.servers {
		if m.host != "" && names(s.Name, m.host) {
			return s, true
		}
	}
	return audit.Server{}, false
}

// names says whether a path has a word in it. Hosts are often numbered: cp1 is
// not in cp10.
func names(path, word string) bool {
	for from := 0; ; {
		at := strings.Index(path[from:], word)
		if at < 0 {
			return false
		}
		begin, end := from+at, from+at+len(word)
		if (begin == 0 || !isWord(path[begin-1])) && (end == len(path) || !isWord(path[end])) {
			return true
		}
		from = begin + 1
	}
}

func isWord(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// hasLog says whether the log of a server is here, and covers a moment.
func (j *judge) hasLog(m *machine, at time.Time) bool {
	s, ok := j.logOf(m)
	if !ok {
		return false
	}
	yes, _ := j.covers(s, at)
	return yes
}

// fate says what became of a server's log.
func (j *judge) fate(m *machine, at time.Time) string {
	if s, ok := j.logOf(m); ok {
		_, why := j.covers(s, at)
		return ": " + why
	}
	for _, s := range j.servers {
		if behind := j.clocks.of(s.Name).behind; at.After(s.Last.Add(behind)) {
			return fmt.Sprintf(": that log is not here, or it is %s, which ends at %s", s.Name, moment(s.Last.Add(behind)))
		}
	}
	return ": that log is not here"
}
