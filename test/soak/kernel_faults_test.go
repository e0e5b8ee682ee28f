// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"
)

// The first bytes of the kernel's structures, of which package datapath says
// the rest: a frontend's key begins with its address, its value repeats the key
// and names the set, and a set begins with the word that decides everything.
const (
	addressBytes = 16
	keyBytes     = 20
	wordBytes    = 8
)

// floodServices are more than fit.
const floodServices = 20

// kernelFaults are what others can do to maps and programs.
func kernelFaults() []action {
	return []action{
		{name: "maps filled", weight: 2, writes: true, can: func(w *world) bool { return w.apiUp() && len(w.flood) == 0 }, do: func(w *world) func() {
			w.fill()
			return w.drain
		}},
		spoils("frontends deleted behind the agent's back", deleteFrontend),
		spoils("backend sets overwritten behind the agent's back", func(_, sets *ebpf.Map, _, value []byte) error {
			id := binary.NativeEndian.Uint32(value[keyBytes:])
			set, err := sets.LookupBytes(id)
			if err != nil {
				return err
			}
			clear(set[:wordBytes])
			return sets.Put(id, set)
		}),
		{name: "all pins deleted", weight: 1, can: (*world).agentRuns, do: func(w *world) func() {
			w.ledger.interrupt()
			w.must(os.RemoveAll(w.agent.Pins))
			// Nothing but a start pins maps, and until then the lock lies nowhere.
			time.Sleep(time.Duration(w.rand.IntN(1000)) * time.Millisecond)
			w.restart()
			return nil
		}},
		{name: "programs taken off", weight: 2, do: func(w *world) func() {
			w.ledger.interrupt()
			w.unpin()
			return nil
		}},
	}
}

// fill creates Services until the maps are full.
func (w *world) fill() {
	all := map[int]condition{}
	for i := range w.backends {
		all[i] = ready
	}
	for i := range floodServices {
		s := newService(fmt.Sprintf("flood-%d", i), 100+i)
		w.flood = append(w.flood, s)
		w.create(s, [2]map[int]condition{all, {}})
	}
}

// drain deletes them again.
func (w *world) drain() {
	for _, s := range w.flood {
		w.remove(s)
	}
	w.flood = nil
}

// spoil does something to a frontend, with its key and value.
type spoil func(frontends, sets *ebpf.Map, key, value []byte) error

func deleteFrontend(frontends, _ *ebpf.Map, key, _ []byte) error { return frontends.Delete(key) }

// spoils spoils one Service. What others do to the maps is found by the next
// comparison, and until then nothing is promised to it.
func spoils(name string, do spoil) action {
	return action{name: name, weight: 3, do: func(w *world) func() {
		s := w.services[w.rand.IntN(len(w.services))]
		w.ledger.interrupt(s.key())
		w.spoil(s, do)
		return nil
	}}
}

// spoil does it to each frontend at the Service's ClusterIPs.
func (w *world) spoil(s *service, do spoil) {
	frontends, sets := w.pinned("fairlead_frontends"), w.pinned("fairlead_sets")
	if frontends == nil || sets == nil {
		return
	}
	defer frontends.Close()
	defer sets.Close()
	type element struct{ key, value []byte }
	var found []element
	var key, value []byte
	for all := frontends.Iterate(); all.Next(&key, &value); {
		for _, addr := range s.VIP.List() {
			if as16 := addr.As16(); [addressBytes]byte(key) == as16 {
				found = append(found, element{append([]byte{}, key...), append([]byte{}, value...)})
			}
		}
	}
	for _, e := range found {
		// The agent may be quicker.
		if err := do(frontends, sets, e.key, e.value); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			w.t.Fatalf("spoil %s in the kernel: %v", s.Name, err)
		}
	}
}

// pinned opens a map that is in force; nil right after a reboot.
func (w *world) pinned(name string) *ebpf.Map {
	m, err := ebpf.LoadPinnedMap(filepath.Join(w.agent.Pins, "current", name), nil)
	w.must(err)
	return m
}

// unpin removes the links of all programs, which ends those that no process
// holds.
func (w *world) unpin() {
	folder := filepath.Join(w.agent.Pins, "links")
	links, err := os.ReadDir(folder)
	w.must(err)
	for _, link := range links {
		w.must(os.Remove(filepath.Join(folder, link.Name())))
	}
}
