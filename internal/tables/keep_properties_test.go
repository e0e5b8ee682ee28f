// SPDX-License-Identifier: Apache-2.0

package tables

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
	"github.com/fairlead-io/fairlead/test/history"
)

// The names under retention in the histories; web-x of the same namespace and
// web of another are not.
var underRetention = []model.Name{{Namespace: "a", Name: "web"}, {Namespace: "a", Name: "web-y"}, {Namespace: "b", Name: "web-x"}}

const historyLimit = time.Minute

// judged are the backends that histories have, and one they have not.
var judged = []netip.AddrPort{
	addrPort("10.0.0.1:1"), addrPort("10.0.0.2:1"), addrPort("10.0.0.3:1"), addrPort("10.0.0.1:2"), addrPort("[fd00::1]:1"), addrPort("10.9.9.9:9"),
}

// trial is a writer, the world it hears of, and what is expected of it.
type trial struct {
	*Writer
	world  *history.World
	clock  time.Time
	expect map[model.Name]*expected
}

func newTrial(t *rapid.T, world *history.World, clock time.Time, m Memory) *trial {
	tables, err := New()
	if err != nil {
		t.Fatal(err)
	}
	r := &trial{Writer: NewWriter(tables, world.Node, model.Options{}), world: world, clock: clock}
	r.now = func() time.Time { return r.clock }
	r.Retain(Retention{Services: underRetention, Limit: historyLimit})
	r.Remember(throughJSON(t, m))
	return r
}

// list tells that all is there that the world has.
func (r *trial) list() {
	services, endpointSlices := r.world.Objects()
	var events []reflector.Event
	for _, s := range services {
		events = append(events, reflector.Event{Kind: reflector.KindService, Name: s.Name, ResourceVersion: s.ResourceVersion, Service: s})
	}
	for _, s := range endpointSlices {
		events = append(events, reflector.Event{Kind: reflector.KindEndpointSlice, Name: s.Name, ResourceVersion: s.ResourceVersion, Slice: s})
	}
	r.Events(events)
	r.SetNode(r.world.Node)
	for k := reflector.KindService; k <= reflector.KindNode; k++ {
		r.Listed(k)
	}
}

// expected is what is to be known of one Service under retention. It is told
// what is compiled of that Service alone, and what was asked for.
type expected struct {
	object *model.Service
	sets   map[model.SetKey]*expectedSet
}

type expectedSet struct {
	had               []model.Backend
	foreign, answered map[netip.AddrPort]bool
	emptied           time.Time
	on                bool // served without endpoints in the API
	over              bool // not any more
	rebooted          bool
}

func newExpectedSet(had []model.Backend) *expectedSet {
	return &expectedSet{had: had, foreign: map[netip.AddrPort]bool{}, answered: map[netip.AddrPort]bool{}}
}

func (s *expectedSet) without(bad func(model.Backend) bool) []model.Backend {
	return slices.DeleteFunc(slices.Clone(s.had), bad)
}

func (s *expectedSet) isForeign(b model.Backend) bool { return s.foreign[b.AddrPort] }

// judge is a heartbeat at one of its backends.
func (s *expectedSet) judge(at netip.AddrPort, v Verdict) {
	if !slices.ContainsFunc(s.had, func(b model.Backend) bool { return b.AddrPort == at }) || v == VerdictSilent {
		return
	}
	s.foreign[at] = v == VerdictForeign
	if !s.on {
		return
	}
	s.answered[at] = v == VerdictAnswers
	s.drop()
	s.on = len(s.had) > 0
}

// drop leaves the foreign ones out until the API names them anew.
func (s *expectedSet) drop() {
	s.had, s.foreign = s.without(s.isForeign), map[netip.AddrPort]bool{}
}

// pass is the limit at a moment.
func (s *expectedSet) pass(now time.Time) {
	if s.on && !s.emptied.IsZero() && !now.Before(s.emptied.Add(historyLimit)) {
		s.on, s.over = false, true
	}
}

func (s *expectedSet) release(now time.Time) {
	if !s.on {
		return
	}
	s.on, s.over = false, true
	if s.emptied.IsZero() {
		s.emptied = now
	}
}

// empty is what the API says of a set that had backends.
func (s *expectedSet) empty(now time.Time) {
	if s.emptied.IsZero() {
		s.emptied = now
	}
	s.drop()
	s.on = !s.over && len(s.had) > 0
	s.pass(now)
}

func (x *expected) compile(object *model.Service, own *model.Compiled, now time.Time) {
	before := x.sets
	if object == nil || x.object == nil || x.object.Type != object.Type || !x.object.CreationTimestamp.Equal(object.CreationTimestamp) {
		before = nil
	}
	x.object, x.sets = object, map[model.SetKey]*expectedSet{}
	for _, set := range own.Sets {
		was := before[set.Key]
		switch {
		case set.Action == model.ActionForward:
			x.sets[set.Key] = newExpectedSet(set.Backends)
			if was != nil && was.emptied.IsZero() {
				x.sets[set.Key].foreign = maps.Clone(was.foreign)
				maps.DeleteFunc(x.sets[set.Key].foreign, func(at netip.AddrPort, _ bool) bool {
					return !slices.ContainsFunc(set.Backends, func(b model.Backend) bool { return b.AddrPort == at })
				})
			}
		case set.Action == model.ActionReject && was != nil && len(was.had) > 0:
			x.sets[set.Key] = was
			was.empty(now)
		}
	}
}

// kept is what WithKept asks for.
func (x *expected) kept(node model.Node) func(model.SetKey) []model.Backend {
	return func(key model.SetKey) []model.Backend {
		s := x.sets[key]
		if s == nil || !s.on {
			return nil
		}
		usable := s.without(lostOn(s, node))
		answered := slices.DeleteFunc(slices.Clone(usable), func(b model.Backend) bool { return !s.answered[b.AddrPort] })
		list, state := usable, model.StateUnverified
		if len(answered) > 0 {
			list, state = answered, model.StateRetained
		}
		for i := range list {
			list[i].State, list[i].Local = state, list[i].Node == node.Name
		}
		return list
	}
}

func lostOn(s *expectedSet, node model.Node) func(model.Backend) bool {
	return func(b model.Backend) bool {
		return s.rebooted && b.Node == node.Name && !slices.Contains(node.Addresses, b.AddrPort.Addr())
	}
}

// restart is what a file brings to the next agent.
func (x *expected) restart(node model.Node, now time.Time) {
	for key, s := range x.sets {
		next := newExpectedSet(s.without(func(b model.Backend) bool { return s.isForeign(b) || lostOn(s, node)(b) }))
		next.emptied, next.over = s.emptied, s.over
		if next.emptied.After(now) {
			next.emptied = now
		}
		x.sets[key] = next
		if len(next.had) == 0 {
			delete(x.sets, key)
		}
	}
}

// restore returns whether there is anything to restore.
func (x *expected) restore(node model.Node, now time.Time) (any bool) {
	for _, s := range x.sets {
		s.rebooted = true
		s.drop()
		s.on = !s.over && len(s.without(lostOn(s, node))) > 0 && (s.emptied.IsZero() || now.Before(s.emptied.Add(historyLimit)))
		any = any || s.on
	}
	return any
}

// orders draws what somebody asks for, tells the writer and what is expected of
// it. The writer obeys with the next flush.
func (r *trial) order(t *rapid.T) {
	verdicts := rapid.MapOfN(rapid.SampledFrom(judged), rapid.SampledFrom([]Verdict{VerdictSilent, VerdictAnswers, VerdictAnswers, VerdictForeign}), 0, 3).Draw(t, "verdicts")
	r.Judge(verdicts)
	var released []model.Name
	if rapid.IntRange(0, 5).Draw(t, "release") == 0 {
		name := rapid.SampledFrom(underRetention).Draw(t, "released")
		if r.Release(name) == nil {
			released = append(released, name)
		}
	}
	for name, x := range r.expect {
		for _, s := range x.sets {
			for at, v := range verdicts {
				s.judge(at, v)
			}
			if slices.Contains(released, name) {
				s.release(r.clock)
			}
			s.pass(r.clock)
		}
	}
}

// observe tells what is expected what is compiled of each Service alone.
func (r *trial) observe() {
	services, endpointSlices := r.world.Objects()
	for name, x := range r.expect {
		i := slices.IndexFunc(services, func(s *model.Service) bool { return s.Name == name })
		if i < 0 {
			x.compile(nil, &model.Compiled{}, r.clock)
			continue
		}
		alone := model.CompileAll(services[i:i+1], endpointSlices, &r.world.Node, &model.Options{})
		x.compile(services[i], &alone[0].Compiled, r.clock)
	}
}

// check holds the rows against Resolve of Compile of everything, and then what
// is kept for each Service.
func (r *trial) check(t *rapid.T, resolved []model.Candidate) {
	t.Helper()
	rows := rowsOf(r.tables)
	if len(rows) != len(resolved) {
		t.Fatalf("%d rows for %d Services", len(rows), len(resolved))
	}
	retained := map[model.SetKey][]model.Backend{}
	for _, want := range resolved {
		row := rows[want.Service]
		if row == nil {
			t.Fatalf("%s has no row", want.Service)
		}
		compiled := want.Compiled
		if x := r.expect[want.Service]; x != nil {
			compiled = compiled.WithKept(x.kept(r.world.Node))
		}
		if !row.Compiled.Equal(&compiled) {
			t.Fatalf("%s: compiled is\n%+v, want\n%+v", want.Service, row.Compiled, compiled)
		}
		if kept := r.Keep(want.Service, want.Compiled); !kept.Equal(&compiled) {
			t.Fatalf("%s: a fresh compile has\n%+v, want\n%+v", want.Service, kept, compiled)
		}
		for i, s := range compiled.Sets {
			if !s.Equal(&want.Compiled.Sets[i]) {
				retained[s.Key] = s.Backends
			}
		}
	}
	all := r.Retained()
	for _, k := range all {
		if _, ok := retained[k.Key]; !ok || len(k.Backends) != len(retained[k.Key]) {
			t.Fatalf("%s is said to be retained: %+v", k.Key, k)
		}
	}
	if len(all) != len(retained) || !slices.IsSortedFunc(all, func(a, b Retained) int { return a.Key.Compare(b.Key) }) {
		t.Fatalf("retained are %+v, want %d", all, len(retained))
	}
}

func (r *trial) checkListed(t *rapid.T) {
	t.Helper()
	services, endpointSlices := r.world.Objects()
	options := model.Options{}
	r.check(t, model.CompileAll(services, endpointSlices, &r.world.Node, &options))
	for _, row := range rowsOf(r.tables) {
		checkProvenance(t, row, r.world.Services[row.Name], endpointSlices, &options)
	}
}

// checkRestored: the rows are those of the Services of which something is
// restored, made from nothing but what is remembered.
func (r *trial) checkRestored(t *rapid.T, names []model.Name) {
	t.Helper()
	services := make([]*model.Service, len(names))
	for i, name := range names {
		services[i] = r.expect[name].object
	}
	r.check(t, model.CompileAll(services, nil, &r.world.Node, &model.Options{}))
	for _, row := range rowsOf(r.tables) {
		if !row.Restored || r.tables.Snapshot().Complete() {
			t.Fatalf("%s is not said to be restored", row.Name)
		}
	}
}

func TestTablesEqualCompilingEverythingAndWhatEachServiceKeeps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newTrial(t, history.NewWorld(), start, Memory{})
		r.expect = map[model.Name]*expected{}
		for _, name := range underRetention {
			r.expect[name] = &expected{sets: map[model.SetKey]*expectedSet{}}
		}
		r.list()
		r.Flush()
		for range rapid.IntRange(1, 3).Draw(t, "agents") {
			for range rapid.IntRange(1, 15).Draw(t, "steps") {
				r.step(t)
			}
			r = r.successor(t)
		}
	})
}

// step is one batch of what happens, and what becomes of it.
func (r *trial) step(t *rapid.T) {
	r.clock = r.clock.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "seconds")) * time.Second)
	for range rapid.IntRange(0, 2).Draw(t, "events") {
		tell(r.Writer, r.world.Step(t))
	}
	r.order(t)
	r.Flush()
	r.observe()
	r.checkListed(t)
	throughJSON(t, r.Memory())
}

// successor is the next agent, which starts while the world goes on and the
// clock may be turned, on a node that was restarted or not.
func (r *trial) successor(t *rapid.T) *trial {
	clock := r.clock.Add(time.Duration(rapid.IntRange(-100, 100).Draw(t, "clock")) * time.Second)
	node := r.world.Node
	for range rapid.IntRange(0, 2).Draw(t, "meanwhile") {
		r.world.Step(t)
	}
	next := newTrial(t, r.world, clock, r.Memory())
	next.expect = r.expect
	for _, x := range next.expect {
		x.restart(node, clock)
	}
	if rapid.Bool().Draw(t, "rebooted") {
		next.reboot(t)
	}
	next.list()
	next.Flush()
	for _, x := range next.expect {
		for _, s := range x.sets {
			s.pass(next.clock)
		}
	}
	next.observe()
	next.checkListed(t)
	return next
}

func (r *trial) reboot(t *rapid.T) {
	var names []model.Name
	for _, name := range underRetention {
		if x := r.expect[name]; x.object != nil && x.restore(r.world.Node, r.clock) {
			names = append(names, name)
		}
	}
	r.Restore()
	r.Flush()
	r.checkRestored(t, names)
	for range rapid.IntRange(0, 3).Draw(t, "steps before the API is heard of") {
		r.clock = r.clock.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "seconds")) * time.Second)
		r.order(t)
		r.Flush()
		r.checkRestored(t, names)
	}
}
