// SPDX-License-Identifier: Apache-2.0

package impact

func judgeClasses(*Case) []Consequence { return nil }
