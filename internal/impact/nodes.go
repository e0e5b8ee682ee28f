// SPDX-License-Identifier: Apache-2.0

package impact

func judgeNodes(*Case) []Consequence { return nil }
