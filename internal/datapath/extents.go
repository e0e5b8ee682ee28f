// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"math/bits"
)

// ErrNoRoom says that a map has no room for what should be written. Nothing
// that was published before is touched; what did not fit is retried.
var ErrNoRoom = errors.New("no room")

// extents hands out runs of slots. It knows only what is free; what is in use
// is known from the sets, so nothing can leak that a restart would not find.
//
// Free runs never touch: neighbours are joined when one is freed. A run stands
// in the bin of the position of its length's highest bit.
type extents struct {
	capacity uint32
	free     uint64
	length   map[uint32]uint32 // free run: first slot -> length
	end      map[uint32]uint32 // free run: slot after the last -> first slot
	bins     [33]map[uint32]struct{}
	// tail is a free run kept aside, the one at the end of the array that a
	// first fill consumes; taking from it costs no look-up.
	tail, tailLength uint32
}

// newExtents has the slots 1 ... capacity-1 free; slot 0 means "no extent".
func newExtents(capacity uint32) *extents {
	e := &extents{capacity: capacity, length: map[uint32]uint32{}, end: map[uint32]uint32{}}
	for i := range e.bins {
		e.bins[i] = map[uint32]struct{}{}
	}
	if capacity > 1 {
		e.tail, e.tailLength = 1, capacity-1
		e.free = uint64(capacity - 1)
	}
	return e
}

func bin(length uint32) int { return bits.Len32(length) }

func (e *extents) insert(first, length uint32) {
	if length == 0 {
		return
	}
	e.length[first] = length
	e.end[first+length] = first
	e.bins[bin(length)][first] = struct{}{}
}

func (e *extents) remove(first uint32) uint32 {
	length := e.length[first]
	delete(e.length, first)
	delete(e.end, first+length)
	delete(e.bins[bin(length)], first)
	return length
}

// alloc returns the first slot of a run of n slots.
func (e *extents) alloc(n uint32) (uint32, bool) {
	first, ok := e.find(n)
	if ok {
		length := e.remove(first)
		e.insert(first+n, length-n)
		e.free -= uint64(n)
		return first, true
	}
	if e.tailLength >= n {
		first = e.tail
		e.tail += n
		e.tailLength -= n
		e.free -= uint64(n)
		return first, true
	}
	return e.allocLast(n)
}

// allocLast looks through the whole own bin when everything else failed.
func (e *extents) allocLast(n uint32) (uint32, bool) {
	for first := range e.bins[bin(n)] {
		if e.length[first] < n {
			continue
		}
		length := e.remove(first)
		e.insert(first+n, length-n)
		e.free -= uint64(n)
		return first, true
	}
	return 0, false
}

// find looks for a run that fits: any run of a higher bin does; in the own
// bin, of lengths within a factor of two, a bounded number is tried.
func (e *extents) find(n uint32) (uint32, bool) {
	if len(e.length) == 0 {
		return 0, false
	}
	tries := 16
	for first := range e.bins[bin(n)] {
		if e.length[first] >= n {
			return first, true
		}
		if tries--; tries == 0 {
			break
		}
	}
	for b := bin(n) + 1; b < len(e.bins); b++ {
		for first := range e.bins[b] {
			return first, true
		}
	}
	return 0, false
}

// release gives a run back and joins it with its free neighbours.
func (e *extents) release(first, n uint32) {
	e.free += uint64(n)
	if before, ok := e.end[first]; ok {
		n += e.remove(before)
		first = before
	}
	if _, ok := e.length[first+n]; ok {
		n += e.remove(first + n)
	}
	if first+n == e.tail {
		e.tail = first
		e.tailLength += n
		return
	}
	e.insert(first, n)
}

// reserve takes one particular run, found in use on start. It fails if a slot
// of it is not free, which means that two sets claim it.
func (e *extents) reserve(first, n uint32) bool {
	last := uint64(first) + uint64(n)
	if first == 0 || n == 0 || last > uint64(e.capacity) {
		return false
	}
	if first >= e.tail && last <= uint64(e.tail)+uint64(e.tailLength) {
		e.insert(e.tail, first-e.tail)
		e.tailLength -= first + n - e.tail
		e.tail = first + n
		e.free -= uint64(n)
		return true
	}
	for start, length := range e.length {
		if first < start || last > uint64(start)+uint64(length) {
			continue
		}
		e.remove(start)
		e.insert(start, first-start)
		e.insert(first+n, start+length-(first+n))
		e.free -= uint64(n)
		return true
	}
	return false
}

// largest is the longest free run.
func (e *extents) largest() uint32 {
	longest := e.tailLength
	for b := len(e.bins) - 1; b >= 0; b-- {
		for first := range e.bins[b] {
			longest = max(longest, e.length[first])
		}
		if len(e.bins[b]) > 0 {
			return longest
		}
	}
	return longest
}
