// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/model"
)

// changes are the ways in which a set can differ from the one before.
func changes(k model.SetKey) map[string]*model.Set {
	sets := map[string]*model.Set{
		"two backends":         forward(k, "10.0.0.1:80", "10.0.0.2:80"),
		"another address":      forward(k, "10.0.0.1:80", "10.0.0.3:80"),
		"another port":         forward(k, "10.0.0.1:80", "10.0.0.2:81"),
		"one backend less":     forward(k, "10.0.0.1:80"),
		"one backend more":     forward(k, "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"),
		"no backend: reject":   forward(k),
		"one of them draining": forward(k, "10.0.0.1:80"),
		"no backend: drop":     forward(k),
		"affinity":             forward(k, "10.0.0.1:80", "10.0.0.2:80"),
		"longer affinity":      forward(k, "10.0.0.1:80", "10.0.0.2:80"),
		"only draining":        forward(k),
		"source ranges":        forward(k, "10.0.0.1:80", "10.0.0.2:80"),
	}
	sets["one of them draining"].Draining = backendsOf("10.0.0.2:80")
	sets["only draining"].Draining = backendsOf("10.0.0.1:80", "10.0.0.2:80")
	sets["no backend: drop"].Action = model.ActionDrop
	sets["affinity"].AffinitySeconds = 10
	sets["longer affinity"].AffinitySeconds = 20
	sets["source ranges"].SourceRanges = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	return sets
}

func TestPublishStoresOneWordPerChangeAndNoneWithout(t *testing.T) {
	r := newRig(t, smallSizes())
	k := vip("web")
	id := r.create(k)
	sets := changes(k)
	for from := range sets {
		for to, s := range sets {
			r.publish(id, sets[from])
			stores, generation := r.Stores(), r.current.sets[id].Generation
			changed := r.publish(id, s)
			want := uint64(1)
			if from == to {
				want = 0
			}
			if changed != (want == 1) || r.Stores()-stores != want || uint64(r.current.sets[id].Generation-generation) != want {
				t.Errorf("from %s to %s: changed %v, %d stores, generation grew by %d; want %d",
					from, to, changed, r.Stores()-stores, r.current.sets[id].Generation-generation, want)
			}
		}
	}
}

func TestPublishTouchesNoOtherSet(t *testing.T) {
	r := newRig(t, smallSizes())
	r.attach()
	web, id := vip("web"), SetID(0)
	for i := range 10 {
		k := service(fmt.Sprintf("other%d", i))
		other := r.create(k)
		r.publish(other, numbered(k, i))
		r.insert(at(fmt.Sprintf("10.96.1.%d:80", i), other))
		if i == 5 {
			id = r.create(web)
		}
	}
	for name, s := range changes(web) {
		before, old := r.dump(), r.shadows[id]
		r.publish(id, s)
		mine := []string{element(mapSets, uint32(id))}
		// The new extent; the old one is left as it was for whoever reads it.
		for i := range r.shadows[id].length {
			mine = append(mine, element(mapBackends, r.shadows[id].base+i))
		}
		after := r.dump()
		if name == "source ranges" {
			if len(after[mapRanges]) != 1 {
				t.Errorf("%d source ranges, want one", len(after[mapRanges]))
			}
		}
		delete(before, mapRanges)
		delete(after, mapRanges)
		t.Run(name, func(t *testing.T) { expectSame(t, before, after, mine...) })
		if sh := r.shadows[id]; sh.length > 0 && sh.base < old.base+old.length && old.base < sh.base+sh.length {
			t.Errorf("%s: the new extent %+v lies over the old one %+v", name, sh, old)
		}
	}
}

// TestKernelIsWhatWasPublished runs any history of creating, publishing and
// releasing; after each step the kernel has exactly the model's sets.
func TestKernelIsWhatWasPublished(t *testing.T) {
	r := newRig(t, smallSizes())
	r.attach()
	rapid.Check(t, func(rt *rapid.T) {
		r.t = t
		published := map[string]SetID{}
		want := map[string]string{}
		names := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})
		rt.Repeat(map[string]func(*rapid.T){
			"publish": func(rt *rapid.T) {
				name := names.Draw(rt, "name")
				id, ok := published[name]
				if !ok {
					created, err := r.createSet(service(name))
					if errors.Is(err, ErrNoRoom) {
						return // the reclaimer is behind; what was published stays
					} else if err != nil {
						rt.Fatal(err)
					}
					id = created
				}
				published[name] = id
				s := numbered(service(name), rapid.IntRange(0, 20).Draw(rt, "backends"))
				draining := rapid.IntRange(0, len(s.Backends)).Draw(rt, "draining")
				cut := len(s.Backends) - draining
				s.Backends, s.Draining = s.Backends[:cut], s.Backends[cut:]
				if cut == 0 {
					s.Action = rapid.SampledFrom([]model.Action{model.ActionReject, model.ActionDrop}).Draw(rt, "action")
				}
				if _, err := r.Publish(id, s); errors.Is(err, ErrNoRoom) {
					return
				} else if err != nil {
					rt.Fatal(err)
				}
				want[name] = fmt.Sprint(s.Action, s.Backends, s.Draining)
			},
			"release": func(rt *rapid.T) {
				name := names.Draw(rt, "name")
				if id, ok := published[name]; ok {
					r.release(id)
					delete(published, name)
					delete(want, name)
				}
			},
			"": func(rt *rapid.T) {
				for name, content := range want {
					if got := r.kernelSet(rt, published[name]); got != content {
						rt.Fatalf("set %s is %s, want %s", name, got, content)
					}
				}
			},
		})
		for _, id := range published {
			r.release(id)
		}
	})
	r.reclaimAll(uint64(smallSizes().Backends-1), int(smallSizes().Sets))
}

// fataler is what tests and properties have in common.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// kernelSet reads a set back as the model would print it.
func (r *rig) kernelSet(t fataler, id SetID) string {
	t.Helper()
	word := r.current.sets[id].Word
	base, flags, count := unpackWord(word)
	action := model.ActionForward
	if count == 0 {
		action = model.ActionReject
		if flags&flagDrop != 0 {
			action = model.ActionDrop
		}
	}
	backends, draining := []model.Backend{}, []model.Backend{}
	if base == 0 {
		return fmt.Sprint(action, backends, draining)
	}
	h := r.current.slots[base].header()
	if h.selectable != count {
		t.Fatalf("the word counts %d backends, the header %d", count, h.selectable)
	}
	for i := base + 1; i <= base+h.total; i++ {
		s := r.current.slots[i]
		if s.Owner != r.current.sets[id].Owner || s.Kind != slotBackend {
			t.Fatalf("slot %d is %+v, of another set", i, s)
		}
		b := model.Backend{AddrPort: netip.AddrPortFrom(s.Address.addr(), s.Port.uint16())}
		if i <= base+count {
			backends = append(backends, b)
		} else {
			draining = append(draining, b)
		}
	}
	return fmt.Sprint(action, backends, draining)
}

func TestAFullBackendsMapKeepsWhatWasPublishedAndHeals(t *testing.T) {
	sizes := smallSizes()
	sizes.Backends = 64
	r := newRig(t, sizes)
	r.attach()
	web, api := service("web"), service("api")
	webID, apiID := r.create(web), r.create(api)
	r.publish(webID, numbered(web, 20))
	r.publish(apiID, numbered(api, 30)) // 21 + 31 of 63 slots
	r.insert(at("10.96.0.1:80", webID), at("10.96.0.2:80", apiID))
	before, stores := r.dump(), r.Stores()
	changed, err := r.Publish(webID, numbered(web, 21))
	if !errors.Is(err, ErrNoRoom) || changed {
		t.Fatalf("published 22 slots where 11 are free: %v, %v", changed, err)
	}
	for _, part := range []string{web.String(), "22 slots", "11 are free", "--max-backends"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
	expectSame(t, before, r.dump())
	if r.Stores() != stores {
		t.Error("a word was stored")
	}
	r.delete(at("10.96.0.2:80", apiID))
	r.release(apiID)
	r.reclaimAll(63-21, int(sizes.Sets)-1)
	if !r.publish(webID, numbered(web, 21)) {
		t.Error("the retried set was not stored")
	}
	if got := len(r.entries()); got != 1 {
		t.Errorf("%d entries, want one", got)
	}
}

func TestASetLargerThanTheProgramsSearchIsRefused(t *testing.T) {
	r := newRig(t, smallSizes())
	k := service("web")
	id := r.create(k)
	for part, s := range map[string]*model.Set{
		"backends": {Key: k, Backends: make([]model.Backend, MaxBackendsPerSet+1)},
		"draining": {Key: k, Draining: make([]model.Backend, MaxBackendsPerSet+1)},
	} {
		if _, err := r.Publish(id, s); err == nil || errors.Is(err, ErrNoRoom) {
			t.Errorf("more than %d %s: %v", MaxBackendsPerSet, part, err)
		}
	}
}

func TestTheLargestSetFits(t *testing.T) {
	sizes := smallSizes()
	sizes.Backends = 2*MaxBackendsPerSet + 4
	r := newRig(t, sizes)
	k := service("web")
	id := r.create(k)
	s := numbered(k, MaxBackendsPerSet)
	s.Draining = s.Backends
	r.publish(id, s)
	if _, _, count := unpackWord(r.current.sets[id].Word); count != MaxBackendsPerSet {
		t.Errorf("the word counts %d backends, want %d", count, MaxBackendsPerSet)
	}
	if r.publish(id, s) {
		t.Error("the same set was stored again")
	}
}

func TestWhenAllSetsAreInUseOneMoreIsRefusedUntilOneIsReleased(t *testing.T) {
	sizes := smallSizes()
	sizes.Sets = 4
	r := newRig(t, sizes)
	var ids []SetID
	for i := range 4 {
		ids = append(ids, r.create(service(fmt.Sprintf("s%d", i))))
	}
	slices.Sort(ids)
	if !slices.Equal(ids, []SetID{0, 1, 2, 3}) {
		t.Errorf("sets %v", ids)
	}
	late := service("late")
	_, err := r.createSet(late)
	if !errors.Is(err, ErrNoRoom) || !strings.Contains(err.Error(), "--max-sets") || !strings.Contains(err.Error(), late.String()) {
		t.Fatalf("a fifth set of four: %v", err)
	}
	owner := r.shadows[ids[2]].owner
	r.release(ids[2])
	r.reclaimAll(uint64(sizes.Backends-1), 1)
	id := r.create(late)
	if id != ids[2] {
		t.Errorf("set %d, want the released %d", id, ids[2])
	}
	if got := r.current.sets[id].Owner; got == owner || got == 0 {
		t.Errorf("the set got owner %d, its predecessor had %d", got, owner)
	}
}

func TestNewOwnerPassesOverOwnersInUseAndZero(t *testing.T) {
	r := newRig(t, smallSizes())
	first := r.NewOwner()
	if _, err := r.CreateSet(service("web"), first); err != nil {
		t.Fatal(err)
	}
	r.current.meta.NextOwner = 1<<32 - 1
	if got := r.NewOwner(); got != 1<<32-1 {
		t.Errorf("owner %d, want the last one", got)
	}
	if got := r.NewOwner(); got != first+1 {
		t.Errorf("after the last owner came %d, want %d: 0 means none, and %d is in use", got, first+1, first)
	}
}

// ranges are the source ranges in the kernel's trie, as text.
func (r *rig) rangesInKernel() []string {
	r.t.Helper()
	list := []string{}
	err := readRanges(r.current.maps[mapRanges], func(k rangeKey) {
		list = append(list, fmt.Sprintf("%d %s", k.Owner, k.prefix()))
	})
	if err != nil {
		r.t.Fatal(err)
	}
	slices.Sort(list)
	return list
}

func withRanges(s *model.Set, ranges ...string) *model.Set {
	for _, p := range ranges {
		s.SourceRanges = append(s.SourceRanges, netip.MustParsePrefix(p))
	}
	return s
}

func (r *rig) expectRanges(want ...string) {
	r.t.Helper()
	if got := r.rangesInKernel(); !slices.Equal(got, want) {
		r.t.Errorf("source ranges %q, want %q", got, want)
	}
}

func TestSourceRangesFollowTheSet(t *testing.T) {
	r := newRig(t, smallSizes())
	k := vip("web")
	id := r.create(k)
	owner := r.shadows[id].owner
	one, two, three := fmt.Sprintf("%d 10.0.0.0/8", owner), fmt.Sprintf("%d 192.0.2.0/24", owner), fmt.Sprintf("%d 198.51.100.7/32", owner)

	r.publish(id, withRanges(forward(k, "10.0.0.1:80"), "10.0.0.0/8", "192.0.2.0/24"))
	r.expectRanges(one, two)
	if r.publish(id, withRanges(forward(k, "10.0.0.1:80"), "192.0.2.0/24", "198.51.100.7/32")) {
		t.Error("other ranges are no other word, and a word was stored")
	}
	r.expectRanges(two, three)

	// The NodePorts of the Service share the owner and say nothing of ranges.
	np := service("web")
	nodePort, err := r.CreateSet(np, owner)
	if err != nil {
		t.Fatal(err)
	}
	r.publish(nodePort, forward(np, "10.0.0.1:80"))
	r.expectRanges(two, three)
	r.release(nodePort)
	r.expectRanges(two, three)

	r.publish(id, forward(k, "10.0.0.1:80"))
	r.expectRanges()
	r.publish(id, withRanges(forward(k, "10.0.0.1:80"), "10.0.0.0/8"))
	r.release(id)
	r.expectRanges()
}

func TestSourceRangesThatDoNotFitAreNotOpen(t *testing.T) {
	sizes := smallSizes()
	sizes.Ranges = 2
	r := newRig(t, sizes)
	k := vip("web")
	id := r.create(k)
	owner := r.shadows[id].owner
	s := withRanges(forward(k, "10.0.0.1:80"), "10.0.0.0/8", "192.0.2.0/24", "198.51.100.0/24")
	changed, err := r.Publish(id, s)
	if !errors.Is(err, ErrNoRoom) || !strings.Contains(err.Error(), "--max-source-ranges") || !strings.Contains(err.Error(), "198.51.100.0/24") {
		t.Errorf("three ranges of two: %v", err)
	}
	if _, flags, _ := unpackWord(r.current.sets[id].Word); !changed || flags&flagRanges == 0 {
		t.Errorf("changed %v, flags %#x; the set must be closed to other sources", changed, flags)
	}
	r.expectRanges(fmt.Sprintf("%d 10.0.0.0/8", owner), fmt.Sprintf("%d 192.0.2.0/24", owner))

	s.SourceRanges = s.SourceRanges[1:]
	if _, err := r.Publish(id, s); !errors.Is(err, ErrNoRoom) {
		t.Errorf("room is made after the ranges that go: %v", err)
	}
	r.publish(id, s)
	r.expectRanges(fmt.Sprintf("%d 192.0.2.0/24", owner), fmt.Sprintf("%d 198.51.100.0/24", owner))
}

func TestPublishRepairsWhatSomeoneElseChanged(t *testing.T) {
	for name, damage := range map[string]func(g *generation, id SetID, base uint32){
		"the word":               func(g *generation, id SetID, _ uint32) { g.sets[id].Word = packWord(7, 0, 3) },
		"the word, to nothing":   func(g *generation, id SetID, _ uint32) { g.sets[id].Word = 0 },
		"the count":              func(g *generation, id SetID, _ uint32) { g.sets[id].Word-- },
		"the flags":              func(g *generation, id SetID, _ uint32) { g.sets[id].Word |= flagDrop << 24 },
		"the set's owner":        func(g *generation, id SetID, _ uint32) { g.sets[id].Owner = 99 },
		"the affinity timeout":   func(g *generation, id SetID, _ uint32) { g.sets[id].AffinitySeconds = 99 },
		"the header":             func(g *generation, _ SetID, base uint32) { g.slots[base] = slot{} },
		"the header's total":     func(g *generation, _ SetID, base uint32) { g.slots[base].Address[4]++ },
		"the header's length":    func(g *generation, _ SetID, base uint32) { g.slots[base].Address[12]++ },
		"a backend's address":    func(g *generation, _ SetID, base uint32) { g.slots[base+1].Address[15]++ },
		"a backend's port":       func(g *generation, _ SetID, base uint32) { g.slots[base+2].Port[1]++ },
		"a backend's owner":      func(g *generation, _ SetID, base uint32) { g.slots[base+2].Owner++ },
		"a draining one's port":  func(g *generation, _ SetID, base uint32) { g.slots[base+3].Port[1]++ },
		"a backend, to a header": func(g *generation, _ SetID, base uint32) { g.slots[base+1].Kind = slotHeader },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, smallSizes())
			k := service("web")
			id := r.create(k)
			s := forward(k, "10.0.0.1:80", "10.0.0.2:80")
			s.Draining = backendsOf("10.0.0.3:80")
			r.publish(id, s)
			r.attach()
			want := r.kernelSet(t, id)
			owner := r.shadows[id].owner
			damage(r.intruder(), id, r.shadows[id].base)
			if !r.publish(id, s) {
				t.Error("the damage was not noticed")
			}
			if got := r.kernelSet(t, id); got != want {
				t.Errorf("the set is %s, want %s", got, want)
			}
			if e := r.current.sets[id]; e.Owner != owner || e.AffinitySeconds != 0 {
				t.Errorf("the set's entry is %+v, want owner %d", e, owner)
			}
			if r.publish(id, s) {
				t.Error("the repaired set is stored again")
			}
		})
	}
}

func TestUsageSaysHowFullTheMapsAre(t *testing.T) {
	r := newRig(t, smallSizes())
	r.attach()
	k := service("web")
	id := r.create(k)
	r.publish(id, numbered(k, 9))
	r.insert(at("10.96.0.1:80", id), at("10.96.0.2:80", id))
	uses, err := r.Usage()
	if err != nil {
		t.Fatal(err)
	}
	got := []string{}
	for _, u := range uses {
		got = append(got, fmt.Sprintf("%s %d/%d largest %d evicted %d", u.Name, u.Used, u.Capacity, u.LargestFree, u.Evictions))
		if u.Bytes < u.Capacity {
			t.Errorf("%s takes %d bytes", u.Name, u.Bytes)
		}
	}
	want := []string{
		"fairlead_frontends 2/256 largest 254 evicted 0", "fairlead_sets 1/64 largest 63 evicted 0",
		"fairlead_backends 10/1023 largest 1013 evicted 0", "fairlead_affinity 0/64 largest 64 evicted 0",
		"fairlead_udp 0/64 largest 64 evicted 0",
		"fairlead_flows 0/128 largest 128 evicted 0", "fairlead_datagrams 0/2048 largest 2048 evicted 0", "fairlead_embryos 0/2048 largest 2048 evicted 0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("usage\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestNodeAddressesAreExactlyThoseGiven(t *testing.T) {
	r := newRig(t, smallSizes())
	r.attach()
	for _, addresses := range [][]string{{"192.0.2.1", "2001:db8::1"}, {"192.0.2.1"}, {"192.0.2.2", "192.0.2.3"}, {}} {
		var want []string
		var list []netip.Addr
		for _, a := range addresses {
			list = append(list, netip.MustParseAddr(a))
			key := addressOf(list[len(list)-1])
			want = append(want, hex.EncodeToString(key[:]))
		}
		if err := r.SetNodeAddresses(list, list); err != nil {
			t.Fatal(err)
		}
		var got []string
		for key := range r.dump()[mapAddresses] {
			got = append(got, key)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("node addresses %q, want %q (R24)", got, want)
		}
	}
}
