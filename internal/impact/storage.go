// SPDX-License-Identifier: Apache-2.0

package impact

func judgeStorage(*Case) []Consequence { return nil }
