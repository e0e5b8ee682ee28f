// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"
)

// What is still as it should be.
const (
	// leaseLimit: a kubelet writes its lease every ten seconds, and up to 4 %
	// later so that not all do at once. The rest is for one that has to open a
	// connection first, on a busy machine.
	leaseLimit = 15 * time.Second
	// slowLimit is for a new connection while default/kubernetes is empty. A
	// connection that is lost on the way is tried again after one second, three,
	// and seven.
	slowLimit = 2 * time.Second
	// surelySeen is how long default/kubernetes has to be empty for its row to
	// be seen so: the looks are much closer, but not while a proxy starts.
	surelySeen = 2 * time.Second
	// lastWords is how long before the end a client may have written last.
	lastWords = 30 * time.Second
)

// maxFindings bounds how many findings of a kind are told one by one.
const maxFindings = 5

// judgment is a verdict in the making.
type judgment struct {
	Facts
	Result
	outside RoundResult // of all windows
}

// Judge says what the facts amount to.
func Judge(f Facts) Result {
	j := judgment{Facts: f, Result: Result{Findings: []string{}, LeaseGaps: map[string]float64{}}}
	for _, r := range f.Rounds {
		j.Result.Rounds = append(j.Result.Rounds, RoundResult{
			Stopped: r.Stopped,
			Window:  seconds(r.Returned.Sub(r.Emptied)),
			Serving: seconds(r.Serving.Sub(r.Killed)),
		})
	}
	j.attempts()
	j.watches()
	j.clients()
	j.leases()
	j.nodes()
	j.looks()
	j.proxies()
	j.restarts()
	return j.Result
}

// complaints are findings of one kind.
type complaints []string

func (c *complaints) add(format string, args ...any) { *c = append(*c, fmt.Sprintf(format, args...)) }

// find takes complaints over; more than a few of a kind are counted.
func (j *judgment) find(all complaints) {
	if len(all) > maxFindings {
		all = append(all[:maxFindings:maxFindings], fmt.Sprintf("and %d more like these", len(all)-maxFindings))
	}
	j.Findings = append(j.Findings, all...)
}

func (j *judgment) attempts() {
	var failed, refused, slow complaints
	for _, line := range j.Lines {
		a := line.Attempt
		if a == nil {
			continue
		}
		round := j.emptyAt(a.Time)
		j.count(a, round)
		switch j.outcome(a) {
		case outcomeClosed:
			j.Closed++
		case outcomeUnserved:
			j.Unserved++
		case outcomeRefused:
			refused.add("%s: %s said %d to %s at %s, and was neither starting nor stopping", a.Name, a.Server, a.Status, a.Target, clock(a.Time))
		case outcomeFailed:
			j.Failed++
			round.Failed++
			failed.add("%s: the connection to %s at %s failed (%s): %s", a.Name, a.Target, clock(a.Time), a.Stage, a.Error)
		case outcomeServed:
			if round != &j.outside && a.Took > slowLimit {
				slow.add("%s: the connection to %s at %s took %s while default/kubernetes was empty", a.Name, a.Target, clock(a.Time), a.Took)
			}
		}
	}
	j.find(failed)
	j.find(refused)
	j.find(slow)
}

func (j *judgment) count(a *Attempt, round *RoundResult) {
	j.Connections++
	round.Connections++
	j.Slowest = max(j.Slowest, seconds(a.Took))
	if round != &j.outside {
		j.SlowestInWindow = max(j.SlowestInWindow, seconds(a.Took))
	}
}

// outcome is how an attempt ended.
type outcome int

const (
	outcomeServed   outcome = iota
	outcomeUnserved         // by a server that was starting or stopping
	outcomeRefused          // by one that was not
	outcomeClosed           // by a server that was stopping
	outcomeFailed
)

func (j *judgment) outcome(a *Attempt) outcome {
	switch {
	case a.Status == http.StatusOK:
		return outcomeServed
	case a.Status != 0 && j.comesOrGoes(a):
		return outcomeUnserved
	case a.Status != 0:
		return outcomeRefused
	case a.Stage == StageRequest && j.goes(a.Server, a.Time.Add(a.Took)):
		return outcomeClosed
	}
	return outcomeFailed
}

// emptyAt is the round in which default/kubernetes was empty then, or what is
// outside of all of them.
func (j *judgment) emptyAt(t time.Time) *RoundResult {
	for i, r := range j.Facts.Rounds {
		if r.window(t) {
			return &j.Result.Rounds[i]
		}
	}
	return &j.outside
}

// goes says whether a server could have closed a connection then because it
// stops.
func (j *judgment) goes(server string, t time.Time) bool {
	return slices.ContainsFunc(j.Facts.Rounds, func(r Round) bool { return r.Stopped == server && r.goes(t) })
}

// comesOrGoes says whether a server may have told a client to ask another one,
// since it stops, or does not know everything yet.
func (j *judgment) comesOrGoes(a *Attempt) bool {
	return slices.ContainsFunc(j.Facts.Rounds, func(r Round) bool {
		return r.Stopped == a.Server && !a.Time.Add(a.Took).Before(r.Asked) && !a.Time.After(r.Ready)
	})
}

func (j *judgment) watches() {
	var broken, silent complaints
	for _, line := range j.Lines {
		w := line.Watch
		if w == nil {
			continue
		}
		j.Watches++
		j.Events += w.Events
		if w.Silent > leaseLimit {
			silent.add("%s: a watch at %s saw nothing for %s before %s, although leases were written", w.Name, w.Target, w.Silent, clock(w.Ended))
		}
		switch {
		case w.Error == "":
		case j.goes(w.Server, w.Ended):
			j.Closed++
		default:
			broken.add("%s: the watch at %s broke at %s: %s", w.Name, w.Target, clock(w.Ended), w.Error)
		}
	}
	if j.Watches == 0 {
		broken.add("no client held a watch")
	}
	j.find(broken)
	j.find(silent)
}

// clients must have gone on to the end, or what they did not see says nothing.
func (j *judgment) clients() {
	last := map[Client]time.Time{}
	for _, line := range j.Lines {
		if a := line.Attempt; a != nil && a.Time.After(last[a.Client]) {
			last[a.Client] = a.Time
		}
	}
	var quiet complaints
	for _, c := range j.Clients {
		switch t, ok := last[c]; {
		case !ok:
			quiet.add("%s never asked %s", c.Name, c.Target)
		case j.End.Sub(t) > lastWords:
			quiet.add("%s asked %s last at %s", c.Name, c.Target, clock(t))
		}
	}
	j.find(quiet)
}

func (j *judgment) leases() {
	var late complaints
	for _, node := range slices.Sorted(maps.Keys(j.Renewals)) {
		var gap time.Duration
		times := append(slices.Clone(j.Renewals[node]), j.End)
		for i := 1; i < len(times); i++ {
			gap = max(gap, times[i].Sub(times[i-1]))
		}
		j.LeaseGaps[node] = seconds(gap)
		if gap > leaseLimit {
			late.add("%s: its kubelet did not renew its lease for %s", node, gap)
		}
	}
	if len(j.Renewals) == 0 {
		late.add("no kubelet renewed its lease")
	}
	j.find(late)
}

func (j *judgment) nodes() {
	var unready complaints
	for _, u := range j.Unready {
		unready.add("%s was not Ready at %s: %s", u.Node, clock(u.Time), u.Reason)
	}
	j.find(unready)
}

func (j *judgment) looks() {
	var refusing complaints
	seen := map[sight]bool{}
	for _, look := range j.Looks {
		switch look.Saw {
		case SawRefusing:
			refusing.add("%s: the row of default/kubernetes had nowhere to go at %s", look.Node, clock(look.Time))
		case SawRetained:
			j.emptyAt(look.Time).Retained++
			seen[sight{j.emptyAt(look.Time), look.Node}] = true
		}
	}
	j.find(refusing)
	j.find(j.unseen(seen))
}

// sight is what was seen of a node in a round.
type sight struct {
	round *RoundResult
	node  string
}

// unseen are the nodes and rounds in which no row was seen to be retained.
func (j *judgment) unseen(seen map[sight]bool) (unseen complaints) {
	nodes := map[string]bool{}
	for _, look := range j.Looks {
		nodes[look.Node] = true
	}
	if len(nodes) == 0 {
		unseen.add("nobody looked at the rows")
	}
	for i, r := range j.Facts.Rounds {
		for _, node := range slices.Sorted(maps.Keys(nodes)) {
			if r.Returned.Sub(r.Emptied) > surelySeen && !seen[sight{&j.Result.Rounds[i], node}] {
				unseen.add("%s: no row was seen to be retained in round %d", node, i+1)
			}
		}
	}
	return unseen
}

func (j *judgment) proxies() {
	var ill complaints
	for _, node := range slices.Sorted(maps.Keys(j.Ill)) {
		ill.add("%s: %s", node, j.Ill[node])
	}
	j.find(ill)
}

// restarts must have met the gap at least once, or they say nothing.
func (j *judgment) restarts() {
	if !slices.ContainsFunc(j.Facts.Rounds, func(r Round) bool { return r.window(r.Serving) }) {
		j.Findings = append(j.Findings, "in no round did a proxy start while default/kubernetes was empty: play more rounds")
	}
}

func seconds(d time.Duration) float64 {
	return float64(d.Round(time.Millisecond).Milliseconds()) / 1000
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }
