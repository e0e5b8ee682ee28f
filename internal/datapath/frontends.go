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
//
// An element is replaced only when an address changes hands between Services;
// a program that meets it in that moment sees that its seal does not fit.
func (d *Datapath) InsertFrontends(frontends []Frontend) []error {
	keys := make([]frontendKey, 0, len(frontends))
	values := make([]frontend, 0, len(frontends))
	index := make([]int, 0, len(frontends))
	for i, f := range frontends {
		k := keyOf(f.Key)
		if have, ok := d.installed[k]; ok && have.set == f.Set {
			if !have.wanted {
				d.installed[k] = installed{f.Set, true}
			}
			continue
		}
		keys = append(keys, k)
		values = append(values, frontendOf(k, uint32(f.Set), d.shadows[f.Set].owner))
		index = append(index, i)
	}
	defer func() { d.frontendCount.Store(int64(len(d.installed))) }()
	var errs []error
	for done := 0; done < len(keys); {
		n, err := d.current.maps[mapFrontends].BatchUpdate(keys[done:], values[done:], nil)
		for i := done; i < done+n; i++ {
			d.installed[keys[i]] = installed{SetID(values[i].Set), true}
		}
		done += n
		if err == nil && n > 0 {
			continue
		}
		if done == len(keys) {
			break
		}
		if errs == nil {
			errs = make([]error, len(frontends))
		}
		errs[index[done]] = fmt.Errorf("write frontend %s: %w", keys[done],
			mapFull(err, mapFrontends, d.cfg.Sizes.Frontends, "--max-frontends"))
		done++
	}
	return errs
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
			delete(d.installed, k)
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
		delete(d.installed, keys[done])
		done++
	}
	return nil
}

// Prune deletes what was pinned before the start and was not asked for since,
// frontends first. It may only be called when everything wanted was written
// once (R33).
func (d *Datapath) Prune() (deleted int, err error) {
	var unwanted []frontendKey
	for _, k := range d.strays {
		if _, ok := d.installed[k]; !ok {
			unwanted = append(unwanted, k)
		}
	}
	for k, have := range d.installed {
		if !have.wanted {
			unwanted = append(unwanted, k)
		}
	}
	if err := d.deleteKeys(unwanted); err != nil {
		return 0, err
	}
	d.strays = nil
	for _, id := range d.known.unclaimed() {
		if err := d.ReleaseSet(id); err != nil {
			return len(unwanted), err
		}
	}
	d.known = newAdopted()
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
		if f != frontendOf(k, uint32(have.set), d.shadows[have.set].owner) {
			wrong = append(wrong, k)
		}
	})
	if err != nil {
		return 0, err
	}
	for k := range d.installed {
		if _, ok := seen[k]; !ok {
			wrong = append(wrong, k)
		}
	}
	for _, k := range wrong {
		set := d.installed[k].set
		value := frontendOf(k, uint32(set), d.shadows[set].owner)
		if err := d.current.maps[mapFrontends].Put(k, value); err != nil {
			return repaired, fmt.Errorf("repair frontend %s: %w", k, mapFull(err, mapFrontends, d.cfg.Sizes.Frontends, "--max-frontends"))
		}
		repaired++
	}
	if err := d.deleteKeys(foreign); err != nil {
		return repaired, err
	}
	return repaired + len(foreign), nil
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
