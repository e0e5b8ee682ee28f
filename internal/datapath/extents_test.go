// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// bitmap is what extents means, one bool per slot.
type bitmap []bool

func (b bitmap) free() (n uint64) {
	for _, used := range b {
		if !used {
			n++
		}
	}
	return n
}

// runs are the maximal free runs, first slot to length.
func (b bitmap) runs() map[uint32]uint32 {
	runs := map[uint32]uint32{}
	for i := 0; i < len(b); i++ {
		first := i
		for i < len(b) && !b[i] {
			i++
		}
		if i > first {
			runs[uint32(first)] = uint32(i - first)
		}
	}
	return runs
}

func (b bitmap) largest() (n uint32) {
	for _, length := range b.runs() {
		n = max(n, length)
	}
	return n
}

// isFree says whether all of a run is within the array and free.
func (b bitmap) isFree(first, n uint32) bool {
	if uint64(first)+uint64(n) > uint64(len(b)) {
		return false
	}
	for i := first; i < first+n; i++ {
		if b[i] {
			return false
		}
	}
	return true
}

func (b bitmap) set(first, n uint32, used bool) {
	for i := first; i < first+n; i++ {
		b[i] = used
	}
}

func TestExtentsHandOutWhatABitmapSaysIsFree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.Uint32Range(1, 300).Draw(t, "capacity")
		e, model := newExtents(capacity), make(bitmap, capacity)
		model[0] = true // slot 0 means "no extent"
		var held []run
		length := rapid.Uint32Range(1, 40)
		t.Repeat(map[string]func(*rapid.T){
			"alloc": func(t *rapid.T) {
				n := length.Draw(t, "n")
				largest := model.largest()
				first, ok := e.alloc(n)
				if ok != (n <= largest) {
					t.Fatalf("alloc(%d) = %v while the largest free run has %d slots", n, ok, largest)
				}
				if !ok {
					return
				}
				if !model.isFree(first, n) {
					t.Fatalf("alloc(%d) = %d, which is not free", n, first)
				}
				model.set(first, n, true)
				held = append(held, run{first, n})
			},
			"release": func(t *rapid.T) {
				if len(held) == 0 {
					return
				}
				i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
				e.release(held[i].first, held[i].length)
				model.set(held[i].first, held[i].length, false)
				held = append(held[:i], held[i+1:]...)
			},
			"reserve": func(t *rapid.T) {
				first := rapid.Uint32Range(0, capacity+2).Draw(t, "first")
				n := rapid.Uint32Range(0, 40).Draw(t, "n")
				want := n > 0 && first > 0 && model.isFree(first, n)
				if got := e.reserve(first, n); got != want {
					t.Fatalf("reserve(%d, %d) = %v, want %v", first, n, got, want)
				}
				if want {
					model.set(first, n, true)
					held = append(held, run{first, n})
				}
			},
			"": func(t *rapid.T) {
				if e.free != model.free() {
					t.Fatalf("%d slots are free, want %d", e.free, model.free())
				}
				if e.largest() != model.largest() {
					t.Fatalf("the largest free run has %d slots, want %d", e.largest(), model.largest())
				}
				if diff := diffRuns(e, model.runs()); diff != "" {
					t.Fatal(diff)
				}
			},
		})
	})
}

// diffRuns compares all three indexes of free runs with the maximal runs,
// which also shows that neighbours were joined.
func diffRuns(e *extents, want map[uint32]uint32) string {
	got := map[uint32]uint32{}
	for first, length := range e.length {
		got[first] = length
		if e.end[first+length] != first {
			return fmt.Sprintf("the run at %d is not found by its end", first)
		}
		if _, ok := e.bins[bin(length)][first]; !ok {
			return fmt.Sprintf("the run at %d of %d slots is not in its bin", first, length)
		}
	}
	binned := 0
	for _, b := range e.bins {
		binned += len(b)
	}
	if binned != len(got) || len(e.end) != len(got) {
		return fmt.Sprintf("%d runs are in bins and %d ends are known of %d runs", binned, len(e.end), len(got))
	}
	if e.tailLength > 0 {
		got[e.tail] = e.tailLength
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		return fmt.Sprintf("free runs are %v, want %v", got, want)
	}
	return ""
}

func TestReserveRefusesWhatWrapsAround(t *testing.T) {
	e := newExtents(100)
	for _, r := range []run{{99, 1<<32 - 1}, {1<<32 - 1, 1<<32 - 1}, {1<<32 - 1, 2}, {1, 1<<32 - 1}, {100, 1}, {99, 2}} {
		if e.reserve(r.first, r.length) {
			t.Errorf("reserve(%d, %d) took slots that do not exist", r.first, r.length)
		}
	}
	if e.free != 99 {
		t.Errorf("%d slots are free, want 99", e.free)
	}
}

// BenchmarkExtents publishes elsewhere and gives back, as an agent does for
// years: half of the array is in use by sets of very different lengths.
func BenchmarkExtents(b *testing.B) {
	const capacity = 524288
	random := rand.New(rand.NewPCG(1, 2))
	length := func() uint32 { return 2 + uint32(random.ExpFloat64()*8) }
	e := newExtents(capacity)
	var held []run
	for e.free > capacity/2 {
		n := length()
		first, _ := e.alloc(n)
		held = append(held, run{first, n})
	}
	for b.Loop() {
		n := length()
		first, ok := e.alloc(n)
		if !ok {
			b.Fatalf("no run of %d slots while %d are free", n, e.free)
		}
		i := random.IntN(len(held))
		e.release(held[i].first, held[i].length)
		held[i] = run{first, n}
	}
	b.ReportMetric(float64(e.largest()), "largest-free-run")
}
