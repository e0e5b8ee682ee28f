// SPDX-License-Identifier: Apache-2.0

package tables

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead-io/fairlead/internal/model"
)

// keeper is the memory of one Service under Retention: it sees what Compile
// makes of that Service, what heartbeats find, and nothing of other Services.
type keeper struct {
	name  model.Name
	limit time.Duration
	node  *model.Node // as it is now
	// object is the Service as the API or the file has it; nil: it is neither.
	object   *model.Service
	sets     []keptSet        // sorted by key
	restored time.Time        // when its row was made from the file; zero: it is the API's
	steps    []RetentionEvent // of this round
}

// phase says why a set goes on without endpoints in the API.
type phase uint8

const (
	phaseIdle     phase = iota // it does not: it has endpoints, or nothing is kept
	phaseRestored              // the API was not heard of
	phaseRetained              // the API emptied it
)

// keptSet is a backend set with the backends that it has or had last.
type keptSet struct {
	key      model.SetKey
	backends []model.Backend // may be shared with rows
	emptied  time.Time       // zero: it is not
	ended    Ending
	// rebooted says that addresses of this node's pods may be others' by now.
	rebooted bool

	phase    phase
	deadline time.Time // of what was emptied; else zero
	// foreign are those of its backends that were seen to belong to something
	// else while the API names them, answered those that answered while the set
	// goes on without.
	foreign, answered map[netip.AddrPort]struct{}
}

// observe takes what Compile made of the Service; nil is a Service that is gone.
func (k *keeper) observe(object *model.Service, own *model.Compiled, now time.Time) {
	if k.object != nil && (object == nil || !sameService(k.object, object)) {
		k.forget(now)
	}
	k.object = object
	before := k.sets
	k.sets = make([]keptSet, 0, len(own.Sets))
	for i := range own.Sets {
		at, had := findKept(before, own.Sets[i].Key)
		was := keptSet{key: own.Sets[i].Key}
		if had {
			was = before[at]
		}
		k.observeSet(was, &own.Sets[i], now)
	}
	for i := range before {
		if _, still := findKept(k.sets, before[i].key); !still {
			k.end(&before[i], now, "this node has no use for endpoints of this port any more")
		}
	}
}

// sameService says that what is kept for one is the other's too: a Service that
// was deleted and made anew, or that changed its type, begins anew.
func sameService(a, b *model.Service) bool {
	return a.Type == b.Type && a.CreationTimestamp.Equal(b.CreationTimestamp)
}

func (k *keeper) observeSet(was keptSet, is *model.Set, now time.Time) {
	switch {
	case is.Action == model.ActionForward:
		k.end(&was, now, "the API has endpoints")
		k.sets = append(k.sets, keptSet{key: is.Key, backends: is.Backends, foreign: was.stillForeign(is.Backends)})
	case is.Empty() && len(was.backends) > 0:
		k.empty(&was, now)
		k.sets = append(k.sets, was)
	}
}

// stillForeign are the foreign backends that the API named all the while. What
// it names anew may be used again.
func (s *keptSet) stillForeign(backends []model.Backend) map[netip.AddrPort]struct{} {
	if len(s.foreign) == 0 || !s.emptied.IsZero() {
		return nil
	}
	still := map[netip.AddrPort]struct{}{}
	for _, b := range backends {
		if _, foreign := s.foreign[b.AddrPort]; foreign {
			still[b.AddrPort] = struct{}{}
		}
	}
	return still
}

// empty notes that the API has no endpoint for the set.
func (k *keeper) empty(s *keptSet, now time.Time) {
	if s.emptied.IsZero() {
		s.emptied, s.deadline = now, now.Add(k.limit)
	}
	s.drop()
	if s.ended != NotEnded || s.phase == phaseRetained || len(s.backends) == 0 {
		return
	}
	if s.over(now) {
		s.phase, s.ended = phaseIdle, EndedLimit
		return
	}
	s.phase = phaseRetained
	k.step(s, now, "retained", "its set is empty in the API; "+count(len(k.backends(s)), "is", "are")+" retained until "+s.deadline.UTC().Format(time.RFC3339))
}

// own are the backends without those that belong to something else.
func (s *keptSet) own() []model.Backend {
	if len(s.foreign) == 0 {
		return s.backends
	}
	return slices.DeleteFunc(slices.Clone(s.backends), func(b model.Backend) bool {
		_, foreign := s.foreign[b.AddrPort]
		return foreign
	})
}

// drop leaves them out for good: what goes on without the API is told by nobody
// that they may be used again.
func (s *keptSet) drop() { s.backends, s.foreign = s.own(), nil }

// restore lets the remembered sets serve before the API was heard of. It
// returns false if none does.
func (k *keeper) restore(now time.Time) bool {
	k.restored = now
	serves := false
	for i := range k.sets {
		s := &k.sets[i]
		s.rebooted = true
		s.drop()
		if s.ended != NotEnded || s.over(now) || len(k.backends(s)) == 0 {
			continue
		}
		s.phase, serves = phaseRestored, true
		k.step(s, now, "restored", "the API was not heard of yet; "+count(len(k.backends(s)), "is", "are")+" restored from the state file")
	}
	return serves
}

func (s *keptSet) has(at netip.AddrPort) bool {
	return slices.ContainsFunc(s.backends, func(b model.Backend) bool { return b.AddrPort == at })
}

func (s *keptSet) over(now time.Time) bool { return !s.deadline.IsZero() && !now.Before(s.deadline) }

func count(n int, is, are string) string {
	if n == 1 {
		return "1 backend " + is
	}
	return fmt.Sprintf("%d backends %s", n, are)
}

// judge takes a verdict on a backend, and returns whether rows depend on it.
func (k *keeper) judge(at netip.AddrPort, v Verdict, now time.Time) (matters bool) {
	for i := range k.sets {
		s := &k.sets[i]
		if !s.has(at) {
			continue
		}
		switch v {
		case VerdictAnswers:
			matters = k.answers(s, at, now) || matters
		case VerdictForeign:
			matters = k.isForeign(s, at, now) || matters
		}
	}
	return matters
}

func (k *keeper) answers(s *keptSet, at netip.AddrPort, now time.Time) bool {
	delete(s.foreign, at)
	if _, already := s.answered[at]; s.phase == phaseIdle || already {
		return false
	}
	s.answered = with(s.answered, at)
	k.step(s, now, "verified", fmt.Sprintf("backend %s answered: retained", at))
	return true
}

func (k *keeper) isForeign(s *keptSet, at netip.AddrPort, now time.Time) bool {
	s.foreign = with(s.foreign, at)
	if s.phase == phaseIdle {
		return false
	}
	s.drop()
	delete(s.answered, at)
	k.step(s, now, "foreign", fmt.Sprintf("backend %s belongs to something else: dropped", at))
	if len(s.backends) == 0 {
		k.end(s, now, "every backend belongs to something else")
	}
	return true
}

func with(set map[netip.AddrPort]struct{}, at netip.AddrPort) map[netip.AddrPort]struct{} {
	if set == nil {
		set = map[netip.AddrPort]struct{}{}
	}
	set[at] = struct{}{}
	return set
}

// expire ends what has reached its limit, and returns whether there was any.
func (k *keeper) expire(now time.Time) (ended bool) {
	return k.endAll(EndedLimit, now, "the limit of "+k.limit.String()+" is reached", func(s *keptSet) bool { return s.over(now) })
}

// release ends what is kept because the operator says so.
func (k *keeper) release(now time.Time) (ended bool) {
	return k.endAll(EndedReleased, now, "released by the operator", func(*keptSet) bool { return true })
}

func (k *keeper) endAll(why Ending, now time.Time, text string, which func(*keptSet) bool) (ended bool) {
	for i := range k.sets {
		s := &k.sets[i]
		if s.phase == phaseIdle || !which(s) {
			continue
		}
		k.end(s, now, text)
		s.ended, ended = why, true
		if s.emptied.IsZero() {
			s.emptied = now
		}
	}
	return ended
}

// forget begins anew: nothing of what was known is kept for what comes.
func (k *keeper) forget(now time.Time) {
	for i := range k.sets {
		k.end(&k.sets[i], now, "the Service is gone or another")
	}
	k.object, k.sets = nil, nil
}

func (k *keeper) end(s *keptSet, now time.Time, why string) {
	if s.phase == phaseIdle {
		return
	}
	s.phase = phaseIdle
	k.step(s, now, "ended", "the retention ended: "+why)
}

func (k *keeper) step(s *keptSet, now time.Time, what, text string) {
	k.steps = append(k.steps, RetentionEvent{Time: now.UTC(), Key: s.key, What: what, Text: text})
}

// deadlineNext is when something ends next, if nothing happens; zero for never.
func (k *keeper) deadlineNext() (next time.Time) {
	for i := range k.sets {
		if k.sets[i].phase != phaseIdle {
			next = oldest(next, k.sets[i].deadline)
		}
	}
	return next
}

// dependsOnNode says that what is kept depends on the addresses of this node.
func (k *keeper) dependsOnNode() bool {
	return slices.ContainsFunc(k.sets, func(s keptSet) bool { return s.phase != phaseIdle && s.rebooted })
}

// kept returns what a set goes on with; nil if it does not.
func (k *keeper) kept(key model.SetKey) []model.Backend {
	at, ok := findKept(k.sets, key)
	if !ok || k.sets[at].phase == phaseIdle {
		return nil
	}
	return k.backends(&k.sets[at])
}

// backends are those that the set goes on with.
func (k *keeper) backends(s *keptSet) []model.Backend {
	served, _ := k.divide(s)
	return served
}

// divide tells those that have answered since the set goes on without endpoints
// from those that were not heard of. If none has answered all are served.
func (k *keeper) divide(s *keptSet) (served, unheard []model.Backend) {
	for _, b := range s.backends {
		if s.isLost(&b, k.node) {
			continue
		}
		b.Local, b.State = isLocal(&b, k.node), model.StateUnverified
		if _, has := s.answered[b.AddrPort]; !has {
			unheard = append(unheard, b)
			continue
		}
		b.State = model.StateRetained
		served = append(served, b)
	}
	if len(served) == 0 {
		return unheard, nil
	}
	return served, unheard
}

// isLost says that a backend's address may be another's by now: a node gives
// those of its pods away anew when it starts.
func (s *keptSet) isLost(b *model.Backend, node *model.Node) bool {
	return s.rebooted && isLocal(b, node) && !slices.Contains(node.Addresses, b.AddrPort.Addr())
}

// isLocal is asked anew, for a file may have been another node's.
func isLocal(b *model.Backend, node *model.Node) bool { return b.Node != "" && b.Node == node.Name }

func findKept(sets []keptSet, key model.SetKey) (int, bool) {
	return slices.BinarySearchFunc(sets, key, func(s keptSet, k model.SetKey) int { return s.key.Compare(k) })
}

// facts are the steps of this round in the words of a transition.
func (k *keeper) facts() []string {
	facts := make([]string, len(k.steps))
	for i, e := range k.steps {
		facts[i] = fmt.Sprintf("port %s (%s): %s", portLabel(e.Key), e.Key.Family, e.Text)
	}
	return facts
}
