// SPDX-License-Identifier: Apache-2.0

package impact

func judgeRights(*Case) []Consequence { return nil }
