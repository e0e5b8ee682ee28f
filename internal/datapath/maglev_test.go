// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/fairlead-io/fairlead/internal/maglev"
	"github.com/fairlead-io/fairlead/internal/model"
)

// byMaglev is a set of n backends with a table.
func byMaglev(k model.SetKey, n int) *model.Set {
	s := numbered(k, n)
	s.Selection = model.SelectionMaglev
	return s
}

// roomy has slots for the tables of many publications.
func roomy(size maglev.Size) Config {
	sizes := smallSizes()
	sizes.Backends = 1 << 16
	return Config{Sizes: sizes, MaglevTableSize: size}
}

// tableOf is the table that all nodes make of a set.
func tableOf(t testing.TB, size maglev.Size, s *model.Set) []uint16 {
	t.Helper()
	var backends []netip.AddrPort
	for _, b := range s.Backends {
		backends = append(backends, b.AddrPort)
	}
	table, err := maglev.Table(size, backends)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// chooser is a packet, or a socket, that dials the first frontend of the
// stress readers.
type chooser struct{ *stressReader }

func newChooser(t *testing.T, r *rig, packets bool) chooser {
	t.Helper()
	return chooser{newStressReader(t, r.current.maps, stressSettings{program: "stress_chooser", frontends: 1, packets: packets})}
}

// noBackend is NO_BACKEND of testdata/reader.c.
const noBackend = 1<<32 - 1

// choose returns the low 24 bits of the backend's address.
func (c chooser) choose(t *testing.T, hash uint32) uint32 {
	t.Helper()
	packet := make([]byte, 64)
	binary.NativeEndian.PutUint32(packet[14:], hash)
	chosen, err := c.program.Run(&ebpf.RunOptions{Data: packet})
	if err != nil {
		t.Fatal(err)
	}
	return chosen
}

func TestAPacketChoosesWhatTheTableSaysForItsHash(t *testing.T) {
	for _, c := range []struct {
		size     maglev.Size
		backends int
	}{{251, 2}, {251, 251}, {1021, 1}, {1021, 3}, {1021, 10}, {16381, 1000}, {65521, 30000}} {
		t.Run(fmt.Sprintf("%d backends, %d entries", c.backends, c.size), func(t *testing.T) {
			r := newRigWith(t, roomy(c.size))
			k := service("web")
			id := r.create(k)
			s := byMaglev(k, c.backends)
			s.Draining = backendsOf("10.255.0.1:80", "10.255.0.2:80", "10.255.0.3:80")
			r.publish(id, s)
			r.insert(stressFrontend(0, id))
			packet, table := newChooser(t, r, true), tableOf(t, c.size, s)
			hashes := []uint32{0, 1<<32 - 1}
			for entry := range uint64(c.size) {
				first := uint32((entry<<32 + uint64(c.size) - 1) / uint64(c.size))
				hashes = append(hashes, first, first-1)
			}
			for range 2000 {
				hashes = append(hashes, rand.Uint32())
			}
			for _, hash := range hashes {
				entry := uint64(hash) * uint64(c.size) >> 32
				if got := packet.choose(t, hash); got != uint32(table[entry]) {
					t.Fatalf("hash %#x, entry %d: backend %d, want %d", hash, entry, got, table[entry])
				}
			}
		})
	}
}

func TestASocketChoosesAtRandomAlthoughItsServiceHasATable(t *testing.T) {
	r := newRigWith(t, roomy(251))
	k := service("web")
	id := r.create(k)
	r.publish(id, byMaglev(k, 4))
	r.insert(stressFrontend(0, id))
	socket, chosen := newChooser(t, r, false), map[uint32]int{}
	const tries = 4000
	for range tries {
		chosen[socket.choose(t, 7)]++
	}
	for backend := range uint32(4) {
		if n := chosen[backend]; n < tries/4-300 || n > tries/4+300 {
			t.Errorf("backend %d was chosen %d times of %d", backend, n, tries)
		}
	}
	if len(chosen) != 4 {
		t.Errorf("chosen were %v", chosen)
	}
}

func TestAPacketIsRefusedRatherThanSentByATableThatIsDamaged(t *testing.T) {
	for name, damage := range map[string]func(header, table *slot){
		"no entries":                  func(header, _ *slot) { header.Port = port{} },
		"a header of another owner":   func(header, _ *slot) { header.Owner++ },
		"a slot of another owner":     func(_, table *slot) { table.Owner++ },
		"a slot that is a backend":    func(_, table *slot) { table.Kind = slotBackend },
		"an entry that is no backend": func(_, table *slot) { *table = tableSlot([]uint16{4}, table.Owner) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRigWith(t, roomy(251))
			k := service("web")
			id := r.create(k)
			r.publish(id, byMaglev(k, 4))
			r.insert(stressFrontend(0, id))
			packet := newChooser(t, r, true)
			if got := packet.choose(t, 0); got == noBackend {
				t.Fatal("a sound table refuses")
			}
			base := r.shadows[id].base
			damage(&r.current.slots[base], &r.current.slots[base+5])
			if got := packet.choose(t, 0); got != noBackend {
				t.Errorf("backend %#x was chosen", got)
			}
		})
	}
}

// selections are sets that differ in their tables, or in nothing.
func selections(k model.SetKey) map[string]*model.Set {
	draining := byMaglev(k, 2)
	draining.Draining = backendsOf("10.255.0.1:80")
	one, none := byMaglev(k, 1), byMaglev(k, 0)
	none.Action = model.ActionReject
	return map[string]*model.Set{
		"random": numbered(k, 2), "maglev": byMaglev(k, 2), "maglev, three": byMaglev(k, 3),
		"maglev, one drains": draining, "random, one": numbered(k, 1), "maglev, one": one, "maglev, none": none,
	}
}

func TestAChangeOfSelectionIsOneStoreAndOfOneBackendNone(t *testing.T) {
	r := newRigWith(t, roomy(251))
	r.attach()
	k := service("web")
	id := r.create(k)
	r.insert(at("10.96.0.1:80", id))
	same := map[string]string{"random, one": "maglev, one", "maglev, one": "random, one"}
	for from, before := range selections(k) {
		for to, s := range selections(k) {
			r.publish(id, before)
			stores := r.Stores()
			r.publish(id, s)
			want := uint64(1)
			if from == to || same[from] == to {
				want = 0
			}
			if got := r.Stores() - stores; got != want {
				t.Errorf("from %s to %s: %d stores, want %d", from, to, got, want)
			}
			entries := uint32(0)
			if hasTable(s) {
				entries = 251
			}
			if e := r.kernel().Entries[0]; e.MaglevEntries != entries || e.Problem != "" {
				t.Errorf("from %s to %s: %d entries, problem %q; want %d", from, to, e.MaglevEntries, e.Problem, entries)
			}
		}
	}
}

func TestTablesAreAdoptedAndWrittenAnewForAnotherSize(t *testing.T) {
	r := newRigWith(t, roomy(251))
	k := service("web")
	s := byMaglev(k, 5)
	id := r.create(k)
	r.publish(id, s)
	r.insert(at("10.96.0.1:80", id))
	r.attach()
	free, before := r.room.free, r.dump()

	r.reopen()
	if r.room.free != free {
		t.Errorf("%d slots are free after a restart, %d were before", r.room.free, free)
	}
	if r.create(k) != id || r.publish(id, s) {
		t.Error("a restart wrote the set anew (R39)")
	}
	expectSame(t, before, r.dump())

	for _, size := range []maglev.Size{0, 2039} {
		r.cfg.MaglevTableSize = size
		r.reopen()
		if r.create(k) != id || !r.publish(id, s) {
			t.Errorf("the table of another size was left, want %d", size)
		}
		want := uint32(max(size, maglev.DefaultSize))
		if e := r.kernel().Entries[0]; e.MaglevEntries != want || e.Problem != "" {
			t.Errorf("%d entries, problem %q; want %d", e.MaglevEntries, e.Problem, want)
		}
	}
	r.reclaimAll(uint64(r.cfg.Sizes.Backends-1)-(1+5+255), int(r.cfg.Sizes.Sets)-1)
}

func TestMoreBackendsThanEntriesAreAnErrorThatSaysWhatToDo(t *testing.T) {
	r := newRigWith(t, roomy(251))
	r.attach()
	k := service("web")
	id := r.create(k)
	r.publish(id, byMaglev(k, 251))
	_, err := r.Publish(id, byMaglev(k, 252))
	for _, part := range []string{k.String(), "252 backends", "251 entries", "--maglev-table-size", "fairlead.io/selection: random"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error %v does not say %q", err, part)
		}
	}
	if e := r.kernel().Entries; len(e) > 0 {
		t.Fatalf("frontends %v, want none", e)
	}
	if e := r.kernel().UnusedSets[0]; len(e.Backends) != 252 || e.MaglevEntries != 0 || e.Problem != "" {
		t.Errorf("%d backends and %d entries, problem %q; want all of them, chosen at random", len(e.Backends), e.MaglevEntries, e.Problem)
	}
	if r.publish(id, numbered(k, 252)) {
		t.Error("at random they were not in force yet")
	}
}

func TestATableForWhichThereIsNoRoomIsAnError(t *testing.T) {
	cfg := roomy(1021)
	cfg.Sizes.Backends = 128
	r := newRigWith(t, cfg)
	k := service("web")
	id := r.create(k)
	_, err := r.Publish(id, byMaglev(k, 2))
	if err == nil || !strings.Contains(err.Error(), "131 slots") || !strings.Contains(err.Error(), "--max-backends") {
		t.Errorf("131 slots of 127: %v", err)
	}
}

// tableDamages are what someone else may do to a table, and the words in which
// a reader tells.
var tableDamages = map[string]struct {
	do   func(g *generation, id SetID, base uint32)
	want string
}{
	"an entry":              {func(g *generation, _ SetID, base uint32) { g.slots[base+4].Address[2] ^= 1 }, "is not what these backends make"},
	"the last entry":        {func(g *generation, _ SetID, base uint32) { g.slots[base+3+31].Address[4] ^= 1 }, "is not what these backends make"},
	"what follows the last": {func(g *generation, _ SetID, base uint32) { g.slots[base+3+31].Address[6] = 1 }, "is not what these backends make"},
	"the owner of a slot":   {func(g *generation, _ SetID, base uint32) { g.slots[base+4].Owner++ }, "is not what these backends make"},
	"the kind of a slot":    {func(g *generation, _ SetID, base uint32) { g.slots[base+4].Kind = slotBackend }, "is not what these backends make"},
	"no entries":            {func(g *generation, _ SetID, base uint32) { g.slots[base].Port = port{} }, "the extent has none"},
	"entries of no size":    {func(g *generation, _ SetID, base uint32) { g.slots[base].Port[0]++ }, "makes no sense"},
	"more entries": {func(g *generation, _ SetID, base uint32) {
		binary.NativeEndian.PutUint16(g.slots[base].Port[:], 65521)
	}, "ends at slot"},
	"the flag": {func(g *generation, id SetID, _ uint32) { g.sets[id].Word &^= flagMaglev << 24 }, "does not ask for"},
}

func TestADamagedTableIsSeenAndRepaired(t *testing.T) {
	for name, damage := range maps.All(tableDamages) {
		t.Run(name, func(t *testing.T) {
			cfg := roomy(251)
			cfg.Sizes.Backends = 1024
			r := newRigWith(t, cfg)
			k := service("web")
			id := r.create(k)
			s := byMaglev(k, 2)
			r.publish(id, s)
			r.insert(at("10.96.0.1:80", id))
			r.attach()
			damage.do(r.intruder(), id, r.shadows[id].base)
			if e := r.kernel().Entries[0]; !strings.Contains(e.Problem, damage.want) {
				t.Errorf("problem %q, want %q", e.Problem, damage.want)
			}
			if !r.publish(id, s) {
				t.Error("the damage was not noticed")
			}
			if e := r.kernel().Entries[0]; e.Problem != "" || e.MaglevEntries != 251 {
				t.Errorf("after the repair: %d entries, problem %q", e.MaglevEntries, e.Problem)
			}
			if r.publish(id, s) {
				t.Error("the repaired set is stored again")
			}
		})
	}
}

// What a change of a Service of 10 backends costs; the wait for room that its
// predecessors took is not counted. Budgets: 3 µs at random, and 40 µs with a
// table of 1021 entries.
func BenchmarkPublish(b *testing.B) {
	for _, selection := range []model.Selection{model.SelectionRandom, model.SelectionMaglev} {
		b.Run(selection.String(), func(b *testing.B) {
			r := newRigWith(b, Config{Sizes: DefaultSizes()})
			k := service("web")
			id := r.create(k)
			sets := [2]*model.Set{numbered(k, 10), numbered(k, 11)}
			sets[1].Backends = sets[1].Backends[1:]
			sets[0].Selection, sets[1].Selection = selection, selection
			for i := 0; b.Loop(); i++ {
				_, err := r.Publish(id, sets[i%2])
				for errors.Is(err, ErrNoRoom) {
					b.StopTimer()
					<-r.Reclaimed()
					b.StartTimer()
					_, err = r.Publish(id, sets[i%2])
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
