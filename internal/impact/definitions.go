// SPDX-License-Identifier: Apache-2.0

package impact

func judgeDefinitions(*Case) []Consequence { return nil }
