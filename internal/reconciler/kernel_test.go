// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/fairlead-io/fairlead/internal/datapath"
	"github.com/fairlead-io/fairlead/internal/model"
)

// reporter is what testing.T and rapid.T share.
type reporter interface {
	Helper()
	Fatalf(format string, args ...any)
}

var (
	errFault  = errors.New("injected fault")
	errNoRoom = errors.New("no room")
)

// unlimited is a room that no test fills.
const unlimited = 1 << 20

// kernel is a Datapath in memory, as strict as the real one is: it fails the
// test on every order of calls that a program in the kernel could suffer from.
type kernel struct {
	t reporter

	// mu is held from begin to end, and while a test changes what follows.
	mu sync.Mutex

	// Room, counted as the maps count it: an extent that was replaced is free
	// again only after reclaim.
	maxFrontends, maxSets, maxSlots int
	retiredSlots, retiredSets       int

	// fault, if not nil, is asked before each call, or each element of one.
	fault func(method string) error
	// keep are the frontends that must never be missing.
	keep []model.FrontendKey
	// calls are the names of the methods called, pruned whether Prune was.
	calls  []string
	pruned bool

	nextOwner uint32
	nextSet   datapath.SetID
	sets      map[datapath.SetID]*kernelSet
	// installed is what was written, elements what is there: a foreign hand
	// changes the second only.
	installed, elements map[model.FrontendKey]datapath.SetID
	// left are the frontends of a predecessor that nobody asked for yet.
	left map[model.FrontendKey]bool
	// leftSets are its sets.
	leftSets map[model.SetKey]datapath.SetID
	// served are those of its sets that frontends point to.
	served map[datapath.SetID]bool
	// old are the frontends of maps in force that these are to take over from.
	old   map[model.FrontendKey]bool
	freed chan struct{}
}

type kernelSet struct {
	key   model.SetKey
	owner uint32
	// content is what was published last; nil before.
	content *model.Set
}

func newKernel(t reporter) *kernel {
	return &kernel{
		t: t, maxFrontends: unlimited, maxSets: unlimited, maxSlots: unlimited,
		sets:      map[datapath.SetID]*kernelSet{},
		installed: map[model.FrontendKey]datapath.SetID{}, elements: map[model.FrontendKey]datapath.SetID{},
		left: map[model.FrontendKey]bool{}, leftSets: map[model.SetKey]datapath.SetID{},
		freed: make(chan struct{}, 1),
	}
}

// change changes the kernel beside a reconciler that runs.
func (k *kernel) change(do func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	do()
}

// begin begins a call and asks whether it is to fail; end ends it.
func (k *kernel) begin(method string) error {
	k.mu.Lock()
	k.calls = append(k.calls, method)
	return k.ask(method)
}

func (k *kernel) ask(method string) error {
	if k.fault == nil {
		return nil
	}
	return k.fault(method)
}

// end checks what must hold whenever a program could run.
func (k *kernel) end() {
	k.t.Helper()
	defer k.mu.Unlock()
	for _, key := range k.keep {
		if _, ok := k.elements[key]; !ok {
			k.t.Fatalf("frontend %s (%s) is missing after %v", key, key.Scope, k.calls)
		}
	}
	for key, id := range k.elements {
		s := k.sets[id]
		if s == nil {
			k.t.Fatalf("frontend %s points to set %d, which was released", key, id)
		}
		if s.content == nil {
			k.t.Fatalf("frontend %s points to set %d, which was never published", key, id)
		}
	}
}

func (k *kernel) NewOwner() uint32 {
	k.nextOwner++
	return k.nextOwner
}

func (k *kernel) ClaimOwner(key model.SetKey) (uint32, bool) {
	for other, id := range k.leftSets {
		if samePort(key, other) {
			return k.sets[id].owner, true
		}
	}
	return 0, false
}

func samePort(a, b model.SetKey) bool {
	a.Role, b.Role = 0, 0
	return a == b
}

func (k *kernel) CreateSet(key model.SetKey, owner uint32) (datapath.SetID, error) {
	defer k.end()
	if err := k.begin("CreateSet"); err != nil {
		return 0, err
	}
	if owner == 0 || owner > k.nextOwner {
		k.t.Fatalf("set %s is created with owner %d, which was never given out", key, owner)
	}
	for _, s := range k.sets {
		if s.owner == owner && !samePort(s.key, key) {
			k.t.Fatalf("set %s is created with the owner of %s", key, s.key)
		}
	}
	if id, ok := k.leftSets[key]; ok && k.sets[id].owner == owner {
		delete(k.leftSets, key)
		return id, nil
	}
	if len(k.sets)+k.retiredSets >= k.maxSets {
		return 0, fmt.Errorf("%w for set %s", errNoRoom, key)
	}
	k.nextSet++
	k.sets[k.nextSet] = &kernelSet{key: key, owner: owner}
	return k.nextSet, nil
}

func (k *kernel) Publish(id datapath.SetID, s *model.Set) (changed bool, err error) {
	defer k.end()
	if err := k.begin("Publish"); err != nil {
		return false, err
	}
	have := k.sets[id]
	if have == nil {
		k.t.Fatalf("%s is published to set %d, which does not exist", s.Key, id)
	}
	if have.key != s.Key {
		k.t.Fatalf("%s is published to set %d, which is %s", s.Key, id, have.key)
	}
	if s.Action == model.ActionUnsupported || s.Key.Protocol == model.SCTP {
		k.t.Fatalf("%s is published, and no program serves it", s.Key)
	}
	if have.content != nil && sameContent(have.content, s) {
		return false, nil
	}
	if k.usedSlots()+slots(s) > k.maxSlots {
		return false, fmt.Errorf("%w for the backends of %s", errNoRoom, s.Key)
	}
	if have.content != nil {
		k.retiredSlots += slots(have.content)
	}
	content := *s
	have.content = &content
	return true, nil
}

// sameContent compares what a program can see: not reasons, nodes and slices.
func sameContent(a, b *model.Set) bool {
	same := func(x, y model.Backend) bool { return x.AddrPort == y.AddrPort }
	return (a.Action == model.ActionDrop) == (b.Action == model.ActionDrop) &&
		a.AffinitySeconds == b.AffinitySeconds &&
		slices.Equal(a.SourceRanges, b.SourceRanges) &&
		slices.EqualFunc(a.Backends, b.Backends, same) &&
		slices.EqualFunc(a.Draining, b.Draining, same)
}

// slots are what a set takes: a header and its backends.
func slots(s *model.Set) int {
	if n := len(s.Backends) + len(s.Draining); n > 0 {
		return 1 + n
	}
	return 0
}

func (k *kernel) usedSlots() int {
	used := k.retiredSlots
	for _, s := range k.sets {
		if s.content != nil {
			used += slots(s.content)
		}
	}
	return used
}

// ReleaseSet releases before it can fail, as the real one does: what is left
// then are source ranges.
func (k *kernel) ReleaseSet(id datapath.SetID) error {
	defer k.end()
	err := k.begin("ReleaseSet")
	s := k.sets[id]
	if s == nil {
		k.t.Fatalf("set %d is released, and does not exist", id)
	}
	if s.content != nil {
		k.retiredSlots += slots(s.content)
	}
	k.retiredSets++
	delete(k.sets, id)
	return err
}

func (k *kernel) InsertFrontends(frontends []datapath.Frontend) []error {
	defer k.end()
	_ = k.begin("InsertFrontends")
	var errs []error
	for i, f := range frontends {
		if err := k.insert(f); err != nil {
			if errs == nil {
				errs = make([]error, len(frontends))
			}
			errs[i] = err
		}
	}
	return errs
}

func (k *kernel) insert(f datapath.Frontend) error {
	if s := k.sets[f.Set]; s == nil || s.content == nil {
		k.t.Fatalf("frontend %s is made to point to set %d, which is not published", f.Key, f.Set)
	}
	key := inKernel(f.Key)
	id, there := k.installed[key]
	if there && id == f.Set {
		delete(k.left, key)
		return nil
	}
	if err := k.ask("insert"); err != nil {
		return err
	}
	if !there && len(k.installed) >= k.maxFrontends {
		return fmt.Errorf("%w for frontend %s", errNoRoom, key)
	}
	k.installed[key], k.elements[key] = f.Set, f.Set
	delete(k.left, key)
	return nil
}

// inKernel is the key under which the kernel has a frontend: one for rows that
// serve all traffic and those that serve traffic from inside.
func inKernel(key model.FrontendKey) model.FrontendKey {
	if key.Scope == model.ScopeAll {
		key.Scope = model.ScopeInternal
	}
	return key
}

func (k *kernel) DeleteFrontends(frontends []datapath.Frontend) error {
	defer k.end()
	_ = k.begin("DeleteFrontends")
	for _, f := range frontends {
		key := inKernel(f.Key)
		if id, ok := k.installed[key]; !ok || id != f.Set {
			continue
		}
		if err := k.ask("delete"); err != nil {
			return err
		}
		delete(k.installed, key)
		delete(k.elements, key)
	}
	return nil
}

// Served is true of a predecessor's sets with frontends, until Prune.
func (k *kernel) Served(id datapath.SetID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.pruned && k.served[id]
}

func (k *kernel) Prune() (deleted int, err error) {
	defer k.end()
	if err := k.begin("Prune"); err != nil {
		return 0, err
	}
	if k.pruned {
		k.t.Fatalf("Prune is called again")
	}
	k.pruned = true
	for key := range k.left {
		delete(k.installed, key)
		delete(k.elements, key)
	}
	deleted, k.left = len(k.left), map[model.FrontendKey]bool{}
	for _, id := range k.leftSets {
		delete(k.sets, id)
	}
	k.leftSets = map[model.SetKey]datapath.SetID{}
	return deleted, nil
}

func (k *kernel) Compare() (repaired int, err error) {
	defer k.end()
	if err := k.begin("Compare"); err != nil {
		return 0, err
	}
	for key, id := range k.installed {
		if have, ok := k.elements[key]; !ok || have != id {
			repaired++
		}
	}
	for key := range k.elements {
		if _, ok := k.installed[key]; !ok {
			repaired++
		}
	}
	k.elements = maps.Clone(k.installed)
	return repaired, nil
}

// Lost is true of the frontends in old that were not written.
func (k *kernel) Lost(key model.FrontendKey) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	key = inKernel(key)
	_, there := k.installed[key]
	return k.old[key] && !there
}

func (k *kernel) Reclaimed() <-chan struct{} { return k.freed }

// reclaim makes what was replaced or released free again, and says so.
func (k *kernel) reclaim() {
	k.change(func() { k.retiredSlots, k.retiredSets = 0, 0 })
	select {
	case k.freed <- struct{}{}:
	default:
	}
}

// restart is what a new agent finds: everything as it was, and nothing of it
// asked for.
func (k *kernel) restart() {
	k.pruned = false
	k.left, k.leftSets = map[model.FrontendKey]bool{}, map[model.SetKey]datapath.SetID{}
	k.served = map[datapath.SetID]bool{}
	for key, id := range k.installed {
		k.left[key], k.served[id] = true, true
	}
	for id, s := range k.sets {
		k.leftSets[s.key] = id
	}
}

// text is what the kernel holds, a line per frontend.
func (k *kernel) text() []string {
	lines := []string{}
	for _, key := range slices.SortedFunc(maps.Keys(k.elements), model.FrontendKey.Compare) {
		s := k.sets[k.elements[key]]
		line := fmt.Sprintf("%s %s %s: %s", key, key.Scope, s.key.Service, s.content.Action)
		for _, b := range s.content.Backends {
			line += " " + b.AddrPort.String()
		}
		lines = append(lines, line)
	}
	return lines
}
