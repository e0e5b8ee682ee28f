// SPDX-License-Identifier: Apache-2.0

package impact

func judgeWorkloads(*Case) []Consequence { return nil }
