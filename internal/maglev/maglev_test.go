// SPDX-License-Identifier: Apache-2.0

package maglev

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// genBackends draws distinct backends of one family, in any order.
func genBackends(least, most int) *rapid.Generator[[]netip.AddrPort] {
	return rapid.Custom(func(t *rapid.T) []netip.AddrPort {
		prefix := rapid.SampledFrom([]string{"10.0.0.0", "192.168.255.0", "fd00:10::", "2001:db8:ffff::"}).Draw(t, "prefix")
		numbers := rapid.SliceOfNDistinct(rapid.Uint16(), least, most, rapid.ID[uint16]).Draw(t, "hosts")
		samePort := rapid.Bool().Draw(t, "same port")
		backends := make([]netip.AddrPort, len(numbers))
		for i, n := range numbers {
			backends[i] = numbered(prefix, n, 8080)
			if !samePort {
				backends[i] = numbered(prefix, n>>4, 8080+n&15)
			}
		}
		return backends
	})
}

func numbered(prefix string, n, port uint16) netip.AddrPort {
	a := netip.MustParseAddr(prefix)
	bytes := a.As16()
	bytes[14], bytes[15] = bytes[14]^byte(n>>8), byte(n)
	b := netip.AddrFrom16(bytes)
	if a.Is4() {
		b = b.Unmap()
	}
	return netip.AddrPortFrom(b, port)
}

// many are n backends at addresses one after the other.
func many(n int) []netip.AddrPort {
	backends := make([]netip.AddrPort, n)
	for i := range backends {
		backends[i] = numbered("10.0.0.0", uint16(i), 8080)
	}
	return backends
}

// failer is what tests, benchmarks and properties have in common.
type failer interface {
	Helper()
	Fatal(...any)
}

// names is a table by the backends themselves.
func names(t failer, size Size, backends []netip.AddrPort) []netip.AddrPort {
	t.Helper()
	entries, err := Table(size, backends)
	if err != nil {
		t.Fatal(err)
	}
	named := make([]netip.AddrPort, len(entries))
	for i, e := range entries {
		named[i] = backends[e]
	}
	return named
}

var genSize = rapid.SampledFrom(sizes[:])

func TestAllBackendsHaveTheSameShareButForOneEntry(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size, backends := genSize.Draw(t, "size"), genBackends(1, 250).Draw(t, "backends")
		shares := map[netip.AddrPort]int{}
		for _, b := range names(t, size, backends) {
			shares[b]++
		}
		for _, b := range backends {
			if share, even := shares[b], int(size)/len(backends); share != even && share != even+1 {
				t.Fatalf("%s has %d of %d entries, one of %d backends", b, share, size, len(backends))
			}
		}
		if len(shares) != len(backends) {
			t.Fatalf("%d backends in the table, want %d", len(shares), len(backends))
		}
	})
}

func TestTheOrderOfBackendsDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size, backends := genSize.Draw(t, "size"), genBackends(1, 100).Draw(t, "backends")
		other := rapid.Permutation(backends).Draw(t, "other order")
		if !slices.Equal(names(t, size, backends), names(t, size, other)) {
			t.Fatal("the tables differ")
		}
	})
}

// needless counts the entries that change although their backend stays.
func needless(before, after []netip.AddrPort, gone netip.AddrPort) int {
	n := 0
	for i := range before {
		if before[i] != gone && after[i] != gone && before[i] != after[i] {
			n++
		}
	}
	return n
}

// mostNeedless bounds the share of such entries for n backends: half of the
// square root of n over the size, twice of what is usual, and what chance makes
// of a few entries. For 10 backends and 1021 entries that is 6 %.
func mostNeedless(size Size, n int) int {
	share := math.Sqrt(float64(n)/float64(size)) / 2
	return 8 + int(share*float64(size))
}

func TestOneBackendThatComesOrGoesMovesItsOwnShareAndLittleElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size, backends := genSize.Draw(t, "size"), genBackends(2, 250).Draw(t, "backends")
		with := names(t, size, backends)
		i := rapid.IntRange(0, len(backends)-1).Draw(t, "gone")
		without := names(t, size, slices.Delete(slices.Clone(backends), i, i+1))
		if n := needless(with, without, backends[i]); n > mostNeedless(size, len(backends)) {
			t.Fatalf("one of %d backends: %d of %d entries change needlessly, want at most %d",
				len(backends), n, size, mostNeedless(size, len(backends)))
		}
	})
}

// A flow moves if its entry does: with one of n backends these flows in all.
func TestAboutOneInNFlowsMovesWithOneOfNBackends(t *testing.T) {
	for _, c := range []struct {
		size Size
		n    int
		most float64 // of all flows
	}{
		{251, 2, 0.51}, {251, 5, 0.26}, {1021, 3, 0.35}, {1021, 10, 0.14}, {1021, 20, 0.10},
		{16381, 10, 0.11}, {16381, 100, 0.025}, {65521, 10, 0.105}, {65521, 100, 0.017}, {65521, 1000, 0.008},
	} {
		t.Run(fmt.Sprintf("%d backends, %d entries", c.n, c.size), func(t *testing.T) {
			backends := many(c.n)
			with := names(t, c.size, backends)
			for gone := 0; gone < c.n; gone += 1 + c.n/20 {
				without := names(t, c.size, slices.Delete(slices.Clone(backends), gone, gone+1))
				moved := 0
				for i := range with {
					if with[i] != without[i] {
						moved++
					}
				}
				if share := float64(moved) / float64(c.size); share > c.most || share < 0.9/float64(c.n) {
					t.Errorf("without %s %.4f of the flows move, want about %.4f and at most %.4f",
						backends[gone], share, 1/float64(c.n), c.most)
				}
			}
		})
	}
}

// Nodes of different versions serve one cluster during an upgrade.
func TestTheTableIsTheSameOnEveryNodeAndInEveryVersion(t *testing.T) {
	for _, c := range []struct {
		size     Size
		backends []netip.AddrPort
		want     uint32
	}{
		{251, many(1), 0x26b48a28},
		{251, many(3), 0xa143e2b0},
		{1021, many(10), 0xefbb1331},
		{65521, []netip.AddrPort{numbered("fd00:10::", 1, 80), numbered("fd00:10::", 1, 443), numbered("fd00:10::", 2, 80)}, 0xfafeae83},
	} {
		entries, err := Table(c.size, c.backends)
		if err != nil {
			t.Fatal(err)
		}
		var bytes []byte
		for _, e := range entries {
			bytes = binary.BigEndian.AppendUint16(bytes, e)
		}
		if got := crc32.ChecksumIEEE(bytes); got != c.want {
			t.Errorf("%d entries for %d backends: checksum %#x, want %#x", c.size, len(c.backends), got, c.want)
		}
	}
}

func TestTablesThatCannotBeMade(t *testing.T) {
	for name, c := range map[string]struct {
		size     Size
		backends int
		want     string // of the error, "" for none
	}{
		"no backends make an empty table":        {1021, 0, ""},
		"as many backends as entries fit":        {251, 251, ""},
		"the largest table takes 65521":          {65521, 65521, ""},
		"one backend more than entries":          {251, 252, "252 backends do not fit into a Maglev table of 251 entries"},
		"a size that is no choice":               {1024, 2, "a Maglev table of 1024 entries: use one of 251, 509, 1021, 2039, 4093, 8191, 16381, 32749, 65521"},
		"a size of 0, whatever the backends":     {0, 0, "a Maglev table of 0 entries"},
		"a size of which no index would be left": {65535, 1, "a Maglev table of 65535 entries"},
	} {
		t.Run(name, func(t *testing.T) {
			entries, err := Table(c.size, many(c.backends))
			if c.want == "" {
				if want := min(c.backends, 1) * int(c.size); err != nil || len(entries) != want {
					t.Errorf("%d entries, %v; want %d", len(entries), err, want)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestSizesAreReadAsTheyAreWritten(t *testing.T) {
	for _, size := range sizes {
		text, err := size.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var got Size
		if err := got.UnmarshalText(text); err != nil || got != size {
			t.Errorf("%d written as %q reads %d, %v", size, text, got, err)
		}
		for divisor := Size(2); divisor < 256; divisor++ {
			if size%divisor == 0 && size != divisor {
				t.Errorf("%d is no prime: %d divides it", size, divisor)
			}
		}
	}
	for _, text := range []string{"", "0", "1000", "-251", "251.0", "131071", "many"} {
		got := DefaultSize
		if err := got.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), "use one of 251, ") || got != DefaultSize {
			t.Errorf("%q reads %d, %v; want an error with the choices", text, got, err)
		}
	}
}

// What a publish of a Service with Maglev costs more than that of another.
// Budgets: 30 µs for 10 backends in 1021 entries, 1.5 ms for 1000 in 16381.
func BenchmarkTable(b *testing.B) {
	for _, c := range []struct {
		size Size
		n    int
	}{{1021, 2}, {1021, 10}, {1021, 100}, {16381, 1000}, {65521, 10000}} {
		b.Run(fmt.Sprintf("entries=%d/backends=%d", c.size, c.n), func(b *testing.B) {
			backends := many(c.n)
			for b.Loop() {
				if _, err := Table(c.size, backends); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
