// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/failpoint"
)

// writes are elements to be written.
type writes struct {
	keys []frontendKey
	want []installed
}

func (w *writes) add(k frontendKey, want installed) {
	w.keys, w.want = append(w.keys, k), append(w.want, want)
}

func (w *writes) part(from, to int) writes { return writes{w.keys[from:to], w.want[from:to]} }

// InsertFrontends makes each frontend point to its set; one that does already
// is left alone. The result has an error per frontend, or is nil if all went
// well. Sets must have been published before, and no address stands among the
// frontends twice.
func (d *Datapath) InsertFrontends(frontends []Frontend) []error {
	defer func() { d.frontendCount.Store(int64(len(d.installed))) }()
	var errs []error
	fail := func(i int, err error) {
		if errs == nil {
			errs = make([]error, len(frontends))
		}
		errs[i] = err
	}
	var born, taken writes
	var bornAt, takenAt []int // among the frontends
	for i, f := range frontends {
		k, wanted := keyOf(f.Key), installed{f.Set, true}
		have, ok := d.installed[k]
		_, stray := d.strays[k]
		switch {
		case ok && have.set == f.Set:
			d.installed[k] = wanted
		case ok || stray:
			taken.add(k, wanted)
			takenAt = append(takenAt, i)
		default:
			born.add(k, wanted)
			bornAt = append(bornAt, i)
		}
	}
	failTaken, failBorn := func(i int, err error) { fail(takenAt[i], err) }, func(i int, err error) { fail(bornAt[i], err) }
	d.announced(taken, failTaken, d.replace)
	d.announced(born, failBorn, d.insert)
	return errs
}

// announcedAtOnce bounds how many addresses the kernel learns of before it is
// known which of their frontends it has room for: less than the room that there
// is for addresses beyond those of frontends.
const announcedAtOnce = maxNodeAddresses / 4

// announced writes elements between the kernel's learning of their addresses
// and its forgetting those of elements that could not be written.
func (d *Datapath) announced(w writes, fail func(int, error), write func(writes, func(int, error))) {
	for first := 0; first < len(w.keys); first += announcedAtOnce {
		part := w.part(first, min(first+announcedAtOnce, len(w.keys)))
		failPart := func(i int, err error) { fail(first+i, err) }
		err := d.announce(part)
		failpoint.Hit("insert: addresses are announced")
		if err == nil {
			write(part, failPart)
		}
		if err = errors.Join(err, d.settle(part.keys)); err != nil {
			for i := range part.keys {
				failPart(i, err)
			}
		}
		failpoint.Hit("insert: addresses are settled")
	}
}

// insert writes elements that the hash does not have yet. It tells fail which
// of them could not be written.
func (d *Datapath) insert(w writes, fail func(int, error)) {
	values := make([]frontend, len(w.keys))
	for i, k := range w.keys {
		values[i] = d.value(k, w.want[i].set)
	}
	for done := 0; done < len(w.keys); {
		n, err := d.current.maps[mapFrontends].BatchUpdate(w.keys[done:], values[done:], nil)
		n = processed(n, len(w.keys)-done, err)
		for i := done; i < done+n; i++ {
			d.install(w.keys[i], w.want[i])
		}
		failpoint.Hit("insert: frontends are written")
		done += n
		if err != nil {
			fail(done, d.writeError(w.keys[done], err))
			done++
		}
	}
}

// processed is how many elements of a batch the kernel has dealt with, of the
// number it says. Where it refuses the whole batch it says the number it was
// given.
func processed(n, all int, err error) int {
	if err == nil {
		return all
	}
	if n >= all {
		return 0
	}
	return n
}

// replace writes over elements: addresses change hands between Services, or
// someone else wrote to the map. A program may be looking at an old element,
// whose memory the kernel uses for the next one that is written, or may just
// have missed both; it looks again then (look_twice in bpf/select.h), and
// finds the new one. That is sure as long as no element is replaced a second
// time while such a program runs: one wait at the end is enough for all.
func (d *Datapath) replace(w writes, fail func(int, error)) {
	for i, k := range w.keys {
		if err := d.current.maps[mapFrontends].Put(k, d.value(k, w.want[i].set)); err != nil {
			fail(i, d.writeError(k, err))
			continue
		}
		d.install(k, w.want[i])
		delete(d.strays, k)
		failpoint.Hit("insert: frontend is replaced")
	}
	if len(w.keys) == 0 || !d.current.adopted {
		return // no program reads maps that are not in force yet
	}
	if err := d.barrier.wait(); err != nil {
		for i := range w.keys {
			fail(i, err)
		}
	}
	failpoint.Hit("insert: no program sees a former frontend")
}

func (d *Datapath) value(k frontendKey, set SetID) frontend {
	return frontendOf(k, uint32(set), d.shadows[set].owner)
}

func (d *Datapath) writeError(k frontendKey, err error) error {
	return fmt.Errorf("write frontend %s: %w", k, mapFull(err, mapFrontends, d.cfg.Sizes.Frontends, "--max-frontends"))
}

// DeleteFrontends removes each frontend that still points to the set named
// with it. One that is missing, or has gone over to another set, is no error.
func (d *Datapath) DeleteFrontends(frontends []Frontend) error {
	keys := make([]frontendKey, 0, len(frontends))
	for _, f := range frontends {
		k := keyOf(f.Key)
		if have, ok := d.installed[k]; ok && have.set == f.Set {
			keys = append(keys, k)
		}
	}
	return d.deleteKeys(keys)
}

func (d *Datapath) deleteKeys(keys []frontendKey) (err error) {
	defer func() {
		d.frontendCount.Store(int64(len(d.installed)))
		err = errors.Join(err, d.settle(keys))
		failpoint.Hit("delete: addresses are settled")
	}()
	for done := 0; done < len(keys); {
		n, err := d.current.maps[mapFrontends].BatchDelete(keys[done:], nil)
		n = processed(n, len(keys)-done, err)
		for _, k := range keys[done : done+n] {
			d.forget(k)
		}
		failpoint.Hit("delete: frontends are deleted")
		done += n
		if err == nil {
			continue
		}
		if err := ignoreMissing(err); err != nil {
			return fmt.Errorf("delete frontend %s: %w", keys[done], err)
		}
		d.forget(keys[done])
		done++
	}
	return nil
}

func (d *Datapath) forget(k frontendKey) {
	d.uninstall(k)
	delete(d.strays, k)
}

// Prune deletes what was pinned before the start and was not asked for since,
// frontends first. It may only be called when everything wanted was written
// once (R33).
func (d *Datapath) Prune() (deleted int, err error) {
	var unwanted []frontendKey
	for k := range d.strays {
		unwanted = append(unwanted, k)
	}
	for k, have := range d.installed {
		if !have.wanted {
			unwanted = append(unwanted, k)
		}
	}
	if err := d.deleteKeys(unwanted); err != nil {
		return 0, err
	}
	d.strays = map[frontendKey]struct{}{}
	failpoint.Hit("prune: frontends are deleted")
	if err := d.settleAll(); err != nil {
		return len(unwanted), err
	}
	// Releasing fails over source ranges only, which stand below again; no set
	// may be released twice.
	for _, id := range d.known.unclaimed() {
		err = errors.Join(err, d.ReleaseSet(id))
	}
	failpoint.Hit("prune: sets are released")
	d.freeFormerSets()
	d.known = newAdopted()
	if err != nil {
		return len(unwanted), err
	}
	for owner := range d.ranges {
		if d.ownsRanges(owner) {
			continue
		}
		if err := d.dropRanges(owner, nil); err != nil {
			return len(unwanted), err
		}
	}
	return len(unwanted), nil
}

// readFrontends calls f for every frontend.
func readFrontends(m *ebpf.Map, f func(frontendKey, frontend)) error {
	if err := readHash(m, f); err != nil {
		return fmt.Errorf("read the frontends map: %w", err)
	}
	return nil
}

// readHash calls f for every element. An element that appears or goes in the
// meantime may or may not be among them; none comes twice.
func readHash[K, V any](m *ebpf.Map, f func(K, V)) error {
	const chunk = 4096
	keys, values := make([]K, chunk), make([]V, chunk)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			f(keys[i], values[i])
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// mapFull says which flag makes room, where the kernel says that there is none.
func mapFull(err error, name string, size uint32, flag string) error {
	if errors.Is(err, unix.E2BIG) || errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("%w in %s with %d entries (%s)", ErrNoRoom, name, size, flag)
	}
	return err
}

func ignoreMissing(err error) error {
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}
