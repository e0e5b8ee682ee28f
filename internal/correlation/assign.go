// SPDX-License-Identifier: Apache-2.0

package correlation

import (
	"math"
	"time"
)

// alone is what an event costs that gets no record: more than any that fits, so
// that as many events as possible have one.
const alone = 1e9

// square is what a pair costs beside others. As squares, two writes of one
// object that follow each other closely keep their order, whatever the clocks
// differ by: as they are, to swap them would cost the same.
func square(cost time.Duration) float64 { return cost.Seconds() * cost.Seconds() }

// assign gives each row a column of its own so that all together cost least. It
// needs a row, and as many columns as rows. It adds a row at a time, and moves
// the others along the cheapest chain of swaps: the Hungarian method.
func assign(cost [][]float64) []int {
	rows, columns := len(cost), len(cost[0])
	// Row and column 0 are none. A row's and a column's prices make up what their
	// pair costs, and no other pair is cheaper than its prices.
	rowPrice, columnPrice := make([]float64, rows+1), make([]float64, columns+1)
	holder := make([]int, columns+1) // the row that has a column
	from := make([]int, columns+1)   // the column before in the chain
	least, done := make([]float64, columns+1), make([]bool, columns+1)
	for row := 1; row <= rows; row++ {
		holder[0] = row
		for i := range least {
			least[i], done[i] = math.Inf(1), false
		}
		at := 0
		for holder[at] != 0 {
			done[at] = true
			next, step := 0, math.Inf(1)
			for c := 1; c <= columns; c++ {
				if done[c] {
					continue
				}
				r := holder[at]
				if above := cost[r-1][c-1] - rowPrice[r] - columnPrice[c]; above < least[c] {
					least[c], from[c] = above, at
				}
				if least[c] < step {
					next, step = c, least[c]
				}
			}
			for c := range done {
				if done[c] {
					rowPrice[holder[c]] += step
					columnPrice[c] -= step
				} else {
					least[c] -= step
				}
			}
			at = next
		}
		for at != 0 {
			holder[at] = holder[from[at]]
			at = from[at]
		}
	}
	out := make([]int, rows)
	for c := 1; c <= columns; c++ {
		if holder[c] != 0 {
			out[holder[c]-1] = c - 1
		}
	}
	return out
}
