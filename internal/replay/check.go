// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
	"github.com/fairlead-io/fairlead/internal/tables"
)

// Report is what a check found.
type Report struct {
	Summary  Summary
	Findings []Finding // in the order of their events
	Problems []reflector.Problem
}

// Check replays a journal up to a moment, and looks after every step whether
// the invariants hold. Like Run, it gives the result of a torn journal with
// journal.ErrTorn.
func Check(ctx context.Context, j *journal.Journal, o Options, to Moment) (Report, error) {
	c := &checker{
		fronts: o.Retention.Services, limit: o.Retention.Limit, diff: func(id int64) []journal.Change { return diffOf(ctx, j, id) },
		observe: o.Observe, claimants: map[model.Spot][]model.Name{}, open: map[invariant]int{},
	}
	o.Observe = c.step
	engine, err := New(o)
	if err != nil {
		return Report{}, err
	}
	defer engine.Close()
	c.engine = engine
	summary, err := engine.Run(ctx, j, to)
	return Report{summary, c.findings, engine.Problems()}, err
}

// diffOf asks for the one diff that a finding quotes; nil if it cannot be had.
func diffOf(ctx context.Context, j *journal.Journal, id int64) []journal.Change {
	for e, err := range j.Events(ctx, journal.Filter{After: id - 1}) {
		if err == nil && e.ID == id {
			return e.Diff
		}
		break
	}
	return nil
}

// invariant is one that must hold for a Service.
type invariant struct {
	id      string
	service model.Name
}

// checker looks at the steps of an engine.
type checker struct {
	engine  *Engine
	fronts  []model.Name // in front of the API server
	limit   time.Duration
	diff    func(id int64) []journal.Change
	observe func(Step)

	claimants map[model.Spot][]model.Name
	open      map[invariant]int // the index of the finding of what does not hold now
	findings  []Finding
}

func (c *checker) step(s Step) {
	if c.observe != nil {
		c.observe(s)
	}
	c.backendsLost(&s)
	for i := range s.Changes {
		if slices.Contains(c.fronts, s.Changes[i].Service) {
			c.apiServerEmpty(&s, &s.Changes[i])
		}
	}
	for _, name := range c.claim(&s) {
		c.contested(&s, name)
	}
}

// settle opens a finding when an invariant ceases to hold, and clears it when
// it holds again. What is told of it is asked for only then.
func (c *checker) settle(s *Step, id string, service model.Name, holds bool, tell func() Finding) {
	key := invariant{id, service}
	at, open := c.open[key]
	switch {
	case holds && open:
		c.findings[at].Cleared = s.Time
		delete(c.open, key)
	case !holds && !open:
		f := tell()
		f.Invariant, f.Service = id, service.String()
		c.open[key] = len(c.findings)
		c.findings = append(c.findings, f)
	}
}

// backendsLost compares the rows of Services with what their own objects make
// on this node, compiled apart from the tables.
func (c *checker) backendsLost(s *Step) {
	if len(c.engine.Unheard()) > 0 {
		return
	}
	for _, name := range c.touched(s) {
		row := c.engine.rows[name]
		for i := range s.Changes {
			if s.Changes[i].Service == name {
				row = s.Changes[i].After
			}
		}
		lost := c.lost(name, row)
		c.settle(s, BackendsLost, name, len(lost) == 0, func() Finding {
			return c.finding(s, s.lastEvent(), lostText(lost))
		})
	}
}

// touched are the Services whose rows changed, or should have.
func (c *checker) touched(s *Step) []model.Name {
	var names []model.Name
	for i := range s.Changes {
		names = append(names, s.Changes[i].Service)
	}
	for i := range s.Events {
		e := &s.Events[i]
		name := model.Name{Namespace: e.Namespace, Name: e.Name}
		switch kind, _ := kindOf(e.Kind); kind {
		case reflector.KindService:
			names = append(names, name)
		case reflector.KindEndpointSlice:
			if slice := c.engine.world.slices[name]; slice != nil {
				names = append(names, slice.ServiceName())
			}
		}
	}
	slices.SortFunc(names, model.Name.Compare)
	return slices.Compact(names)
}

// lost are the backends that a Service's own objects give it, and that its row
// lacks.
func (c *checker) lost(name model.Name, row *tables.Service) (lost []model.Backend) {
	object := c.engine.world.services[name]
	if object == nil {
		return nil
	}
	node := c.engine.Node()
	want := model.Compile(object, c.engine.world.owned[name], &node, &c.engine.options.Model)
	if row != nil && want.Equal(&row.Compiled) {
		return nil
	}
	for i := range want.Sets {
		for _, b := range want.Sets[i].Backends {
			if !serves(row, want.Sets[i].Key, b) {
				lost = append(lost, b)
			}
		}
	}
	return lost
}

func serves(row *tables.Service, key model.SetKey, b model.Backend) bool {
	if row == nil {
		return false
	}
	at, found := slices.BinarySearchFunc(row.Compiled.Sets, key, func(s model.Set, k model.SetKey) int { return s.Key.Compare(k) })
	return found && slices.ContainsFunc(row.Compiled.Sets[at].Backends, func(o model.Backend) bool { return o.AddrPort == b.AddrPort })
}

func (c *checker) apiServerEmpty(s *Step, change *Change) {
	before, after := CountBackends(change.Before).Own, CountBackends(change.After).Own
	_, open := c.open[invariant{APIServerEmpty, change.Service}]
	if before == 0 && !open {
		return
	}
	c.settle(s, APIServerEmpty, change.Service, after > 0, func() Finding {
		return c.finding(s, s.eventAbout(change), c.emptyText(change))
	})
}

// claim notes who claims what after a step, and returns the Services for which
// that changed something, by name.
func (c *checker) claim(s *Step) []model.Name {
	var affected []model.Name
	for i := range s.Changes {
		change := &s.Changes[i]
		if sameClaims(change.Before, change.After) {
			continue
		}
		affected = append(affected, change.Service)
		for _, spot := range spotsOf(change.Before) {
			left := slices.DeleteFunc(c.claimants[spot], func(n model.Name) bool { return n == change.Service })
			c.claimants[spot] = left
			if affected = append(affected, left...); len(left) == 0 {
				delete(c.claimants, spot)
			}
		}
		for _, spot := range spotsOf(change.After) {
			affected = append(affected, c.claimants[spot]...)
			c.claimants[spot] = append(c.claimants[spot], change.Service)
		}
	}
	slices.SortFunc(affected, model.Name.Compare)
	return slices.Compact(affected)
}

func sameClaims(a, b *tables.Service) bool {
	if a == nil || b == nil || !a.Object.CreationTimestamp.Equal(b.Object.CreationTimestamp) {
		return false
	}
	return len(a.Own.Claims) == len(b.Own.Claims) && (len(a.Own.Claims) == 0 || &a.Own.Claims[0] == &b.Own.Claims[0])
}

func spotsOf(row *tables.Service) []model.Spot {
	if row == nil {
		return nil
	}
	return slices.Collect(row.Own.Spots())
}

// contested looks whether a Service claims what another one holds.
func (c *checker) contested(s *Step, name model.Name) {
	spot, winner := c.rival(name)
	c.settle(s, AddressContested, name, winner == model.Name{}, func() Finding {
		return c.finding(s, s.eventOf(name, winner), c.contestText(spot, name, winner))
	})
}

// rival is who holds the first spot that a Service claims and does not hold.
func (c *checker) rival(name model.Name) (model.Spot, model.Name) {
	self := c.engine.rows[name]
	for _, spot := range spotsOf(self) {
		best := contender(self)
		for _, other := range c.claimants[spot] {
			if o := contender(c.engine.rows[other]); o.Service != best.Service && o.Beats(best) {
				best = o
			}
		}
		if best.Service != name {
			return spot, best.Service
		}
	}
	return model.Spot{}, model.Name{}
}

func contender(row *tables.Service) model.Contender {
	return model.Contender{Service: row.Name, Created: row.Object.CreationTimestamp}
}

// finding says of which event it is, if of any.
func (c *checker) finding(s *Step, e *journal.Event, t told) Finding {
	if e == nil {
		return Finding{Time: s.Time, Text: t.text, Detail: t.detail}
	}
	details := []string{t.detail}
	if changed := changeText(c.diff(e.ID)); changed != "" {
		details = append(details, changed)
	}
	if g, unsure := c.gapAt(e); unsure {
		details = append(details, gapText(g, e))
	}
	return Finding{
		Event: e.ID, Time: e.Time, ResourceVersion: e.ResourceVersion, Manager: e.Manager,
		Object: objectTitle(e), Text: t.text, Detail: strings.Join(details, "; "),
	}
}

// gapAt is the last gap in which an event came: then it was found by a list if
// it is of that kind, and what happened may have been in another order.
func (c *checker) gapAt(e *journal.Event) (gap journal.Gap, found bool) {
	for _, g := range c.engine.gaps.all {
		if e.Time.After(g.Began) && !e.Time.After(g.Ended) {
			gap, found = g, true
		}
	}
	return gap, found
}
