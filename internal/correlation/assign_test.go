// SPDX-License-Identifier: Apache-2.0

package correlation

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// cheapest tries every way to give rows their columns.
func cheapest(cost [][]float64, taken map[int]bool) float64 {
	if len(cost) == 0 {
		return 0
	}
	least := math.Inf(1)
	for c, price := range cost[0] {
		if taken[c] {
			continue
		}
		taken[c] = true
		least = min(least, price+cheapest(cost[1:], taken))
		delete(taken, c)
	}
	return least
}

// No way to share columns out costs less, and none is given twice.
func TestAssignment(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.IntRange(1, 5).Draw(t, "rows")
		columns := rapid.IntRange(rows, 6).Draw(t, "columns")
		price := rapid.SampledFrom([]float64{0, 0.25, 1, 2, 30, alone})
		cost := make([][]float64, rows)
		for i := range cost {
			cost[i] = rapid.SliceOfN(price, columns, columns).Draw(t, "cost")
		}
		sum, given := 0.0, map[int]bool{}
		for row, column := range assign(cost) {
			if given[column] {
				t.Fatalf("column %d is given twice", column)
			}
			given[column] = true
			sum += cost[row][column]
		}
		if want := cheapest(cost, map[int]bool{}); sum != want {
			t.Errorf("it costs %v, and could %v", sum, want)
		}
	})
}
