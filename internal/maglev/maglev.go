// SPDX-License-Identifier: Apache-2.0

// Package maglev makes the tables by which packets choose a backend alike on
// every node: the hash of a packet picks an entry, the entry names a backend.
//
// A table follows from the addresses and ports of the backends alone. Each
// backend has a sequence of entries of its own. The backends take turns, and
// each takes the first entry of its sequence that is still free. So all get the
// same share, and when one of n backends comes or goes, 1/n of the entries
// change and only few others: about a quarter of the square root of n over the
// size. (Eisenbud and others: Maglev, a fast and reliable software network load
// balancer, NSDI 2016.)
//
// Only plain values enter. The package knows neither Services nor the kernel,
// and it has no state and no randomness of its own.
package maglev

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Size is the number of entries of a table.
type Size uint16

// DefaultSize suits Services of up to some 20 backends: each has a share that
// differs by a fiftieth at most, and 4 % of the entries change needlessly.
const DefaultSize Size = 1021

// sizes are those that other makers of Maglev tables offer, too: the largest
// prime below each power of two. The last one leaves an index free.
var sizes = [...]Size{251, 509, 1021, 2039, 4093, 8191, 16381, 32749, 65521}

// Allowed says that tables of the size can be made.
func (s Size) Allowed() bool { return slices.Contains(sizes[:], s) }

// MarshalText writes the size as a number.
func (s Size) MarshalText() ([]byte, error) { return strconv.AppendUint(nil, uint64(s), 10), nil }

// UnmarshalText reads one of the allowed sizes.
func (s *Size) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 10, 16)
	if err != nil || !Size(n).Allowed() {
		return fmt.Errorf("use one of %s", SizeList())
	}
	*s = Size(n)
	return nil
}

// SizeList names the allowed sizes, for people.
func SizeList() string {
	words := make([]string, len(sizes))
	for i, s := range sizes {
		words[i] = strconv.Itoa(int(s))
	}
	return strings.Join(words, ", ")
}

// Table returns the entries of a table, each the index of a backend; none
// without backends. The same backends in another order make the same table, but
// for the indices. It is an error if the size is not allowed, or smaller than
// the number of backends.
func Table(size Size, backends []netip.AddrPort) ([]uint16, error) {
	if !size.Allowed() {
		return nil, fmt.Errorf("a Maglev table of %d entries: use one of %s", size, SizeList())
	}
	if len(backends) > int(size) {
		return nil, fmt.Errorf("%d backends do not fit into a Maglev table of %d entries", len(backends), size)
	}
	if len(backends) == 0 {
		return nil, nil
	}
	return fill(int(size), turns(backends)), nil
}

// turns puts the backends in the order in which they take entries, that of
// their addresses, on which all nodes agree.
func turns(backends []netip.AddrPort) []turn {
	order := make([]turn, len(backends))
	for i, b := range backends {
		order[i] = turn{state: start(b), backend: uint16(i)}
	}
	slices.SortStableFunc(order, func(a, b turn) int { return backends[a.backend].Compare(backends[b.backend]) })
	return order
}

// seed parts these hashes from all others that are made of addresses. Nodes
// with another one would make other tables.
const seed = "fairlead maglev 1"

// start is where the sequence of a backend begins.
func start(b netip.AddrPort) uint64 {
	var room [len(seed) + 16 + 2]byte
	address := b.Addr().As16()
	key := append(append(room[:0], seed...), address[:]...)
	sum := sha256.Sum256(binary.BigEndian.AppendUint16(key, b.Port()))
	return binary.BigEndian.Uint64(sum[:])
}

// unset is no index of a backend: no table has so many entries.
const unset = 1<<16 - 1

func fill(size int, order []turn) []uint16 {
	entries := make([]uint16, size)
	for i := range entries {
		entries[i] = unset
	}
	for taken := 0; taken < size; {
		round := order[:min(len(order), size-taken)]
		for i := range round {
			round[i].take(entries)
		}
		taken += len(round)
	}
	return entries
}

// turn is a backend on its way through its sequence of entries.
//
// The sequence is random, where the paper goes from entry to entry by a step of
// the backend's own: two backends of related steps then meet again and again,
// and a table of 1021 entries for 5 backends may change by a tenth more than it
// should. Splitmix64 visits all its states, so each entry comes up in time.
type turn struct {
	state   uint64
	backend uint16
}

func (t *turn) next(size int) uint64 {
	t.state += 0x9e3779b97f4a7c15
	z := t.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	z ^= z >> 31
	return z >> 32 * uint64(size) >> 32
}

// take gives the backend the first entry of its sequence that is free.
func (t *turn) take(entries []uint16) {
	at := t.next(len(entries))
	for entries[at] != unset {
		at = t.next(len(entries))
	}
	entries[at] = t.backend
}
