// SPDX-License-Identifier: Apache-2.0

package impact

func judgeAggregation(*Case) []Consequence { return nil }
