// SPDX-License-Identifier: Apache-2.0

package correlation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/audit"
	"github.com/fairlead-io/fairlead/internal/journal"
)

// apiServerManager and apiServerUser are what an API server calls itself.
const (
	apiServerManager = "kube-apiserver"
	apiServerUser    = "system:apiserver"
)

// maxUsers bounds how many users of one manager are remembered.
const maxUsers = 8

// asker is who may have sent a request.
type asker struct {
	user   string
	groups string // joined with newlines, so that askers compare
}

// writes are the requests of a resource that the logs hold.
type writes struct {
	n        int
	managers map[string]bool // that their servers would note
}

// judge says why a change may have no record. While the logs are read it learns
// what they tell of others.
type judge struct {
	policy   *audit.Policy
	clocks   *clocks
	gaps     []journal.Gap
	users    map[string][]asker // by manager
	writes   map[resource]*writes
	servers  []audit.Server // what the logs cover
	machines machines
	// covered are kinds, and managers or "", for which weigh found something;
	// ofKind counts the changes without a record.
	covered map[[2]string]bool
	ofKind  map[string]int
}

func newJudge(j *join, gaps []journal.Gap) *judge {
	return &judge{policy: j.Policy, clocks: j.desk.clocks, gaps: gaps, users: map[string][]asker{}, writes: map[resource]*writes{}}
}

// wrote takes a record of a write.
func (j *judge) wrote(r audit.Record) {
	w := j.writes[resourceOf(r)]
	if w == nil {
		w = &writes{managers: map[string]bool{}}
		j.writes[resourceOf(r)] = w
	}
	w.n++
	if len(w.managers) < maxKept {
		w.managers[manager(r)] = true
	}
}

// learn takes a change with its record.
func (j *judge) learn(en *entry) {
	name, who := managerOf(en.event), asker{en.record.User, strings.Join(en.record.Groups, "\n")}
	known := j.users[name]
	if name == "" || len(known) >= maxUsers || len(j.users) >= maxWriters || slices.Contains(known, who) {
		return
	}
	j.users[name] = append(known, who)
}

// hint is a record of the object near an event that found none.
func (j *judge) hint(d *desk, en *entry) *waiting {
	list := around(d.candidates[eventObject(en.event)], en.event.Time)
	list = slices.DeleteFunc(list, func(w *waiting) bool { return w.ResourceVersion != "" || w.used })
	if len(list) == 0 {
		return nil
	}
	distance := func(w *waiting) time.Duration { return en.event.Time.Sub(w.at).Abs() }
	return slices.MinFunc(list, func(a, b *waiting) int { return cmp.Compare(distance(a), distance(b)) })
}

// explain gives every change without a record its likely reason.
func (j *join) explain(ctx context.Context, servers []audit.Server) error {
	j.report.MissingOmitted = j.results.missedOmitted
	if len(j.results.missed) == 0 {
		return nil
	}
	j.judge.servers = servers
	var err error
	if j.judge.machines, err = readMachines(ctx, j.Journal, j.report.To); err != nil {
		return err
	}
	j.judge.weigh(j.results.missed)
	for _, m := range j.results.missed {
		reason := j.judge.reason(m)
		reason.Evidence = append([]string{}, reason.Evidence...)
		j.report.Missing = append(j.report.Missing, Missing{m.event, reason})
	}
	return nil
}

// reason asks for reasons from the one that is certain to the one that is not.
func (j *judge) reason(m missed) Reason {
	for _, ask := range []func(missed) (Reason, bool){
		j.afterGap, j.byPolicy, j.unlogged, j.stopping, j.uncovered, j.expired, j.byLevel, j.partly, j.maybePolicy,
	} {
		if r, ok := ask(m); ok {
			return r
		}
	}
	return Reason{Code: ReasonUnknown, Text: "cannot tell: every log covers the time, and none has a request that fits", Evidence: j.coverage(m.event.Time)}
}

// gapAt is the gap of a kind that a moment lies in, or within a while of it.
// What a list finds after a gap is received before the gap's end.
func (j *judge) gapAt(k journal.Kind, at time.Time, within time.Duration) *journal.Gap {
	for i, g := range j.gaps {
		if g.Kind.Group == k.Group && g.Kind.Resource == k.Resource && !at.Before(g.Began.Add(-within)) && !at.After(g.Ended.Add(within)) {
			return &j.gaps[i]
		}
	}
	return nil
}

func (j *judge) afterGap(m missed) (Reason, bool) {
	g := j.gapAt(m.event.Kind, m.event.Time, 0)
	if g == nil {
		return Reason{}, false
	}
	return Reason{Code: ReasonGap, Text: "nobody watched: its record may lie anywhere in that time",
		Evidence: []string{fmt.Sprintf("no watch from %s to %s: %s", moment(g.Began), moment(g.Ended), g.Reason)}}, true
}

// covers says whether a server's log has something to say about a moment of the
// recorder's clock, and if not, why.
func (j *judge) covers(s audit.Server, at time.Time) (yes bool, why string) {
	behind := j.clocks.of(s.Name).behind
	there := at.Add(-behind)
	switch {
	case there.Before(s.First):
		return false, fmt.Sprintf("log %s begins at %s", s.Name, moment(s.First.Add(behind)))
	case there.After(s.Last):
		return false, fmt.Sprintf("log %s ends at %s", s.Name, moment(s.Last.Add(behind)))
	}
	for _, g := range s.Gaps {
		if there.After(g.Began) && there.Before(g.Ended) {
			return false, fmt.Sprintf("log %s has nothing from %s to %s", s.Name, moment(g.Began.Add(behind)), moment(g.Ended.Add(behind)))
		}
	}
	return true, fmt.Sprintf("log %s covers the time", s.Name)
}

func (j *judge) coverage(at time.Time) []string {
	var lines []string
	for _, s := range j.servers {
		_, why := j.covers(s, at)
		lines = append(lines, why)
	}
	return lines
}

// uncovered is a moment that no log covers.
func (j *judge) uncovered(m missed) (Reason, bool) {
	for _, s := range j.servers {
		if yes, _ := j.covers(s, m.event.Time); yes {
			return Reason{}, false
		}
	}
	return Reason{Code: ReasonUncovered, Text: "no log covers the time", Evidence: j.coverage(m.event.Time)}, true
}

// partly is a moment that some logs do not cover.
func (j *judge) partly(m missed) (Reason, bool) {
	for _, s := range j.servers {
		if yes, why := j.covers(s, m.event.Time); !yes {
			return Reason{Code: ReasonUncovered, Text: "likely in a part of a log that is not here", Evidence: append([]string{why}, j.coverage(m.event.Time)...)}, true
		}
	}
	return Reason{}, false
}

// unlogged is a resource of which the logs hold nothing, or nothing by that
// writer, though changes of it at times that they do cover say that they should.
func (j *judge) unlogged(m missed) (Reason, bool) {
	name, by := filterName(m.event.Kind), managerOf(m.event)
	w := j.writes[resource{m.event.Kind.Group, m.event.Kind.Resource}]
	if w == nil {
		return Reason{Code: ReasonUnlogged, Text: fmt.Sprintf("likely a policy notes nothing of %s: the logs hold no write of them at all", name),
			Evidence: []string{fmt.Sprintf("%d changes of them", j.ofKind[name])}}, j.covered[[2]string{name, ""}]
	}
	if by == "" || w.managers[by] || len(w.managers) >= maxKept {
		return Reason{}, false
	}
	return Reason{Code: ReasonUnlogged, Text: fmt.Sprintf("likely a policy notes nothing of what %s does to %s: the logs hold no such write", by, name),
		Evidence: []string{fmt.Sprintf("they hold %s of %s by others", plural(w.n, "write"), name)}}, j.covered[[2]string{name, by}]
}

// weigh finds the kinds, and those of one manager, of which a change has no
// record at a time that a log covers and when no server was stopping.
func (j *judge) weigh(all []missed) {
	j.covered, j.ofKind = map[[2]string]bool{}, map[string]int{}
	for _, m := range all {
		name := filterName(m.event.Kind)
		j.ofKind[name]++
		if _, gone := j.uncovered(m); gone || j.lost(m.event.Time) != nil || emptiesAPIServers(m.event) {
			continue
		}
		j.covered[[2]string{name, managerOf(m.event)}] = true
		j.covered[[2]string{name, ""}] = true
	}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// expired are objects that a server forgets by itself.
func (j *judge) expired(m missed) (Reason, bool) {
	k := m.event.Kind
	if m.event.Type != journal.Deleted || k.Resource != "events" || k.Group != "" && k.Group != "events.k8s.io" {
		return Reason{}, false
	}
	return Reason{Code: ReasonExpired, Text: "likely its time was over: servers forget events without a request"}, true
}

// byLevel is a record of the object without its version, too far away to be sure.
func (j *judge) byLevel(m missed) (Reason, bool) {
	if m.near == nil {
		return Reason{}, false
	}
	w := m.near
	apart := m.event.Time.Sub(w.Time.Add(j.clocks.of(w.Server).behind))
	level := cmp.Or(string(w.Level), "unknown")
	return Reason{Code: ReasonLevel, Text: "a record of the object may be the one, and leaves the version out", Evidence: []string{
		fmt.Sprintf("%s by %s, %s before the event, in %s line %d, at level %s", w.Verb, w.User, apart.Round(time.Millisecond), w.File, w.Line, level)}}, true
}

// emptiesAPIServers says whether an API server took an address out of the
// Service that leads to the API servers, which is what one does that stops.
func emptiesAPIServers(e journal.Event) bool {
	if e.Namespace != "default" || e.Name != "kubernetes" || e.Manager != apiServerManager || e.Type != journal.Modified {
		return false
	}
	list := "/endpoints"
	switch e.Kind.Resource {
	case "endpointslices":
	case "endpoints":
		list = "/subsets"
	default:
		return false
	}
	for _, c := range e.Diff {
		gone := c.Op == "remove" || c.Op == "replace" && (string(c.New) == "null" || string(c.New) == "[]")
		if gone && (c.Path == list || strings.HasPrefix(c.Path, list+"/")) {
			return true
		}
	}
	return false
}
