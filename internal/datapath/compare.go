// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
)

// Compare looks at everything but sets, which Publish compares, and repairs
// what someone else changed: frontends and source ranges that were deleted,
// added or rewritten, and, once Attach went well, programs that were taken off
// their hooks and devices. It returns how many there were.
func (d *Datapath) Compare() (repaired int, err error) {
	for _, part := range []func() (int, error){d.compareFrontends, d.compareAddresses, d.compareRanges, d.compareHooks, d.compareSourceCheck, d.compareDevices} {
		n, failed := part()
		repaired += n
		err = errors.Join(err, failed)
	}
	return repaired, err
}

func (d *Datapath) compareFrontends() (repaired int, err error) {
	seen := make(map[frontendKey]struct{}, len(d.installed))
	var rewrite, add writes
	var foreign []frontendKey
	err = readFrontends(d.current.maps[mapFrontends], func(k frontendKey, f frontend) {
		have, ok := d.installed[k]
		if !ok {
			foreign = append(foreign, k)
			return
		}
		seen[k] = struct{}{}
		if f != d.value(k, have.set) {
			rewrite.add(k, have)
		}
	})
	if err != nil {
		return 0, err
	}
	for k, have := range d.installed {
		if _, ok := seen[k]; !ok {
			add.add(k, have)
		}
	}
	// What does not belong goes first: it may be what fills the map.
	if err := d.deleteKeys(foreign); err != nil {
		return 0, err
	}
	var failures []error
	fail := func(_ int, err error) { failures = append(failures, err) }
	d.replace(rewrite, fail)
	d.insert(add, fail)
	return len(foreign) + len(rewrite.keys) + len(add.keys) - len(failures), errors.Join(failures...)
}

// compareRanges also drops the ranges of an owner that has no set any more;
// they could not be deleted with it, and no program asks for them.
func (d *Datapath) compareRanges() (repaired int, err error) {
	for owner := range d.ranges {
		if d.ownsRanges(owner) {
			continue
		}
		if err := d.dropRanges(owner, nil); err != nil {
			return 0, err
		}
	}
	m := d.current.maps[mapRanges]
	seen := map[rangeKey]struct{}{}
	var foreign []rangeKey
	err = readRanges(m, func(k rangeKey) {
		if _, ok := d.ranges[k.Owner][k]; ok {
			seen[k] = struct{}{}
			return
		}
		foreign = append(foreign, k)
	})
	if err != nil {
		return 0, err
	}
	for _, k := range foreign {
		if err := ignoreMissing(m.Delete(k)); err != nil {
			return repaired, fmt.Errorf("delete source range %s, which is not ours: %w", k.prefix(), err)
		}
		repaired++
	}
	for _, keys := range d.ranges {
		for k := range keys {
			if _, ok := seen[k]; ok {
				continue
			}
			if err := d.putRange(k); err != nil {
				return repaired, err
			}
			repaired++
		}
	}
	return repaired, nil
}
