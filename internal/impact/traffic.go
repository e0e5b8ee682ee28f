// SPDX-License-Identifier: Apache-2.0

package impact

func judgeTraffic(*Case) []Consequence { return nil }
