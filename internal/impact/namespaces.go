// SPDX-License-Identifier: Apache-2.0

package impact

func judgeNamespaces(*Case) []Consequence { return nil }
