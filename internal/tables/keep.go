// SPDX-License-Identifier: Apache-2.0

package tables

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead-io/fairlead/internal/model"
)

// The causes of what no object's event leads to.
const (
	causeStateFile = "what the state file remembers"
	causeFirstList = "the first lists of the API"
	causeHeartbeat = "a heartbeat"
	causeLimit     = "the time limit of a retention"
	causeOperator  = "the operator"
)

// retention is the Writer's part in Retention.
type retention struct {
	keepers map[model.Name]*keeper // owned by Run; none comes or goes once it runs
	tell    func(RetentionEvent)
	// remembered signals that the memory changed in a way worth saving.
	remembered chan struct{}
	// restored says that rows were made of what a file remembers, and the first
	// lists have not taken over yet. Owned by Run, as is changed: since the last
	// view was made.
	restored, changed bool

	// Guarded by the Writer's lock.
	orders orders
	view   view
}

// orders are what the Writer was asked to do.
type orders struct {
	restore  bool
	verdicts map[netip.AddrPort]Verdict
	releases []model.Name
}

// view is what others see. Nothing in it is modified.
type view struct {
	memory   Memory
	retained []Retained
}

// Retain sets which Services keep their last backends. It comes before Remember
// and Run.
func (w *Writer) Retain(r Retention) {
	w.retention.keepers = make(map[model.Name]*keeper, len(r.Services))
	for _, name := range r.Services {
		w.retention.keepers[name] = &keeper{name: name, limit: r.Limit, node: &w.current}
	}
}

// OnRetention sets who hears of each step of a retention, in order, after the
// tables did. It comes before Run, whose goroutine calls f.
func (w *Writer) OnRetention(f func(RetentionEvent)) { w.retention.tell = f }

// Remember takes what a file knows of the Services under Retention. What makes
// no sense is left out, and a time to come is now: that is worth saving, or each
// further start would begin a limit anew. It comes before Run.
func (w *Writer) Remember(m Memory) {
	for i := range m.Services {
		if k := w.retention.keepers[nameOf(&m.Services[i])]; k != nil && k.object == nil {
			k.remember(&m.Services[i], w.now())
		}
	}
	known := w.look()
	w.mu.Lock()
	w.retention.view = known
	w.mu.Unlock()
	if !sameMemory(&m, &known.memory) {
		w.signalRemembered()
	}
}

// Adopt takes the backends that a predecessor's maps have, for Services under
// Retention of which no file knows anything: the file may be lost. It comes
// after Remember and before Run.
func (w *Writer) Adopt(sets map[model.SetKey][]netip.AddrPort) {
	for key, backends := range sets {
		if k := w.retention.keepers[key.Service]; k != nil && k.object == nil {
			k.adopt(key, backends)
		}
	}
}

func (w *Writer) signalRemembered() {
	select {
	case w.retention.remembered <- struct{}{}:
	default:
	}
}

// Restore makes rows of what is remembered, unless the first lists are complete
// by now; these take over later. It is for a node whose maps are empty.
func (w *Writer) Restore() {
	w.order(func(o *orders) { o.restore = true })
}

// Judge takes what heartbeats found at the addresses of backends.
func (w *Writer) Judge(verdicts map[netip.AddrPort]Verdict) {
	w.order(func(o *orders) {
		if o.verdicts == nil {
			o.verdicts = make(map[netip.AddrPort]Verdict, len(verdicts))
		}
		maps.Copy(o.verdicts, verdicts)
	})
}

// Release ends what is retained for a Service. It is an error if nothing is.
func (w *Writer) Release(name model.Name) error {
	if !slices.ContainsFunc(w.Retained(), func(r Retained) bool { return r.Key.Service == name }) {
		return fmt.Errorf("release %s: nothing is retained for it; `fairlead status` lists what is", name)
	}
	w.order(func(o *orders) { o.releases = append(o.releases, name) })
	return nil
}

func (w *Writer) order(change func(*orders)) {
	w.mu.Lock()
	change(&w.retention.orders)
	w.mu.Unlock()
	w.signal()
}

// Memory returns what is to outlive the agent. It must not be modified.
func (w *Writer) Memory() Memory {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.retention.view.memory
}

// Remembered signals that Memory changed in a way worth saving.
func (w *Writer) Remembered() <-chan struct{} { return w.retention.remembered }

// Retained returns the sets that forward although the API has no endpoint for
// them, sorted by key. They must not be modified.
func (w *Writer) Retained() []Retained {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.retention.view.retained
}

// Keep applies to a Service that was compiled elsewhere, and resolved, what is
// retained for it now.
func (w *Writer) Keep(name model.Name, c model.Compiled) model.Compiled {
	all := w.Retained()
	return c.WithKept(func(key model.SetKey) []model.Backend {
		i, ok := slices.BinarySearchFunc(all, key, func(r Retained, k model.SetKey) int { return r.Key.Compare(k) })
		if !ok || key.Service != name {
			return nil
		}
		return all[i].Backends
	})
}

// sorted are the keepers in the order of their names.
func (r *retention) sorted() []*keeper {
	return slices.SortedFunc(maps.Values(r.keepers), func(a, b *keeper) int { return a.name.Compare(b.name) })
}

// obey takes orders, and what is due by now.
func (w *Writer) obey(o orders, now time.Time) {
	if o.restore {
		w.restore(now)
	}
	addresses := slices.SortedFunc(maps.Keys(o.verdicts), netip.AddrPort.Compare)
	for _, k := range w.retention.sorted() {
		for _, at := range addresses {
			if k.judge(at, o.verdicts[at], now) {
				w.touchKept(k, causeHeartbeat)
			}
		}
		if slices.Contains(o.releases, k.name) && k.release(now) {
			w.touchKept(k, causeOperator)
		}
		if k.expire(now) {
			w.touchKept(k, causeLimit)
		}
	}
	w.retention.changed = w.retention.changed || len(addresses) > 0
}

func (w *Writer) touchKept(k *keeper, cause string) {
	w.retention.changed = true
	w.touch(w.input(k.name), Cause{Other: cause})
}

// restore makes inputs of what is remembered.
func (w *Writer) restore(now time.Time) {
	if w.completed || w.retention.restored {
		return
	}
	for _, k := range w.retention.sorted() {
		if k.object == nil || !k.restore(now) {
			continue
		}
		in := w.input(k.name)
		in.object, in.restored = k.object, true
		w.touchKept(k, causeStateFile)
		w.retention.restored = true
	}
}

// giveWay leaves what was restored to the first lists, which are about to be
// taken: what they do not name goes.
func (w *Writer) giveWay() {
	w.retention.restored = false
	for _, k := range w.retention.sorted() {
		k.restored = time.Time{}
		if in := w.inputs[k.name]; in != nil && in.restored {
			in.object, in.restored = nil, false
			w.touch(in, Cause{Other: causeFirstList})
		}
	}
}

// observe lets the keepers see what was compiled in this round, and in the
// first round also which of their Services are not there.
func (w *Writer) observe(now time.Time) {
	if len(w.retention.keepers) == 0 {
		return
	}
	for _, in := range w.touched {
		if in.keeper != nil && !in.restored {
			in.keeper.observe(in.object, &in.own, now)
			w.retention.changed = true
		}
	}
	if w.completed || w.retention.restored {
		return
	}
	for _, k := range w.retention.keepers {
		if w.inputs[k.name] == nil {
			k.observe(nil, &model.Compiled{}, now)
			w.retention.changed = true
		}
	}
}

// Due is when a retention reaches its limit, the next one; zero if none has one.
// It is for Run, or a caller without a Run.
func (w *Writer) Due() (next time.Time) {
	for _, k := range w.retention.keepers {
		next = oldest(next, k.deadlineNext())
	}
	return next
}

// due returns a channel on which something comes then; nil if nothing is due.
func (w *Writer) due() <-chan time.Time {
	next := w.Due()
	if next.IsZero() {
		return nil
	}
	return time.After(next.Sub(w.now()))
}

// show lets others see what is retained and remembered now, and tells them what
// happened in this round.
func (w *Writer) show() {
	if !w.retention.changed {
		return
	}
	w.retention.changed = false
	now := w.look()
	w.mu.Lock()
	worthSaving := !sameMemory(&w.retention.view.memory, &now.memory)
	w.retention.view = now
	w.mu.Unlock()
	if worthSaving {
		w.signalRemembered()
	}
	for _, k := range w.retention.sorted() {
		for _, s := range k.steps {
			w.retention.tell(s)
		}
		k.steps = nil
	}
}

func (w *Writer) look() view {
	v := view{memory: Memory{Services: []RememberedService{}}}
	for _, k := range w.retention.sorted() {
		v.retained = append(v.retained, k.retained()...)
		if m, ok := k.memory(); ok {
			v.memory.Services = append(v.memory.Services, m)
		}
	}
	return v
}

// retained are the sets that go on without endpoints.
func (k *keeper) retained() (all []Retained) {
	for i := range k.sets {
		s := &k.sets[i]
		served, unheard := k.divide(s)
		if s.phase == phaseIdle || len(served) == 0 {
			continue
		}
		r := Retained{Key: s.key, Since: s.emptied, Until: s.deadline, Restored: s.phase == phaseRestored, Backends: served, Unheard: unheard}
		if r.Since.IsZero() {
			r.Since = k.restored
		}
		all = append(all, r)
	}
	return all
}
