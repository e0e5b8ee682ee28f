// SPDX-License-Identifier: Apache-2.0

package correlation

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/audit"
	"github.com/fairlead-io/fairlead/internal/journal"
)

const (
	// maxOfOne bounds the changes without a record that are kept of one kind and
	// manager, and the requests without an event of one resource and user, and
	// maxKept those of all.
	maxOfOne = 1000
	maxKept  = 20_000
	// maxWriters bounds the kinds of writers that are counted apart; those beyond
	// are counted together, under no name.
	maxWriters = 50_000
)

// missed is a change without a record, and what was seen near it.
type missed struct {
	event journal.Event
	near  *waiting // a record of the object that was not enough
}

// author tells writers apart.
type author struct{ manager, user, agent, verb, resource string }

// results keeps what was found, in bounded memory.
type results struct {
	missed        []missed
	missedOf      map[[2]string]int
	missedOmitted int
	unseen        []Unseen
	unseenOf      map[[2]string]int
	unseenOmitted int
	writers       map[author]*Writer
}

func newResults() results {
	return results{missedOf: map[[2]string]int{}, unseenOf: map[[2]string]int{}, writers: map[author]*Writer{}}
}

func kindAndManager(e journal.Event) [2]string { return [2]string{filterName(e.Kind), managerOf(e)} }

func (r *results) miss(e journal.Event, near *waiting) {
	key := kindAndManager(e)
	if r.missedOf[key] >= maxOfOne || len(r.missed) >= maxKept {
		r.missedOmitted++
		return
	}
	r.missedOf[key]++
	r.missed = append(r.missed, missed{e, near})
}

// room says whether one more request without an event is kept, or only counted.
func (r *results) room(w audit.Record) bool {
	return r.unseenOf[resourceAndUser(w)] < maxOfOne && len(r.unseen) < maxKept
}

func resourceAndUser(r audit.Record) [2]string { return [2]string{r.Resource.String(), r.User} }

func (r *results) unsee(w audit.Record, why Reason) {
	r.unseenOf[resourceAndUser(w)]++
	r.unseen = append(r.unseen, Unseen{requestOf(w), why})
}

// blameTorn is for a journal that turned out to be torn: it cannot tell what it
// does not have.
func (r *results) blameTorn() {
	for i := range r.unseen {
		r.unseen[i].Reason = Reason{Code: ReasonTorn, Text: "likely its event is in the part of the journal that is lost", Evidence: []string{}}
	}
}

// write counts a change with its record.
func (r *results) write(en *entry) {
	w := en.record
	user := w.User
	if w.Impersonated != "" {
		user += " as " + w.Impersonated
	}
	key := author{managerOf(en.event), user, w.UserAgent, w.Verb, w.Resource.String()}
	one := r.writers[key]
	if one == nil && len(r.writers) >= maxWriters {
		key = author{resource: "(others)"}
		one = r.writers[key]
	}
	if one == nil {
		one = &Writer{Manager: key.manager, User: key.user, UserAgent: key.agent, Verb: key.verb, Resource: key.resource, First: en.event.Time}
		r.writers[key] = one
	}
	one.Changes++
	one.Last = en.event.Time
}

func (r *results) sortedWriters() []Writer {
	out := []Writer{}
	for _, w := range r.writers {
		out = append(out, *w)
	}
	slices.SortFunc(out, func(a, b Writer) int {
		return cmp.Or(cmp.Compare(b.Changes, a.Changes), cmp.Compare(a.Manager, b.Manager), cmp.Compare(a.User, b.User),
			cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Verb, b.Verb), cmp.Compare(a.UserAgent, b.UserAgent))
	})
	return out
}

// unsee keeps a request that changed something by its record, and has no event.
func (j *join) unsee(ctx context.Context, w *waiting) error {
	at := w.Time.Add(j.desk.clocks.of(w.Server).behind)
	switch {
	case !j.Scope.sure(w.Record, at): // its event may be out of the scope
	case j.judge.gapAt(j.kinds[resourceOf(w.Record)], at, time.Second) != nil:
		j.report.Expected[ReasonGap]++
	case at.Before(j.report.From) || at.After(j.report.To):
		j.report.Expected[ReasonOutside]++
	case !j.results.room(w.Record):
		j.results.unseenOmitted++
	default:
		reason, err := j.foreign(ctx, w.Record)
		if reason.Code == "" {
			reason = whyUnseen(w.Record)
		}
		j.results.unsee(w.Record, reason)
		return err
	}
	return nil
}

// foreign is a namespace of which the journal has no such object.
func (j *join) foreign(ctx context.Context, r audit.Record) (Reason, error) {
	o := object{resourceOf(r), r.Namespace, ""}
	known, asked := j.spaces[o]
	if !asked {
		f := journal.Filter{Kinds: []string{filterName(j.kinds[o.resource])}, Namespaces: []string{o.namespace}}
		for _, err := range j.Journal.Events(ctx, f) {
			if ignoreTorn(err) != nil {
				return Reason{}, err
			}
			known = true
			break
		}
		if len(j.spaces) < maxKept {
			j.spaces[o] = known
		}
	}
	if known {
		return Reason{}, nil
	}
	return Reason{Code: ReasonOutside, Text: "likely its namespace is not recorded: the journal has no such object in it", Evidence: []string{}}, nil
}

func whyUnseen(r audit.Record) Reason {
	reason := Reason{Code: ReasonUnknown, Text: "cannot tell: it succeeded, and the journal has no such event", Evidence: []string{}}
	switch {
	case r.Verb == "deletecollection":
		reason.Code, reason.Text = ReasonUnchanged, "likely there was nothing to delete"
	case r.Verb == "delete":
		reason.Code, reason.Text = ReasonUnchanged, "likely the object was about to go already"
	case r.ResourceVersion == "" && (r.Verb == "update" || r.Verb == "patch"):
		reason.Code, reason.Text = ReasonLevel, "it may have changed nothing: a record without the object does not tell"
		if r.Level != "" {
			reason.Evidence = append(reason.Evidence, "its level is "+string(r.Level))
		}
	}
	return reason
}

// storms looks for what came of the storms of the logs.
func (j *join) storms(ctx context.Context) error {
	j.report.Storms = []Storm{}
	for _, s := range j.report.Summary.Storms() {
		storm := Storm{Storm: s, Events: -1}
		name, _, _ := strings.Cut(s.Object.Resource, "/")
		plural, group, _ := strings.Cut(name, ".")
		kind, recorded := j.kinds[resource{group, plural}]
		if recorded {
			n, err := j.count(ctx, kind, s)
			if err != nil {
				return err
			}
			storm.Events = n
		}
		j.report.Storms = append(j.report.Storms, storm)
	}
	return nil
}

func (j *join) count(ctx context.Context, kind journal.Kind, s audit.Storm) (n int, err error) {
	behind := j.desk.clocks.typical()
	f := journal.Filter{
		Kinds: []string{filterName(kind)}, Namespaces: []string{s.Object.Namespace}, Names: []string{s.Object.Name},
		Types: []journal.Type{journal.Added, journal.Modified, journal.Deleted},
		Since: s.Began.Add(behind - near), Until: s.Ended.Add(behind + near),
	}
	for _, err := range j.Journal.Events(ctx, f) {
		if err != nil {
			return n, ignoreTorn(err)
		}
		n++
	}
	return n, nil
}
