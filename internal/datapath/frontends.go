// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// InsertFrontends makes each frontend point to its set; one that does already
// is left alone. The result has an error per frontend, or is nil if all went
// well. Sets must have been published before.
func (d *Datapath) InsertFrontends(frontends []Frontend) []error {
	defer func() { d.frontendCount.Store(int64(len(d.installed))) }()
	var errs []error
	fail := func(i int, err error) {
		if errs == nil {
			errs = make([]error, len(frontends))
		}
		errs[i] = err
	}
	var born []frontendKey
	var want []installed
	var index []int
	for i, f := range frontends {
		k, wanted := keyOf(f.Key), installed{f.Set, true}
		have, ok := d.installed[k]
		if ok && have.set == f.Set {
			d.installed[k] = wanted
			continue
		}
		if _, stray := d.strays[k]; !ok && !stray {
			born, want, index = append(born, k), append(want, wanted), append(index, i)
			continue
		}
		if err := d.replace(k, wanted); err != nil {
			fail(i, err)
		}
	}
	d.insert(born, want, func(i int, err error) { fail(index[i], err) })
	return errs
}

// insert writes elements that the hash does not have yet.
func (d *Datapath) insert(keys []frontendKey, want []installed, fail func(int, error)) {
	values := make([]frontend, len(keys))
	for i, k := range keys {
		values[i] = d.value(k, want[i].set)
	}
	for done := 0; done < len(keys); {
		n, err := d.current.maps[mapFrontends].BatchUpdate(keys[done:], values[done:], nil)
		for i := done; i < done+n; i++ {
			d.installed[keys[i]] = want[i]
		}
		done += n
		if err == nil && n > 0 {
			continue
		}
		if done == len(keys) {
			return
		}
		fail(done, d.writeError(keys[done], err))
		done++
	}
}

// replace writes over an element: an address changes hands between Services,
// or someone else wrote to the map. A program may be looking at the old
// element, whose memory the kernel uses for the next one that is written, or
// may just have missed both; it looks again then (look_twice in bpf/select.h).
// So the next write waits until no such program runs any more.
func (d *Datapath) replace(k frontendKey, want installed) error {
	if err := d.current.maps[mapFrontends].Put(k, d.value(k, want.set)); err != nil {
		return d.writeError(k, err)
	}
	d.installed[k] = want
	delete(d.strays, k)
	if !d.current.adopted {
		return nil // no program reads these maps yet
	}
	return d.barrier.wait()
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

func (d *Datapath) deleteKeys(keys []frontendKey) error {
	defer func() { d.frontendCount.Store(int64(len(d.installed))) }()
	for done := 0; done < len(keys); {
		n, err := d.current.maps[mapFrontends].BatchDelete(keys[done:], nil)
		for _, k := range keys[done : done+n] {
			d.forget(k)
		}
		done += n
		if err == nil && n > 0 {
			continue
		}
		if done == len(keys) {
			break
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
	delete(d.installed, k)
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
	// Releasing fails over source ranges only, which stand below again; no set
	// may be released twice.
	for _, id := range d.known.unclaimed() {
		err = errors.Join(err, d.ReleaseSet(id))
	}
	d.known = newAdopted()
	if err != nil {
		return len(unwanted), err
	}
	for owner := range d.ranges {
		if d.owners[owner] > 0 {
			continue
		}
		if err := d.dropRanges(owner, nil); err != nil {
			return len(unwanted), err
		}
	}
	return len(unwanted), nil
}

// CompareFrontends reads the whole hash and repairs what someone else changed:
// elements deleted, added or rewritten. It returns how many there were.
func (d *Datapath) CompareFrontends() (repaired int, err error) {
	seen := make(map[frontendKey]struct{}, len(d.installed))
	var wrong, foreign []frontendKey
	err = readFrontends(d.current.maps[mapFrontends], func(k frontendKey, f frontend) {
		have, ok := d.installed[k]
		if !ok {
			foreign = append(foreign, k)
			return
		}
		seen[k] = struct{}{}
		if f != d.value(k, have.set) {
			wrong = append(wrong, k)
		}
	})
	if err != nil {
		return 0, err
	}
	// What does not belong goes first: it may be what fills the map.
	if err := d.deleteKeys(foreign); err != nil {
		return 0, err
	}
	repaired = len(foreign)
	for _, k := range wrong {
		if err := d.replace(k, d.installed[k]); err != nil {
			return repaired, err
		}
		repaired++
	}
	var missing []frontendKey
	var want []installed
	for k, have := range d.installed {
		if _, ok := seen[k]; !ok {
			missing, want = append(missing, k), append(want, have)
		}
	}
	repaired += len(missing)
	d.insert(missing, want, func(_ int, failed error) { err, repaired = failed, repaired-1 })
	return repaired, err
}

// readFrontends calls f for every element. An element that appears or goes in
// the meantime may or may not be among them; none comes twice.
func readFrontends(m *ebpf.Map, f func(frontendKey, frontend)) error {
	const chunk = 4096
	keys, values := make([]frontendKey, chunk), make([]frontend, chunk)
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
			return fmt.Errorf("read the frontends map: %w", err)
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
